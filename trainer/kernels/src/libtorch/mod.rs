//! The one place that speaks to libtorch past what `tch` binds: gradient hooks, the fused Adam update,
//! matrix products by several routines, functions with gradients of our own, parts of graphs, thread counts, and tensor storage as slices.

mod autocast;
pub mod device;
mod finite;
mod function;
mod graph;
mod heap;
mod limit;
mod mkl;
mod outer;
mod places;
mod pointwise;
mod product;
mod repeated;
mod short;
mod small_product;
pub mod speed;
pub mod stream;
mod strips;
mod tiles;

use std::borrow::Borrow;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::{TrainError, threads};

pub use autocast::{Autocast, precise, widened};
pub use finite::is_finite;
pub use function::{Called, KERNEL_ADVICE, assert_differentiable_once, function, functions};
pub use graph::{Since, gradients, identity, leaves};
pub use heap::{keep_freed_memory, place_tensors};
pub use mkl::available as mkl_is_used;
pub use outer::{available as outer_is_available, outer_product};
pub use places::{Rows, Shared};
pub use pointwise::{Pointwise, pointwise};
pub use product::{RIGHT_COLUMNS, linear, plain_linear, transposed_product, turned_product};
pub use repeated::Repeated;
pub use short::{short_kind, short_linear, short_weight_gradient};
pub use small_product::small_product;
pub use strips::Strips;
pub use tiles::available as tiles_are_available;
pub use tiles::{DEPTH as DEPTH_OF_TILES, Packed, Panels, Side, Start, suit as suit_tiles};

const MESSAGE_BYTES: usize = 1024;

/// The library's version and the instructions that its own kernels use on this processor.
pub fn library() -> String {
    text(|text, capacity| {
        // SAFETY: writes a text that ends with 0 into as many bytes as it is given.
        unsafe { segue_library(text, capacity) }
    })
}

/// A text that the shim writes, cut to its room.
fn text(write: impl FnOnce(*mut c_char, usize)) -> String {
    let mut text = [0 as c_char; MESSAGE_BYTES];
    write(text.as_mut_ptr(), text.len());
    text[MESSAGE_BYTES - 1] = 0;
    // SAFETY: ends with a zero byte, the last one at the latest.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    text.to_string_lossy().into_owned()
}

/// `at::Tensor` of the C++ side.
#[repr(C)]
struct CppTensor {
    _opaque: [u8; 0],
}

type Callback = extern "C" fn(*mut c_void, usize);

