//! What products round their factors to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ByPrecision;

/// What the products of a forward and a backward pass are computed in. Weights, moments and sums of gradients are in single precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// 16 bits, 8 of them exponent: single precision's range.
    Bf16,
    /// 16 bits, 5 of them exponent: gradients need a loss scale.
    Fp16,
}

/// How products are made: `train.precision`, and for those in single precision `train.tf32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Products {
    /// What they are computed in.
    pub precision: Precision,
    /// Whether factors in single precision are rounded to TF32 first.
    pub tf32: bool,
}

impl Products {
    /// Single precision.
    pub const F32: Self = Self::of(Precision::F32);
    /// Single precision with factors of 10 bits of mantissa.
    pub const TF32: Self = Self { precision: Precision::F32, tf32: true };
    /// bfloat16.
    pub const BF16: Self = Self::of(Precision::Bf16);
    /// IEEE 754's half precision.
    pub const FP16: Self = Self::of(Precision::Fp16);
    /// All there are.
    pub const ALL: [Self; 4] = [Self::F32, Self::TF32, Self::BF16, Self::FP16];

    const fn of(precision: Precision) -> Self {
        Self { precision, tf32: false }
    }

    /// The name of the figure that [`ByPrecision`] has of them.
    pub fn name(self) -> &'static str {
        match (self.precision, self.tf32) {
            (Precision::F32, false) => "f32",
            (Precision::F32, true) => "tf32",
            (Precision::Bf16, _) => "bf16",
            (Precision::Fp16, _) => "fp16",
        }
    }

    /// Those of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|products| products.name() == name)
    }

    /// Whether they read 16 bits.
    pub fn is_half(self) -> bool {
        self.precision != Precision::F32
    }
}

impl ByPrecision {
    /// The figure for these products, where the machine has any.
    pub fn of(&self, products: Products) -> Option<f64> {
        match (products.precision, products.tf32) {
            (Precision::F32, false) => Some(self.f32),
            (Precision::F32, true) => self.tf32,
            (Precision::Bf16, _) => self.bf16,
            (Precision::Fp16, _) => self.fp16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MODELS;

    #[test]
    fn products_have_the_names_of_the_figures_of_machines() {
        assert_eq!(Products::ALL.map(Products::name), ["f32", "tf32", "bf16", "fp16"]);
        let figures = ByPrecision { f32: 1.0, tf32: Some(2.0), bf16: Some(3.0), fp16: None };
        assert_eq!(Products::ALL.map(|of| figures.of(of)), [Some(1.0), Some(2.0), Some(3.0), None]);
        assert_eq!(Products::named("tf32"), Some(Products::TF32));
        assert_eq!(Products::named("fp8"), None);
        let keys = ["train.precision=bf16", "train.tf32=true"].map(String::from);
        let config = MODELS.load(None, &keys).unwrap().config;
        assert_eq!(config.train.products().name(), "bf16");
    }
}
