//! Heads that turn the states of a sequence into answers (Yang 2019, §2.2.3). Names and shapes of
//! parameters are those that Hugging Face gives XLNet's heads; it has none for ranking.

mod kernels;
mod span;
mod summary;
mod tags;

pub use kernels::{KernelHead, QUERY_SEGMENT, kernel_features, pair_losses};
pub use span::{Beam, JudgedFrom, SpanHead, SpanLabels};
pub use summary::{SummaryHead, by_choice, classification_losses, squared_errors};
pub use tags::TagHead;

use segue_kernels::libtorch::widened;
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use tch::Tensor;

/// What a head has to know of the model it sits on.
#[derive(Debug, Clone)]
pub struct HeadConfig {
    /// Width of the model's states.
    pub width: i64,
    /// How matrices start: as the model's own.
    pub init: Init,
    /// Dropout before the last matrix.
    pub dropout: f64,
    /// Added to the variance in a head's LayerNorm.
    pub norm_eps: f64,
    /// What the names of its parameters begin with, where a model has several heads.
    pub prefix: String,
}

impl HeadConfig {
    /// The full name of a parameter.
    fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// `NAME.weight` from width `from` to width `to`.
    fn matrix(&self, name: &str, from: i64, to: i64) -> ParameterSpec {
        ParameterSpec { name: self.named(&format!("{name}.weight")), shape: vec![to, from], init: self.init }
    }
}

/// Of a small model whose matrices start with this deviation, for tests.
#[cfg(test)]
fn small(std: f64) -> HeadConfig {
    HeadConfig {
        width: 8,
        init: Init::Normal { mean: 0.0, std },
        dropout: 0.1,
        norm_eps: 1e-12,
        prefix: String::new(),
    }
}

/// A matrix and a bias: `x Wᵀ + b`.
struct Linear {
    weight: Tensor,
    bias: Tensor,
    kernels: Kernels,
}

impl Linear {
    /// `NAME.{weight, bias}` from width `from` to width `to`.
    fn specs(config: &HeadConfig, name: &str, from: i64, to: i64) -> Vec<ParameterSpec> {
        let bias = config.named(&format!("{name}.bias"));
        let bias = ParameterSpec { name: bias, shape: vec![to], init: Init::Zeros };
        vec![config.matrix(name, from, to), bias]
    }

    fn new(config: &HeadConfig, parameters: &Parameters, name: &str) -> Self {
        let get = |part: &str| parameters.get(&config.named(&format!("{name}.{part}")));
        Self { weight: get("weight"), bias: get("bias"), kernels: parameters.kernels() }
    }

    /// `[.., to]` of `[.., from]`, of single precision at least: what follows are losses, and heads are small.
    fn forward(&self, x: &Tensor) -> Tensor {
        widened(&self.kernels.linear(x, &self.weight, Some(&self.bias)))
    }
}
