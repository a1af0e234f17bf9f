//! A part of autograd's graph by itself: the leaves that it depends on, and its gradients.

use std::ffi::{c_char, c_void};
use std::ptr;

use tch::Tensor;

use super::{CppTensor, checked, cpp, pointers};
use crate::TrainError;

unsafe extern "C" {
    fn segue_next_node() -> u64;
    fn segue_identity(tensor: *mut CppTensor) -> usize;
    fn segue_leaves(
        ys: *const *mut CppTensor,
        count: usize,
        since: u64,
        found: extern "C" fn(*mut c_void, *mut CppTensor),
        context: *mut c_void,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_gradients(
        ys: *const *mut CppTensor,
        of_ys: *const *mut CppTensor,
        y_count: usize,
        inputs: *const *mut CppTensor,
        count: usize,
        grads: *mut *mut CppTensor,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
}

/// The place in this thread's graphs that what is computed next begins at.
#[derive(Debug, Clone, Copy)]
pub struct Since(u64);

impl Since {
    /// From here on.
    pub fn now() -> Self {
        // SAFETY: reads a number of this thread.
        Self(unsafe { segue_next_node() })
    }
}

/// What tells tensors apart that are the same to autograd: equal for a tensor and its shallow clones while one of them lives.
pub fn identity(tensor: &Tensor) -> usize {
    // SAFETY: a live tensor.
    unsafe { segue_identity(cpp(tensor)) }
}

/// The leaves that want gradients and that `ys` depend on, each once, in an order that depends on the graph alone.
///
/// # Errors
///
/// Where `ys` depend on something that was computed before `since`.
pub fn leaves(ys: &[Tensor], since: Since) -> Result<Vec<Tensor>, TrainError> {
    let ys = pointers(ys);
    let mut leaves: Vec<Tensor> = Vec::new();
    let context = &raw mut leaves as *mut c_void;
    // SAFETY: live tensors; `collect` is called while this waits, with the context that it knows the type of.
    checked(|message, capacity| unsafe {
        segue_leaves(ys.as_ptr(), ys.len(), since.0, collect, context, message, capacity)
    })?;
    Ok(leaves)
}

extern "C" fn collect(leaves: *mut c_void, leaf: *mut CppTensor) {
    // SAFETY: the list that `leaves` passes on, and a tensor that is given away.
    unsafe { (*(leaves as *mut Vec<Tensor>)).push(Tensor::from_ptr(leaf as *mut _)) };
}

/// Gradients of `inputs` from those of some values, `(y, gradient of y)` each; none for those that no value depends on. The graph of the
/// values is used up. Leaves keep their `grad`, and no hook is called.
pub fn gradients(
    of_ys: &[(&Tensor, &Tensor)],
    inputs: &[&Tensor],
) -> Result<Vec<Option<Tensor>>, TrainError> {
    let ys: Vec<_> = of_ys.iter().map(|(y, _)| cpp(y)).collect();
    let grads: Vec<_> = of_ys.iter().map(|(_, grad)| cpp(grad)).collect();
    let inputs = pointers(inputs);
    let mut found = vec![ptr::null_mut(); inputs.len()];
    // SAFETY: live tensors, and room for one pointer for each input.
    checked(|message, capacity| unsafe {
        segue_gradients(
            ys.as_ptr(),
            grads.as_ptr(),
            ys.len(),
            inputs.as_ptr(),
            inputs.len(),
            found.as_mut_ptr(),
            message,
            capacity,
        )
    })?;
    // SAFETY: the call has left tensors there that nobody else owns, and null for none.
    let owned = |grad: *mut CppTensor| (!grad.is_null()).then(|| unsafe { Tensor::from_ptr(grad as *mut _) });
    Ok(found.into_iter().map(owned).collect())
}
