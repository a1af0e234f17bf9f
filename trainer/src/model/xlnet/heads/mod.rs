//! Heads that turn XLNet's content stream into answers (thesis 2.2, fine-tuning; spec 2.10). Names and shapes of
//! parameters are Hugging Face's.

mod span;
mod summary;

pub use span::{Beam, SpanHead, SpanLabels};
pub use summary::{SummaryHead, by_choice, classification_losses, squared_errors};

use segue_configs::XlnetConfig;
use tch::Tensor;

use crate::parameters::{Init, ParameterSpec, Parameters};

/// A matrix and a bias: `x Wᵀ + b`.
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// `NAME.{weight, bias}` from width `from` to width `to`.
    fn specs(config: &XlnetConfig, name: &str, from: i64, to: i64) -> Vec<ParameterSpec> {
        let bias = ParameterSpec { name: format!("{name}.bias"), shape: vec![to], init: Init::Zeros };
        vec![matrix(config, name, from, to), bias]
    }

    fn new(parameters: &Parameters, name: &str) -> Self {
        let get = |part: &str| parameters.get(&format!("{name}.{part}"));
        Self { weight: get("weight"), bias: get("bias") }
    }

    /// `[.., to]` of `[.., from]`.
    fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, Some(&self.bias))
    }
}

/// `NAME.weight` from width `from` to width `to`, drawn as the model's own matrices.
fn matrix(config: &XlnetConfig, name: &str, from: i64, to: i64) -> ParameterSpec {
    let init = Init::Normal { mean: 0.0, std: config.initializer_range };
    ParameterSpec { name: format!("{name}.weight"), shape: vec![to, from], init }
}
