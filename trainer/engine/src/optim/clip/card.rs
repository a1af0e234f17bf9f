//! Norms of gradients by a kernel for cards: one start for all of them.

use segue_kernels::cards::{Source, THREADS, Table, params};
use tch::{Kind, Tensor};

/// Squares of gradients and their sums on cards.
pub static NORMS: Source = Source::new("optim/norms", include_str!("../norms.cu"));

/// Norms of the chunks of all gradients, in f32; `None` where there are no kernels for them. `first` is one of the gradients.
pub(super) fn norms(first: &Tensor, grads: &[Tensor]) -> Option<Tensor> {
    let (kernels, device) = (NORMS.kernels(first)?, first.device());
    let mut table = Table::default();
    for grad in grads {
        if grad.kind() != Kind::Float || grad.device() != device || !grad.is_contiguous() {
            return None;
        }
        table.push(&[grad], &[]);
    }
    let (rows, chunks) = (table.rows(), table.chunks());
    if chunks == 0 {
        return None;
    }
    let norms = Tensor::empty([chunks], (Kind::Float, device));
    let table = table.put(device);
    let [of_table, of_norms] = [&table, &norms].map(Tensor::data_ptr);
    // SAFETY: rows are `GradientRow`s, of f32 values as was looked at; a norm for each chunk, which are ours.
    unsafe { kernels.launch("gradient_norms", [chunks, 1], THREADS, params![of_table, rows, of_norms]) };
    Some(norms)
}
