use tch::{Device, Tensor};

use crate::cards::substitute;
use crate::libtorch::{Autocast, is_f32_slice, linear, short_kind, short_linear};

/// How layers compute linear maps, activations, norms of sums and attention.
///
/// [`Parameters::with_kernels`](crate::Parameters::with_kernels) chooses for all layers built over them. Two models
/// over the same parameters may differ in it: one for the steps that differentiate once, one for those that
/// differentiate a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kernels {
    /// Segue's own where they are made for: f32 on the CPU without casts, and on cards where they compile. libtorch's elsewhere.
    /// Faster, and differentiable once: the derivative of a gradient that has passed one of them is an error.
    #[default]
    Fused,
    /// libtorch's operations alone: differentiable any number of times. Without dropout, values are those of
    /// [`Kernels::Fused`] up to rounding; so they are with it, but for attention without relative positions.
    Plain,
}

impl Kernels {
    /// Whether `x` is to be worked on by a kernel of Segue's own.
    pub fn fuse(self, x: &Tensor) -> bool {
        self == Self::Fused && is_f32_slice(x) && !Autocast::is_on_cpu()
    }

    /// Whether attention where `x` lies goes chunk by chunk.
    pub fn chunk(self, x: &Tensor) -> bool {
        self == Self::Fused && (x.device() != Device::Cpu || substitute::is_on())
    }

    /// `x`, `[.., in]`, times `weight`, `[out, in]`, transposed, plus `bias`, `[out]`: `[.., out]`.
    pub fn linear(self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        match self {
            Self::Fused if !Autocast::is_on_cpu() => match short_kind(x) {
                Some(kind) => short_linear(x, weight, bias, kind),
                None => linear(x, weight, bias),
            },
            Self::Fused | Self::Plain => x.linear(weight, bias),
        }
    }
}
