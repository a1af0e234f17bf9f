//! The two protocol buffer messages of an index: the header under the empty key, and one entry per tensor.

use super::table::push_varint;
use crate::ElementType;
use crate::wire::{Fields, Value};

/// TensorFlow's numbers of element types.
const TYPES: [(u64, ElementType); 10] = [
    (1, ElementType::F32),
    (2, ElementType::F64),
    (3, ElementType::I32),
    (4, ElementType::U8),
    (5, ElementType::I16),
    (6, ElementType::I8),
    (9, ElementType::I64),
    (10, ElementType::Bool),
    (14, ElementType::Bf16),
    (19, ElementType::F16),
];
/// Axes of a tensor, more than any has.
const MAX_AXES: usize = 16;

/// Number of shards from the header; refuses big-endian bundles.
pub(super) fn parse_header(message: &[u8]) -> Result<u32, String> {
    let mut shards = 0;
    for field in Fields::new(message) {
        match field? {
            (1, value) => shards = value.varint("the number of shards")?,
            (2, value) if value.varint("the byte order")? != 0 => {
                return Err("it was written on a big-endian machine".into());
            }
            _ => {}
        }
    }
    match u32::try_from(shards) {
        Ok(shards @ 1..=99_999) => Ok(shards),
        _ => Err(format!("it claims to have {shards} shards")),
    }
}

pub(super) fn header(shards: u32) -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, 1, u64::from(shards));
    // version { producer: 1 }
    out.extend([3 << 3 | 2, 2, 1 << 3, 1]);
    out
}

/// What an index says of a tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// TensorFlow's number of the element type.
    pub dtype: u64,
    pub shape: Vec<u64>,
    pub shard: u32,
    pub offset: u64,
    pub size: u64,
    pub crc: u32,
    /// Pieces that a partitioned variable is stored in.
    pub slices: usize,
}

impl Record {
    pub fn parse(message: &[u8]) -> Result<Record, String> {
        let mut record = Record::default();
        for found in Fields::new(message) {
            match found? {
                (1, value) => record.dtype = value.varint("a type")?,
                (2, value) => record.shape = parse_shape(value.bytes("a shape")?)?,
                (3, value) => {
                    record.shard = u32::try_from(value.varint("a shard")?)
                        .map_err(|_| "the number of a shard is not an integer")?;
                }
                (4, value) => record.offset = value.varint("an offset")?,
                (5, value) => record.size = value.varint("a size")?,
                (6, Value::Fixed32(crc)) => record.crc = crc,
                (6, other) => return Err(format!("a checksum is {other:?}")),
                (7, _) => record.slices += 1,
                _ => {}
            }
        }
        Ok(record)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut shape = Vec::new();
        for size in &self.shape {
            let mut axis = Vec::new();
            field(&mut axis, 1, *size);
            shape.push(2 << 3 | 2);
            push_varint(&mut shape, axis.len() as u64);
            shape.extend(axis);
        }
        let mut out = Vec::new();
        field(&mut out, 1, self.dtype);
        out.push(2 << 3 | 2);
        push_varint(&mut out, shape.len() as u64);
        out.extend(shape);
        field(&mut out, 3, u64::from(self.shard));
        field(&mut out, 4, self.offset);
        field(&mut out, 5, self.size);
        out.push(6 << 3 | 5);
        out.extend(self.crc.to_le_bytes());
        out
    }

    pub fn element_type(&self) -> Option<ElementType> {
        TYPES.iter().find(|(number, _)| *number == self.dtype).map(|(_, dtype)| *dtype)
    }
}

/// TensorFlow's number of a type.
pub(super) fn type_number(dtype: ElementType) -> u64 {
    TYPES.iter().find(|(_, known)| *known == dtype).map_or(0, |(number, _)| *number)
}

fn parse_shape(message: &[u8]) -> Result<Vec<u64>, String> {
    let mut shape = Vec::new();
    for found in Fields::new(message) {
        let (2, value) = found? else { continue };
        let mut size = 0;
        for found in Fields::new(value.bytes("an axis")?) {
            if let (1, value) = found? {
                size = value.varint("the size of an axis")?;
            }
        }
        if shape.len() == MAX_AXES || i64::try_from(size).is_err() {
            return Err("a shape is absurd".into());
        }
        shape.push(size);
    }
    Ok(shape)
}

/// An integer field; 0 is left out, as protocol buffers do.
fn field(out: &mut Vec<u8>, number: u8, value: u64) {
    if value != 0 {
        out.push(number << 3);
        push_varint(out, value);
    }
}
