use std::io::Read;

use flate2::read::ZlibDecoder;

use crate::bytes::{MOST_PER_BYTE, product, read_up_to, spelled};

/// Bytes before the first element.
pub(super) const HEADER: usize = 128;
/// Bytes of a tag; elements begin at multiples of as many.
const TAG: usize = 8;

/// Types of elements that are read here ("MAT-File Format", table 1-1).
pub(super) mod kind {
    pub const UINT8: u32 = 2;
    pub const INT32: u32 = 5;
    pub const UINT32: u32 = 6;
    pub const DOUBLE: u32 = 9;
    pub const INT64: u32 = 12;
    pub const MATRIX: u32 = 14;
    pub const COMPRESSED: u32 = 15;
}

/// What is wrong with a file, and where.
#[derive(Debug)]
pub(super) struct Flaw {
    /// Byte of the file, or of what is in a compressed element.
    pub at: usize,
    pub why: String,
}

/// The order of the bytes of a number.
#[derive(Clone, Copy)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// That of a file, by its header.
    pub fn of_header(file: &[u8]) -> Result<Order, Flaw> {
        let flaw = |at, why: &str| Err(Flaw { at, why: why.into() });
        if file.starts_with(b"MATLAB 7.3") {
            let hint = "save it with `-v7`";
            return flaw(
                0,
                &format!("a file of version 7.3, which is HDF5, expected version 5\nhint: {hint}"),
            );
        }
        let Some(header) = file.first_chunk::<HEADER>() else {
            return flaw(file.len(), "it ends inside the header of 128 bytes");
        };
        match header[124..] {
            [0, 1, b'I', b'M'] => Ok(Order::Little),
            [1, 0, b'M', b'I'] => Ok(Order::Big),
            _ => flaw(124, "its header is not that of a MATLAB file of version 5"),
        }
    }

    pub fn u32(self, word: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(word),
            Order::Big => u32::from_be_bytes(word),
        }
    }

    fn u64(self, word: [u8; 8]) -> u64 {
        match self {
            Order::Little => u64::from_le_bytes(word),
            Order::Big => u64::from_be_bytes(word),
        }
    }
}

/// A piece of a file with its type.
pub(super) struct Element<'a> {
    pub kind: u32,
    pub data: &'a [u8],
    /// Where its tag begins.
    pub at: usize,
}

impl Element<'_> {
    pub fn flaw(&self, why: impl Into<String>) -> Flaw {
        Flaw { at: self.at, why: why.into() }
    }

    /// Its values as whole numbers.
    pub fn integers(&self, order: Order) -> Result<Vec<i64>, Flaw> {
        let whole =
            |value: f64| (value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64).then_some(value as i64);
        let words = self.data.as_chunks::<8>().0.iter().map(|word| order.u64(*word));
        let values = match self.kind {
            kind::UINT8 => Some(self.data.iter().map(|value| i64::from(*value)).collect()),
            kind::INT64 => Some(words.map(|word| word as i64).collect()),
            kind::DOUBLE => words.map(|word| whole(f64::from_bits(word))).collect(),
            kind => {
                return Err(self.flaw(format!("elements of type {kind}, expected uint8, int64 or double")));
            }
        };
        values.ok_or_else(|| self.flaw("a value that is not a whole number"))
    }
}

/// Elements one after the other.
pub(super) struct Elements<'a> {
    rest: &'a [u8],
    /// Where `rest` begins.
    at: usize,
    order: Order,
}

impl<'a> Elements<'a> {
    /// Those of `bytes`, which begin at byte `at` of the file.
    pub fn new(bytes: &'a [u8], at: usize, order: Order) -> Self {
        Self { rest: bytes, at, order }
    }

    /// The next element; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Element<'a>>, Flaw> {
        let (at, rest) = (self.at, self.rest);
        if rest.is_empty() {
            return Ok(None);
        }
        let flaw = |why: String| Flaw { at, why };
        let Some(([first, second], _)) = rest.as_chunks::<4>().0.split_first_chunk() else {
            return Err(flaw(format!("it ends inside a tag of {TAG} bytes")));
        };
        let (first, second) = (self.order.u32(*first), self.order.u32(*second) as usize);
        // A small element has its size in the upper half of the first word, and its data in place of the second.
        let (kind, start, length) = match first >> 16 {
            0 => (first, TAG, second),
            length => (first & 0xFFFF, 4, length as usize),
        };
        if start == 4 && length > 4 {
            return Err(flaw(format!("a small element of {length} bytes, expected 4 at the most")));
        }
        let data = rest.get(start..).and_then(|rest| rest.get(..length));
        let data = data.ok_or_else(|| {
            flaw(format!("an element of {length} bytes, of which {} are there", rest.len() - start))
        })?;
        let end = start + length;
        let padded = if kind == kind::COMPRESSED { end } else { end.next_multiple_of(TAG) };
        // The last element of an array may lack its padding.
        self.rest = rest.get(padded..).unwrap_or_default();
        self.at += padded;
        Ok(Some(Element { kind, data, at }))
    }

    /// The next element, which has to be there and of this type.
    pub fn expect(&mut self, kind: u32, what: &str) -> Result<Element<'a>, Flaw> {
        match self.next()? {
            Some(found) if found.kind == kind => Ok(found),
            Some(found) => Err(found.flaw(format!("{what} of type {}, expected type {kind}", found.kind))),
            None => Err(Flaw { at: self.at, why: format!("no {what}") }),
        }
    }
}

