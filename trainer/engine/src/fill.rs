//! Saved values in the place of live ones.

use tch::Tensor;

/// Copies saved values into live tensors.
pub fn fill<'a>(pairs: impl IntoIterator<Item = (&'a Tensor, Tensor)>) {
    tch::no_grad(|| pairs.into_iter().for_each(|(live, saved)| live.shallow_clone().copy_(&saved)));
}
