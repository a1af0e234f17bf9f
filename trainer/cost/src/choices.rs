//! How a run is trained, as far as it changes what it costs.

use segue_configs::{Products, Shard};

/// How a run is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choices {
    /// How its products are made.
    pub products: Products,
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
    /// Whether attention on cards goes in one pass over the keys, without its matrices in memory.
    pub one_pass: bool,
}

impl Choices {
    /// Training with these products, as the engine does it: sums of gradients in single precision, an update that reads weight, gradient
    /// and two moments, writes all but the gradient, and reads the gradient once more for its norm, and attention in one pass in 16 bits.
    pub fn of(products: Products) -> Self {
        // In 16 bits that is half of the values: products read and write 16 bits, norms, softmaxes and the residual stream 32.
        let value_bytes = if products.is_half() { 3.0 } else { 4.0 };
        Self {
            products,
            shard: Shard::None,
            recompute: false,
            gradient_bytes: 4.0,
            value_bytes,
            update_passes: 8.0,
            one_pass: products.is_half(),
        }
    }
}

impl Default for Choices {
    fn default() -> Self {
        Self::of(Products::F32)
    }
}
