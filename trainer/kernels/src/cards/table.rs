//! Tables of tensors that one kernel works on together: a row a tensor, in the memory of the card.

use tch::{Device, Kind, Tensor};

use crate::libtorch::stream::put;

/// Values of a tensor that one block takes: `CHUNK` of prelude.cu.
pub const CHUNK: usize = 1 << 14;

/// Rows that a kernel reads as structs of two `long long`, the number of the tensor's first chunk and that of its values, then pointers, then an
/// even number of `float`.
#[derive(Default)]
pub struct Table {
    bytes: Vec<u8>,
    rows: i32,
    chunks: i64,
}

impl Table {
    /// Adds tensors of as many values each, contiguous f32, with constants of theirs.
    pub fn push(&mut self, tensors: &[&Tensor], constants: &[f32]) {
        assert!(constants.len().is_multiple_of(2), "the next row begins at a multiple of eight bytes");
        let count = tensors.first().map_or(0, |tensor| tensor.numel());
        let pointers = tensors.iter().map(|tensor| tensor.data_ptr() as i64);
        let numbers = [self.chunks, count as i64].into_iter().chain(pointers);
        self.bytes.extend(numbers.flat_map(i64::to_ne_bytes));
        self.bytes.extend(constants.iter().flat_map(|x| x.to_ne_bytes()));
        self.rows += 1;
        self.chunks += count.div_ceil(CHUNK) as i64;
    }

    /// Whether there is nothing to work on.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Number of rows.
    pub fn rows(&self) -> i32 {
        self.rows
    }

    /// Number of chunks of all rows, a block each.
    pub fn chunks(&self) -> i64 {
        self.chunks
    }

    /// The table on `device`, bytes, for work that this thread queues from now on.
    pub fn put(&self, device: Device) -> Tensor {
        put(Tensor::from_data_size(&self.bytes, &[self.bytes.len() as i64], Kind::Uint8), device)
    }
}
