//! One update, whatever the rule.

use tch::Tensor;

/// Gradients, and how they are applied.
#[derive(Clone, Copy)]
pub struct Update<'a> {
    /// Sums of gradients over the batch, one for each piece that the optimizer updates and of its shape. Those of whole tables may be sparse, with
    /// rows in rising order, where [`updates_rows`](super::updates_rows) says so.
    pub grads: &'a [Tensor],
    /// The sums are divided by it: the weight of the batch over the clipping factor.
    pub divisor: f64,
    /// Learning rate.
    pub lr: f64,
    /// Masks the parameters this step updates; `None` updates all.
    pub reached: Option<&'a [bool]>,
}