/// The one element in a compressed one, with its tag.
pub(super) fn inflated(packed: &Element<'_>, order: Order) -> Result<Vec<u8>, Flaw> {
    let damaged = |e: std::io::Error| packed.flaw(format!("its compressed data are damaged: {e}"));
    let short = |found: usize, expected: usize| {
        packed.flaw(format!("it holds {found} bytes compressed, expected {expected}"))
    };
    let mut stream = ZlibDecoder::new(packed.data);
    let mut bytes = read_up_to(&mut stream, TAG).map_err(damaged)?;
    let (&[_, length], []) = bytes.as_chunks::<4>() else { return Err(short(bytes.len(), TAG)) };
    let length = order.u32(length) as usize;
    if length > packed.data.len().saturating_mul(MOST_PER_BYTE) {
        let why = format!("{} bytes that claim to hold {length} compressed", packed.data.len());
        return Err(packed.flaw(why));
    }
    // One byte more shows whether the stream goes on.
    (&mut stream).take(length as u64 + 1).read_to_end(&mut bytes).map_err(damaged)?;
    match bytes.len() == TAG + length {
        true => Ok(bytes),
        false => Err(short(bytes.len(), TAG + length)),
    }
}

/// An array: its name, its sizes and where its values are.
pub(super) struct Array<'a> {
    pub name: &'a [u8],
    pub sizes: Vec<usize>,
    /// Class of its values ("MAT-File Format", table 1-3).
    pub class: u32,
    /// Where its tag begins.
    pub at: usize,
    rest: Elements<'a>,
}

/// Class of an array of unsigned bytes.
pub(super) const UINT8_CLASS: u32 = 9;
/// Classes of numbers, from doubles to unsigned integers of 64 bits.
const NUMBERS: std::ops::RangeInclusive<u32> = 6..=15;
/// The flag of an array with imaginary parts.
const COMPLEX: u32 = 0x800;

impl<'a> Array<'a> {
    /// The array of an element.
    pub fn of(element: &Element<'a>, order: Order) -> Result<Self, Flaw> {
        let mut parts = Elements::new(element.data, element.at + TAG, order);
        let flags = parts.expect(kind::UINT32, "flags of an array")?;
        let &[word, ..] = flags.data.as_chunks::<4>().0 else {
            return Err(flags.flaw("an array without flags"));
        };
        let flags = order.u32(word);
        let sizes = parts.expect(kind::INT32, "sizes of an array")?;
        let words = sizes.data.as_chunks::<4>().0.iter().map(|word| i64::from(order.u32(*word) as i32));
        let found: Option<Vec<usize>> = words.map(|size| usize::try_from(size).ok()).collect();
        let found = found.ok_or_else(|| sizes.flaw("an array of a negative size"))?;
        let name = parts.expect(1, "name of an array")?.data;
        // One with imaginary parts has no class of plain numbers.
        let class = if flags & COMPLEX == 0 { flags & 0xFF } else { 0 };
        Ok(Self { name, sizes: found, class, at: element.at, rest: parts })
    }

    /// Number of its values, and the element that holds them.
    pub fn values(mut self) -> Result<(usize, Element<'a>), Flaw> {
        let flaw = |at, why: String| Flaw { at, why };
        if !NUMBERS.contains(&self.class) {
            return Err(flaw(self.at, "an array that is not one of real numbers".into()));
        }
        let spelled = spelled(&self.sizes);
        let Some(values) = self.rest.next()? else {
            return Err(flaw(self.at, format!("an array of {spelled} without values")));
        };
        match product(&self.sizes).filter(|count| values_of(&values) == Some(*count)) {
            Some(count) => Ok((count, values)),
            None => Err(values.flaw(format!("{} bytes for an array of {spelled}", values.data.len()))),
        }
    }
}

/// Values in an element; `None` where they are not whole or of a type that is not read.
fn values_of(element: &Element<'_>) -> Option<usize> {
    let width = match element.kind {
        1 | kind::UINT8 => 1,
        3 | 4 => 2,
        kind::INT32 | kind::UINT32 | 7 => 4,
        kind::DOUBLE | kind::INT64 | 13 => 8,
        _ => return None,
    };
    element.data.len().is_multiple_of(width).then(|| element.data.len() / width)
}
