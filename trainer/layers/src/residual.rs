//! What surrounds a sublayer: the residual stream, dropout, and a norm before it or after it.

use schemars::JsonSchema;
use segue_kernels::noise::{Noise, dropout};
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::attention::multi_head::Map;
use super::norm::{NORM_MEAN, Norm, Stream};

/// Where norms stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NormPlace {
    /// After each sum: LN(x + f(x)) (Vaswani et al. 2017, §3.1).
    #[default]
    Post,
    /// Before each sublayer: x + f(LN(x)), with one more norm at the end (Wang et al. 2019).
    Pre,
}

impl NormPlace {
    /// A residual stream of states `[.., d_model]`, for layers that compute with `kernels`.
    pub fn stream(self, states: Tensor, kernels: Kernels) -> Stream {
        match self {
            Self::Post => Stream::new(states, kernels),
            Self::Pre => Stream::from(states),
        }
    }
}

/// The surroundings of one sublayer.
pub struct Residual {
    norm: Norm,
    place: NormPlace,
    rate: f64,
}

impl Residual {
    /// Parameters of its norm: `NAME.{weight, bias}`, `[width]`.
    pub fn specs(name: &str, width: i64) -> [ParameterSpec; 2] {
        let spec =
            |part: &str, init| ParameterSpec { name: format!("{name}.{part}"), shape: vec![width], init };
        [spec("weight", Init::Normal { mean: NORM_MEAN, std: 0.0 }), spec("bias", Init::Zeros)]
    }

    /// Over `parameters`, with dropout at `rate` of what the sublayer gives.
    pub fn new(parameters: &Parameters, name: &str, epsilon: f64, place: NormPlace, rate: f64) -> Self {
        Self { norm: Norm::named(parameters, name, epsilon), place, rate }
    }

    /// What the sublayer reads of the stream.
    pub fn input(&self, stream: &Stream) -> Tensor {
        match self.place {
            NormPlace::Post => stream.read().shallow_clone(),
            NormPlace::Pre => self.norm.forward(&stream.whole),
        }
    }

    /// The stream after the sublayer, which ends in `map` of `x`.
    pub fn add(&self, x: &Tensor, map: &Map, stream: &Stream, noise: Option<&Noise>) -> Stream {
        match self.place {
            NormPlace::Post => self.norm.of_mapped_sum(x, map.parts(), stream, self.rate, noise),
            NormPlace::Pre => Stream::from(&stream.whole + dropout(map.forward(x), self.rate, noise)),
        }
    }
}
