//! How a run is trained, as far as it changes what it costs.

use segue_configs::Shard;

/// What products round their factors to. Weights, moments and sums of gradients stay in single precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    F32,
    /// TF32: single precision's range, 10 bits of mantissa. Values in memory are single precision's.
    Tf32,
    /// 16 bits, 8 of them exponent.
    Bf16,
    /// 16 bits, 5 of them exponent.
    Fp16,
}

/// How a run is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choices {
    /// Precision of its products.
    pub precision: Precision,
    /// What ranks share out.
    pub shard: Shard,
    /// Whether backward computes the activations of each layer again.
    pub recompute: bool,
    /// Bytes of a value of a gradient where ranks add them up.
    pub gradient_bytes: f64,
    /// Bytes of a value that goes through memory for forward and backward, on average.
    pub value_bytes: f64,
    /// Times that four bytes a parameter are read or written in an update.
    pub update_passes: f64,
}

impl Choices {
    /// Training in this precision, as the engine does it: sums of gradients in single precision, and an update that reads weight, gradient
    /// and two moments, writes all but the gradient, and reads the gradient once more for its norm.
    pub fn of(precision: Precision) -> Self {
        // In 16 bits that is half of the values: products read and write 16 bits, norms, softmaxes and the residual stream 32.
        let value_bytes = if precision.is_half() { 3.0 } else { 4.0 };
        Self {
            precision,
            shard: Shard::None,
            recompute: false,
            gradient_bytes: 4.0,
            value_bytes,
            update_passes: 8.0,
        }
    }
}

impl Default for Choices {
    fn default() -> Self {
        Self::of(Precision::F32)
    }
}

impl Precision {
    /// Every precision, by its name.
    pub const NAMES: [(&'static str, Self); 4] =
        [("f32", Self::F32), ("tf32", Self::Tf32), ("bf16", Self::Bf16), ("fp16", Self::Fp16)];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// Whether products read 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, Self::Bf16 | Self::Fp16)
    }
}
