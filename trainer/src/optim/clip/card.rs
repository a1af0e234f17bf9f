//! Norms of gradients by kernels for cards: two for all of them.

use tch::{Kind, Tensor};

use crate::cards::{Source, THREADS, Table, params};

pub static NORMS: Source = Source::new("optim/norms", include_str!("../norms.cu"));

/// Norm of each gradient, in f32; `None` where there are no kernels for them. `first` is one of them.
pub(super) fn norms(first: &Tensor, grads: &[Tensor]) -> Option<Tensor> {
    let (kernels, device) = (NORMS.kernels(first)?, first.device());
    let mut table = Table::default();
    for grad in grads {
        if grad.kind() != Kind::Float || grad.device() != device || !grad.is_contiguous() {
            return None;
        }
        table.push(&[grad], &[]);
    }
    let (rows, chunks, float) = (table.rows(), table.chunks(), (Kind::Float, device));
    let (squares, norms) = (Tensor::empty([chunks], float), Tensor::empty([i64::from(rows)], float));
    let table = table.put(device);
    let [of_table, of_squares, of_norms] = [&table, &squares, &norms].map(Tensor::data_ptr);
    // SAFETY: rows are `GradientRow`s, of f32 values as was looked at; a square for each chunk and a norm for each row, which are ours.
    unsafe {
        kernels.launch("gradient_squares", [chunks, 1], THREADS, params![of_table, rows, of_squares]);
        kernels.launch("gradient_norms", [rows.into(), 1], THREADS, params![of_table, of_squares, of_norms]);
    }
    Some(norms)
}
