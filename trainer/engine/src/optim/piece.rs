//! What of a network one optimizer updates.

use std::ops::Range;

use segue_kernels::Parameters;
use tch::Tensor;

/// Consecutive values of a parameter, in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its number.
    pub parameter: usize,
    /// Which of its values.
    pub values: Range<usize>,
}

impl Piece {
    /// All parameters, each as a whole.
    pub fn all(parameters: &Parameters) -> Vec<Self> {
        let whole = |(parameter, spec): (usize, &segue_kernels::ParameterSpec)| Self {
            parameter,
            values: 0..spec.numel(),
        };
        parameters.specs().iter().enumerate().map(whole).collect()
    }

    /// Its part of `tensor`, which is the parameter or has its shape, and whose storage it shares: the tensor itself where it is the whole,
    /// else `[values]`.
    pub fn of(&self, tensor: &Tensor) -> Tensor {
        if self.values.len() == tensor.numel() {
            return tensor.shallow_clone();
        }
        tensor.detach().view([-1]).narrow(0, self.values.start as i64, self.values.len() as i64)
    }
}
