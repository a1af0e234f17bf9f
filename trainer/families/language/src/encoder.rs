//! A pre-trained model as heads see it.

use segue_kernels::libtorch::stream::put;
use segue_kernels::noise::Noise;
use segue_layers::Memory;
use tch::{Kind, Tensor};

/// Sequences as tensors: one row each, padded at the left so that the last token stands last in every row.
pub struct Rows {
    /// Token ids, `[rows, length]`.
    pub ids: Tensor,
    /// The same in the memory of the host, where the model lives elsewhere.
    pub ids_of_host: Option<Tensor>,
    /// Segment of each, `[rows, length]`.
    pub segments: Tensor,
    /// True at padding, `[rows, length]`; `None` where there is none.
    pub padding: Option<Tensor>,
    /// Positions of padding before each row.
    pub offsets: Vec<i64>,
    /// Tokens of the longest row.
    pub length: i64,
}

/// Whole sequences in, states out. There is no memory, and nothing is predicted in any order (Yang 2019, §2.2.4).
pub trait Encoder {
    /// Whether states depend on the parameter of this name.
    fn uses(&self, name: &str) -> bool;

    /// States of every position, `[rows, length, d_model]`; those of padding mean nothing. Dropout is on where
    /// there is noise.
    fn states(&self, rows: &Rows, noise: Option<&Noise>) -> Tensor;

    /// States of the last position alone: `[rows, 1, d_model]`. May cost less than all of them.
    fn last_states(&self, rows: &Rows, noise: Option<&Noise>) -> Tensor {
        self.states(rows, noise).narrow(1, rows.length - 1, 1)
    }
}

/// The memory of rows that have none, of a model of this many layers.
pub fn no_memory(layers: usize, rows: &Rows, d_model: usize) -> Memory {
    Memory::zeros(layers, rows.offsets.len() as i64, 0, d_model as i64, (Kind::Float, rows.ids.device()))
}

/// Every row of `[rows, length, ..]` rotated to the left by its own number of positions. A model that looks to the
/// left alone does not see padding that has been moved behind the text.
pub fn rotated(x: &Tensor, offsets: &[i64]) -> Tensor {
    if offsets.iter().all(|&offset| offset == 0) {
        return x.shallow_clone();
    }
    let size = x.size();
    let length = size[1];
    let from: Vec<i64> = offsets
        .iter()
        .flat_map(|offset| (0..length).map(move |position| (position + offset).rem_euclid(length)))
        .collect();
    let mut index = put(Tensor::from_slice(&from), x.device()).view([size[0], length]);
    if let Some(&width) = size.get(2) {
        index = index.unsqueeze(2).expand([-1, -1, width], false);
    }
    x.gather(1, &index, false)
}
