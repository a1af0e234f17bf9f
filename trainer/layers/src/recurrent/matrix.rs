//! Matrices of gates: whole, or each gate's a product of two of low rank.

use segue_kernels::{Init, Kernels};
use tch::Tensor;

use super::Map;

/// What the factors of a product of `rank` are drawn from: the product then varies as a matrix does whose sums of `fan_in` terms vary as
/// much as a term.
pub fn factor_law(fan_in: i64, rank: i64) -> Init {
    Init::TruncatedNormal { mean: 0.0, std: ((fan_in * rank) as f64).powf(-0.25) }
}

/// The matrices of several gates, one below the other.
pub enum Matrix {
    /// `[gates · n, in]`.
    Whole(Tensor),
    /// W = L R of each gate by itself, with L of `[n, rank]` and R of `[rank, in]`.
    Factors {
        /// L of all gates, `[gates · n, rank]`.
        left: Tensor,
        /// R of all gates, `[gates · rank, in]`.
        right: Tensor,
    },
}

impl Matrix {
    /// `[gates · n, in]`, with its graph. Factors are multiplied once a segment, which costs less than to go through both at each position.
    pub fn whole(&self) -> Tensor {
        match self {
            Self::Whole(weight) => weight.shallow_clone(),
            Self::Factors { left, right } => {
                let (rank, fan_in) = (left.size()[1], right.size()[1]);
                let products = left.view([-1, left.size()[0] * rank / right.size()[0], rank]);
                products.bmm(&right.view([-1, rank, fan_in])).view([-1, fan_in])
            }
        }
    }

    /// The map of `uses` applications, with this added to each product.
    pub(super) fn map(&self, kernels: Kernels, bias: Option<&Tensor>, uses: usize) -> Map {
        Map::new(kernels, &self.whole(), bias, uses)
    }
}
