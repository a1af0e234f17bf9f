/// Structures within structures; Parquet's footers have a handful.
const DEEPEST: u32 = 32;

/// Checks that a structure in Thrift's compact protocol, as a Parquet file's footer is one, ends within its bytes, and
/// that no list in it promises more elements than bytes are left. The crate that reads footers makes room for as many
/// elements as a list promises, whatever comes.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    Walk { rest: bytes }.structure(0)
}

struct Walk<'a> {
    rest: &'a [u8],
}

impl Walk<'_> {
    fn structure(&mut self, depth: u32) -> Result<(), String> {
        if depth > DEEPEST {
            return Err("its footer is nested too deeply".into());
        }
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            // The upper half is the distance to the last field's number, or 0 before the number itself.
            if head >> 4 == 0 {
                self.varint()?;
            }
            // Of a field that is a boolean, the type tells the value.
            if !matches!(head & 15, 1 | 2) {
                self.value(head & 15, depth)?;
            }
        }
    }

    fn value(&mut self, kind: u8, depth: u32) -> Result<(), String> {
        match kind {
            1..=3 => self.byte().map(|_| ()),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.values(count, &[head & 15], depth)
            }
            11 => match self.varint()? {
                0 => Ok(()),
                count => {
                    let kinds = self.byte()?;
                    self.values(count, &[kinds >> 4, kinds & 15], depth)
                }
            },
            12 => self.structure(depth + 1),
            other => Err(format!("its footer holds a value of the unknown type {other}")),
        }
    }

    /// Values of some kinds, in turn, `count` times: of a list or a map.
    fn values(&mut self, count: u64, kinds: &[u8], depth: u32) -> Result<(), String> {
        if depth > DEEPEST {
            return Err("its footer is nested too deeply".into());
        }
        // No value is shorter than a byte.
        if count > self.rest.len() as u64 {
            return Err(format!("its footer promises {count} values in {} bytes", self.rest.len()));
        }
        for _ in 0..count {
            kinds.iter().try_for_each(|kind| self.value(*kind, depth + 1))?;
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self.rest.split_first().ok_or("its footer ends too early")?;
        self.rest = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err("its footer holds a number that does not end".into())
    }

    fn skip(&mut self, count: u64) -> Result<(), String> {
        let rest = usize::try_from(count).ok().and_then(|count| self.rest.get(count..));
        self.rest = rest.ok_or("its footer ends too early")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_measured_by_the_bytes_that_are_left() {
        // Field 1: the list of the two numbers 1 and 2; field 2: the text "ab"; field 3: true; the end.
        assert_eq!(check(&[0x19, 0x25, 2, 4, 0x18, 2, b'a', b'b', 0x11, 0]), Ok(()));
        // The same list with 2^28 elements.
        let why = check(&[0x19, 0xF5, 0x80, 0x80, 0x80, 0x80, 1, 2, 4, 0]).unwrap_err();
        assert_eq!(why, "its footer promises 268435456 values in 3 bytes");
        // Structures, and lists of lists, without an end.
        assert!(check(&[0x1C; 200]).unwrap_err().contains("too deeply"));
        assert!(check(&[&[0x19][..], &[0x19; 200]].concat()).unwrap_err().contains("too deeply"));
        for cut in 0..9 {
            assert!(check(&[0x19, 0x25, 2, 4, 0x18, 2, b'a', b'b', 0x11, 0][..cut]).is_err(), "{cut}");
        }
    }
}
