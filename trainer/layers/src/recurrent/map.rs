//! Linear maps of cells and gates.

use segue_kernels::Kernels;
use segue_kernels::libtorch::{Repeated, widened};
use tch::Tensor;

/// Applications from which on laying a weight out costs less than it saves.
const WORTHWHILE: usize = 4;

/// `x`, `[.., in]`, times `weight`, `[out, in]`, transposed, plus `bias`, `[out]`: gates and states stay in single precision where products
/// are of 16 bits.
pub(super) fn product(kernels: Kernels, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    widened(&kernels.linear(x, weight, bias))
}

/// How often a segment applies a cell's maps.
#[derive(Debug, Clone, Copy)]
pub struct Uses {
    /// Those of the input: 0 where all positions are read at once.
    pub reads: usize,
    /// Those of the state: once a position.
    pub steps: usize,
}

impl Uses {
    /// The map of an input, where inputs are read one by one.
    pub(super) fn reads(self, kernels: Kernels, weight: &Tensor, bias: Option<&Tensor>) -> Option<Map> {
        (self.reads > 0).then(|| Map::new(kernels, weight, bias, self.reads))
    }
}

/// What an input gives to gates; it is that already where all positions were read at once.
pub(super) fn read(map: &Option<Map>, input: &Tensor) -> Tensor {
    map.as_ref().map_or_else(|| input.shallow_clone(), |map| map.apply(input, None))
}

/// x Wᵀ + b, as a segment applies it at each position.
pub(super) enum Map {
    /// Laid out for many products.
    Repeated(Repeated),
    /// By one product after another.
    Single {
        kernels: Kernels,
        /// `[out, in]`
        weight: Tensor,
        /// `[out]`
        bias: Option<Tensor>,
    },
}

impl Map {
    /// The map by `weight`, `[out, in]`, and `bias`, `[out]`, to be applied `uses` times.
    pub fn new(kernels: Kernels, weight: &Tensor, bias: Option<&Tensor>, uses: usize) -> Self {
        if uses >= WORTHWHILE && kernels.fuse(weight) {
            return Self::Repeated(Repeated::new(weight, bias));
        }
        Self::Single { kernels, weight: weight.shallow_clone(), bias: bias.map(Tensor::shallow_clone) }
    }

    /// The map of `x`, `[lanes, in]`, plus `add`, `[lanes, out]`.
    pub fn apply(&self, x: &Tensor, add: Option<&Tensor>) -> Tensor {
        match self {
            Self::Repeated(repeated) => repeated.apply(x, add),
            Self::Single { kernels, weight, bias } => {
                let y = product(*kernels, x, weight, bias.as_ref());
                add.map_or_else(|| y.shallow_clone(), |add| add + &y)
            }
        }
    }
}