unsafe extern "C" {
    fn segue_on_grad_ready(
        leaf: *mut CppTensor,
        callback: Callback,
        context: *mut c_void,
        parameter: usize,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_remove_grad_hook(leaf: *mut CppTensor);
    fn segue_library(text: *mut c_char, capacity: usize);
    fn segue_take_grad(leaf: *mut CppTensor) -> *mut CppTensor;
    fn segue_is_alone(tensor: *mut CppTensor) -> bool;
    fn segue_put_each(
        count: usize,
        targets: *const *mut CppTensor,
        values: *const *mut CppTensor,
        how: i32,
        share: f64,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_backward_into(
        scalar: *mut CppTensor,
        leaves: *const *mut CppTensor,
        count: usize,
        keep_graph: bool,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_adam(
        count: usize,
        weights: *const *mut CppTensor,
        grads: *const *mut CppTensor,
        means: *const *mut CppTensor,
        squares: *const *mut CppTensor,
        steps: *const *mut CppTensor,
        grad_divisor: *mut CppTensor,
        lr: f64,
        beta1: f64,
        beta2: f64,
        weight_decay: f64,
        eps: f64,
        decoupled: bool,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_sgd(
        count: usize,
        weights: *const *mut CppTensor,
        grads: *const *mut CppTensor,
        grad_divisor: *mut CppTensor,
        lr: f64,
        weight_decay: f64,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
}

/// Runs a shim call and turns the message it leaves into an error.
fn checked(call: impl FnOnce(*mut c_char, usize) -> bool) -> Result<(), TrainError> {
    let mut message = [0 as c_char; MESSAGE_BYTES];
    if call(message.as_mut_ptr(), MESSAGE_BYTES) {
        return Ok(());
    }
    // SAFETY: the shim ends the message with a zero byte inside the buffer.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) };
    Err(TrainError::Libtorch(text.to_string_lossy().into_owned()))
}

/// Writes a message for the shim, cut to its `capacity` and ended by a zero byte.
///
/// # Safety
///
/// `capacity` bytes, at least one, may be written from `message` on.
unsafe fn leave_message(text: &str, message: *mut c_char, capacity: usize) {
    let length = text.len().min(capacity - 1);
    // SAFETY: the caller's.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), message as *mut u8, length);
        *message.add(length) = 0;
    }
}

fn cpp(tensor: &Tensor) -> *mut CppTensor {
    tensor.as_ptr() as *mut CppTensor
}

fn pointers(tensors: &[impl Borrow<Tensor>]) -> Vec<*mut CppTensor> {
    tensors.iter().map(|tensor| cpp(tensor.borrow())).collect()
}

/// What is called with a parameter's index when its gradient is complete.
pub trait GradReady: Send + Sync {
    /// Runs on the backward thread. `parameter` is the index given to [`GradHooks::install`].
    fn ready(&self, parameter: usize);
}

/// Hooks on leaf tensors; removed when dropped.
pub struct GradHooks<T: GradReady + 'static> {
    leaves: Vec<Tensor>,
    target: Arc<T>,
}

impl<T: GradReady + 'static> GradHooks<T> {
    /// Calls `target.ready(i)` each time the gradient of `leaves[i]` has been accumulated.
    pub fn install(leaves: &[&Tensor], target: Arc<T>) -> Result<Self, TrainError> {
        let hooks = Self { leaves: leaves.iter().map(|t| t.shallow_clone()).collect(), target };
        let context = Arc::as_ptr(&hooks.target) as *mut c_void;
        for (parameter, leaf) in hooks.leaves.iter().enumerate() {
            // SAFETY: `context` stays valid while the hook is set: `hooks` owns the Arc, and removes the
            // hooks before it lets go of it.
            checked(|message, capacity| unsafe {
                segue_on_grad_ready(cpp(leaf), call_ready::<T>, context, parameter, message, capacity)
            })?;
        }
        Ok(hooks)
    }
}

/// A panic inside aborts the process, as in any `extern "C"` function: nothing unwinds through C++.
extern "C" fn call_ready<T: GradReady>(context: *mut c_void, parameter: usize) {
    // SAFETY: set by `GradHooks::install` to a live `T`, which is Sync.
    let target = unsafe { &*(context as *const T) };
    target.ready(parameter);
}

impl<T: GradReady> Drop for GradHooks<T> {
    fn drop(&mut self) {
        for leaf in &self.leaves {
            // SAFETY: `leaf` is a live tensor; the call only clears its hook.
            unsafe { segue_remove_grad_hook(cpp(leaf)) };
        }
    }
}

/// Moves the gradient out of a leaf; `None` where backward has left none.
pub fn take_grad(leaf: &Tensor) -> Option<Tensor> {
    // SAFETY: `leaf` is a live tensor. The returned pointer, where not null, is a tensor of its own
    // that nothing else owns, and `CppTensor` is the type behind tch's pointer.
    unsafe {
        let grad = segue_take_grad(cpp(leaf));
        (!grad.is_null()).then(|| Tensor::from_ptr(grad as *mut _))
    }
}

/// Whether nobody else holds a tensor's memory, and it holds nothing else.
pub fn is_alone(tensor: &Tensor) -> bool {
    // SAFETY: a live tensor, which the call only looks at.
    unsafe { segue_is_alone(cpp(tensor)) }
}

/// What becomes of a tensor that values are put onto.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Onto {
    /// It holds the values.
    Overwrite,
    /// It holds its sums with them.
    Add,
    /// It is nearer to them by this part of the way.
    Towards(f64),
}

/// Puts each of `values` onto the target of the same place and shape, without a graph. On a card a few kernels do it for all.
pub fn put_each(onto: Onto, targets: &[Tensor], values: &[Tensor]) -> Result<(), TrainError> {
    assert_eq!(targets.len(), values.len());
    if targets.is_empty() {
        return Ok(());
    }
    let (count, to, from) = (targets.len(), pointers(targets), pointers(values));
    let (how, share) = match onto {
        Onto::Overwrite => (0, 0.0),
        Onto::Add => (1, 0.0),
        Onto::Towards(share) => (2, share),
    };
    // SAFETY: two arrays of `count` live tensors each; the shim keeps none of the pointers.
    checked(|message, capacity| unsafe {
        segue_put_each(count, to.as_ptr(), from.as_ptr(), how, share, message, capacity)
    })
}

/// Backward from the scalar `objective` into the gradients of `leaves` alone: other leaves that it depends on get
/// none. With `keep_graph`, another backward over the same graph may follow.
pub fn backward_into(objective: &Tensor, leaves: &[Tensor], keep_graph: bool) -> Result<(), TrainError> {
    let pointers = pointers(leaves);
    // SAFETY: live tensors; the shim keeps none of the pointers.
    checked(|message, capacity| unsafe {
        segue_backward_into(cpp(objective), pointers.as_ptr(), pointers.len(), keep_graph, message, capacity)
    })
}

/// Constants of one Adam update.
#[derive(Debug, Clone, Copy)]
pub struct AdamStep {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squares.
    pub beta2: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Added to the root of the mean of squares.
    pub eps: f64,
    /// AdamW instead of Adam.
    pub decoupled: bool,
}

/// One fused update of all `weights`, in place. Gradients are divided by `grad_divisor` (f32 scalar)
/// first; `steps[i]` (f32 scalar) holds the number of the update, from 1.
pub fn adam(
    weights: &[Tensor],
    grads: &[Tensor],
    means: &[Tensor],
    squares: &[Tensor],
    steps: &[Tensor],
    grad_divisor: &Tensor,
    step: AdamStep,
) -> Result<(), TrainError> {
    let count = weights.len();
    assert!([grads.len(), means.len(), squares.len(), steps.len()].iter().all(|n| *n == count));
    let (w, g, m, v, s) =
        (pointers(weights), pointers(grads), pointers(means), pointers(squares), pointers(steps));
    // SAFETY: five arrays of `count` live tensors each; the shim keeps none of the pointers.
    checked(|message, capacity| unsafe {
        segue_adam(
            count,
            w.as_ptr(),
            g.as_ptr(),
            m.as_ptr(),
            v.as_ptr(),
            s.as_ptr(),
            cpp(grad_divisor),
            step.lr,
            step.beta1,
            step.beta2,
            step.weight_decay,
            step.eps,
            step.decoupled,
            message,
            capacity,
        )
    })
}

/// The values that a tensor stores: all of them, or of a sparse one those that it lists.
pub fn stored_values(tensor: &Tensor) -> Tensor {
    if tensor.is_sparse() { tensor.internal_values() } else { tensor.shallow_clone() }
}

/// One fused step of all `weights` in place, against `grads` and `weight_decay` times the weights. Gradients are divided by `grad_divisor`
/// (f32 scalar) first, if any, which changes them.
pub fn sgd(
    weights: &[Tensor],
    grads: &[Tensor],
    grad_divisor: Option<&Tensor>,
    lr: f64,
    weight_decay: f64,
) -> Result<(), TrainError> {
    assert_eq!(weights.len(), grads.len());
    let (w, g) = (pointers(weights), pointers(grads));
    let divisor = grad_divisor.map_or(std::ptr::null_mut(), cpp);
    // SAFETY: two arrays of as many live tensors each, and one that lives or is null; the shim keeps none of the pointers.
    checked(|message, capacity| unsafe {
        segue_sgd(weights.len(), w.as_ptr(), g.as_ptr(), divisor, lr, weight_decay, message, capacity)
    })
}

/// Whether a tensor's values lie on the CPU in f32, one after another.
pub fn is_f32_slice(tensor: &Tensor) -> bool {
    tensor.is_contiguous() && tensor.kind() == Kind::Float && tensor.device() == Device::Cpu
}

/// The f32 storage of a contiguous CPU tensor.
///
/// # Safety
///
/// Nobody may write to the storage while the slice lives: neither through this handle nor through another, for a tensor's
/// clones, views and detached handles share it, and a borrow of one says nothing of the others.
pub unsafe fn as_f32(tensor: &Tensor) -> &[f32] {
    assert!(is_f32_slice(tensor));
    if tensor.numel() == 0 {
        return &[]; // its pointer may be null
    }
    // SAFETY: contiguous f32 storage on the CPU holds `numel` values from `data_ptr`; that it stays as it is, is the
    // caller's.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr() as *const f32, tensor.numel()) }
}

/// The f32 storage of a contiguous CPU tensor.
///
/// The caller must be the only one to touch the tensor while the slice lives.
pub fn as_f32_mut(tensor: &mut Tensor) -> &mut [f32] {
    assert!(is_f32_slice(tensor));
    if tensor.numel() == 0 {
        return &mut [];
    }
    let pointer = tensor.data_ptr() as *mut f32;
    // SAFETY: contiguous f32 storage on the CPU holds `numel` values from `data_ptr`, and the exclusive
    // borrow keeps this handle from being used meanwhile.
    unsafe { std::slice::from_raw_parts_mut(pointer, tensor.numel()) }
}

/// The threads that libtorch computes with. Sums split over threads round differently, so this number is part of a run's identity.
pub fn set_threads(threads: usize) {
    tch::set_num_threads(threads as i32);
    threads::set_count(threads);
}

/// The same for the life of the process, and where its tensors lie; for every command, before it computes. Not where other threads may compute meanwhile, as tests
/// do: what oneDNN has borrowed from one allocator it would give back to the other.
pub fn start(threads: usize) {
    static FIRST: std::sync::Once = std::sync::Once::new();
    set_threads(threads);
    FIRST.call_once(|| {
        heap::place_tensors();
        // libtorch refuses a second call.
        tch::set_num_interop_threads(1);
    });
}
