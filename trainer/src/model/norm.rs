use tch::Tensor;

use crate::parameters::Parameters;

/// Mean of initial LayerNorm weights.
pub const NORM_MEAN: f64 = 1.0;

/// LayerNorm over the last axis.
pub struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
}

impl Norm {
    /// `PREFIX.layer_norm.{weight, bias}`.
    pub fn new(parameters: &Parameters, prefix: &str, epsilon: f64) -> Self {
        Self::named(parameters, &format!("{prefix}.layer_norm"), epsilon)
    }

    /// `NAME.{weight, bias}`.
    pub fn named(parameters: &Parameters, name: &str, epsilon: f64) -> Self {
        let get = |part: &str| parameters.get(&format!("{name}.{part}"));
        Self { weight: get("weight"), bias: get("bias"), epsilon }
    }

    /// `x`, each of its rows at mean 0 and variance 1, scaled and moved.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), self.epsilon, true)
    }
}
