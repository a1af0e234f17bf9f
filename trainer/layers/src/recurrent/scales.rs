//! Vectors that scale a cell's input and state alike at every position.

use segue_kernels::{Init, ParameterSpec, Parameters};
use tch::Tensor;

use crate::norm::NORM_MEAN;

/// x → s^x ⊙ x and h' → s^h ⊙ h' before each step: what a mogrifier does with gates, without a look at the data (Melis 2023, §2.3.4). Both start
/// at 1, where they change nothing.
pub struct Scales {
    /// s^x: `[m]`.
    pub input: Tensor,
    /// s^h: `[n]`.
    pub state: Tensor,
}

impl Scales {
    /// Their parameters below `prefix`, of an input of width `m` and a state of width `n`.
    pub fn specs(prefix: &str, m: i64, n: i64) -> [ParameterSpec; 2] {
        [("scale_x", m), ("scale_h", n)].map(|(name, width)| ParameterSpec {
            name: format!("{prefix}{name}"),
            shape: vec![width],
            init: Init::Normal { mean: NORM_MEAN, std: 0.0 },
        })
    }

    /// The vectors over them; `None` where there are none.
    pub fn build(prefix: &str, parameters: &Parameters) -> Option<Self> {
        let find = |name: &str| parameters.find(&format!("{prefix}{name}"));
        Some(Self { input: find("scale_x")?, state: find("scale_h")? })
    }
}
