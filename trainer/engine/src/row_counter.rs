//! Sums of a step's gradients of a table, of the rows alone that they have: the counter of [`buckets`](super::buckets) with
//! sparse tensors in its levels.
//!
//! A row that one of two terms lacks is zero in it, and no sum is −0 where the whole table's would be +0, so that every row has
//! the bits that it has in sums of whole tables.

use tch::{Device, Kind, Tensor, no_grad};

/// Binary counter over micro-steps whose levels hold rows of one table.
#[derive(Default)]
pub struct RowCounter {
    /// Level `l` holds the sum of 2^l micro-steps; `None` where these have touched no row, or there are none.
    levels: Vec<Option<Tensor>>,
}

impl RowCounter {
    /// Counts micro-step `index`, the next one, with its gradient: sparse and coalesced, `None` for zero.
    pub fn push(&mut self, index: usize, gradient: Option<&Tensor>) {
        // A table that begins at zero makes +0 of −0.
        let mut sum = gradient.map(|gradient| no_grad(|| rows_of(gradient, &(gradient.values() + 0.0))));
        // Counting on turns trailing ones into zeros and sets the bit above them.
        let top = index.trailing_ones() as usize;
        self.levels.resize_with(self.levels.len().max(top + 1), || None);
        for low in &mut self.levels[..top] {
            sum = add(low.take(), sum);
        }
        self.levels[top] = sum;
    }

    /// The sum of all that was counted, smallest level first, of a table of this shape: sparse and coalesced.
    pub fn total(self, shape: &[i64], device: Device) -> Tensor {
        let total = self.levels.into_iter().fold(None, |sum, level| add(level, sum));
        total.unwrap_or_else(|| nothing(shape, device))
    }

    /// Writes the levels into whole tables, as if these had been counted in from the beginning.
    pub fn write<'a>(&self, tables: impl Iterator<Item = &'a Tensor>) {
        for (table, level) in tables.zip(&self.levels) {
            let mut table = table.shallow_clone();
            no_grad(|| {
                let _ = table.zero_();
                level.iter().for_each(|rows| _ = table.g_add_(rows));
            });
        }
    }
}

/// The tensor whose rows are those of `like`, with these values.
fn rows_of(like: &Tensor, values: &Tensor) -> Tensor {
    sparse(&like.indices(), values, &like.size())
}

/// A table of `shape` that has `values`, `[rows, width]`, in its rows `numbers`, `[1, rows]`, i64, rising.
pub fn sparse(numbers: &Tensor, values: &Tensor, shape: &[i64]) -> Tensor {
    Tensor::sparse_coo_tensor_indices_size(numbers, values, shape, (values.kind(), values.device()), true)
}

fn nothing(shape: &[i64], device: Device) -> Tensor {
    let numbers = Tensor::zeros([1, 0], (Kind::Int64, device));
    sparse(&numbers, &Tensor::zeros([0, shape[1]], (Kind::Float, device)), shape)
}

fn add(a: Option<Tensor>, b: Option<Tensor>) -> Option<Tensor> {
    match (a, b) {
        (Some(a), Some(b)) => Some(no_grad(|| (a + b).coalesce())),
        (a, b) => a.or(b),
    }
}
