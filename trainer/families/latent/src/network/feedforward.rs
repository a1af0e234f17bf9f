//! Layers without recurrence: those of symbols by themselves (Melis 2023, §5.7.1).

use segue_kernels::{Kernels, ParameterSpec, Parameters};
use tch::Tensor;

/// tanh(W x + b), one after the other.
pub struct Feedforward {
    layers: Vec<[Tensor; 2]>,
    kernels: Kernels,
}

impl Feedforward {
    /// Parameters of layers of these widths, the first that of what is read.
    pub fn specs(name: &str, widths: &[i64]) -> Vec<ParameterSpec> {
        let pairs = widths.windows(2).enumerate();
        pairs.flat_map(|(n, pair)| super::affine(&format!("{name}.{n}"), [pair[1], pair[0]])).collect()
    }

    /// Over those parameters of the name that there are.
    pub fn new(name: &str, parameters: &Parameters) -> Self {
        let of = |n: usize, part: &str| parameters.find(&format!("{name}.{n}.{part}"));
        let layer = |n: usize| Some([of(n, "weight")?, of(n, "bias")?]);
        Self { layers: (0..).map_while(layer).collect(), kernels: parameters.kernels() }
    }

    /// `[…, widths[0]]` to `[…, last width]`.
    pub fn forward(&self, x: Tensor) -> Tensor {
        let layers = self.layers.iter();
        layers.fold(x, |x, [weight, bias]| self.kernels.linear(&x, weight, Some(bias)).tanh())
    }
}
