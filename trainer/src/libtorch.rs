//! The one place that speaks to libtorch past what `tch` binds: gradient hooks, the fused Adam update,
//! oneDNN's products, functions that know their slope, thread counts, and tensor storage as slices.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::TrainError;

const MESSAGE_BYTES: usize = 1024;

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
    fn segue_take_grad(leaf: *mut CppTensor) -> *mut CppTensor;
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
    fn segue_linear(
        x: *mut CppTensor,
        weight: *mut CppTensor,
        bias: *mut CppTensor,
        y: *mut *mut CppTensor,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_with_slope(
        x: *mut CppTensor,
        y: *mut CppTensor,
        slope: *mut CppTensor,
        result: *mut *mut CppTensor,
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

fn cpp(tensor: &Tensor) -> *mut CppTensor {
    tensor.as_ptr() as *mut CppTensor
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
    let pointers = |tensors: &[Tensor]| tensors.iter().map(cpp).collect::<Vec<_>>();
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

/// Runs a shim call that makes a tensor. Panics with libtorch's message where it refuses, as the operations of `tch`
/// do: shapes that do not fit are an error of ours.
fn made(call: impl FnOnce(*mut *mut CppTensor, *mut c_char, usize) -> bool) -> Tensor {
    let mut result = ptr::null_mut();
    if let Err(error) = checked(|message, capacity| call(&mut result, message, capacity)) {
        panic!("{error}");
    }
    // SAFETY: the call has succeeded and left a tensor of its own that nothing else owns, and `CppTensor` is the type
    // behind tch's pointer.
    unsafe { Tensor::from_ptr(result as *mut _) }
}

/// `x`, `[.., in]`, times `weight`, `[out, in]`, transposed, plus `bias`, `[out]`. In f32 on the CPU with oneDNN's
/// kernels, which are up to a quarter faster than those that `Tensor::linear` takes; derivatives once.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let bias = bias.map_or(ptr::null_mut(), cpp);
    // SAFETY: live tensors, and a null for none; the shim keeps none of the pointers.
    made(|y, message, capacity| unsafe { segue_linear(cpp(x), cpp(weight), bias, y, message, capacity) })
}

/// `y` as a function of `x` whose derivative at each place is `slope`; all of one shape.
pub fn with_slope(x: &Tensor, y: &Tensor, slope: &Tensor) -> Tensor {
    // SAFETY: live tensors; the shim keeps none of the pointers.
    made(|result, message, capacity| unsafe {
        segue_with_slope(cpp(x), cpp(y), cpp(slope), result, message, capacity)
    })
}

/// Whether a tensor's values lie on the CPU in f32, one after another.
pub(crate) fn is_f32_slice(tensor: &Tensor) -> bool {
    tensor.is_contiguous() && tensor.kind() == Kind::Float && tensor.device() == Device::Cpu
}

/// The f32 storage of a contiguous CPU tensor.
///
/// Nobody may write to the tensor while the slice lives.
pub(crate) fn as_f32(tensor: &Tensor) -> &[f32] {
    assert!(is_f32_slice(tensor));
    // SAFETY: contiguous f32 storage on the CPU holds `numel` values from `data_ptr`.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr() as *const f32, tensor.numel()) }
}

/// The f32 storage of a contiguous CPU tensor.
///
/// The caller must be the only one to touch the tensor while the slice lives.
pub(crate) fn as_f32_mut(tensor: &mut Tensor) -> &mut [f32] {
    assert!(is_f32_slice(tensor));
    let pointer = tensor.data_ptr() as *mut f32;
    // SAFETY: contiguous f32 storage on the CPU holds `numel` values from `data_ptr`, and the exclusive
    // borrow keeps this handle from being used meanwhile.
    unsafe { std::slice::from_raw_parts_mut(pointer, tensor.numel()) }
}

/// Blocks up to this size are taken from the heap and kept there when freed, instead of being mapped,
/// zeroed page by page and unmapped again at each use.
const KEPT_BLOCK_BYTES: libc::c_int = 1 << 30;

/// Makes the C allocator keep the memory of tensors for the next step. On a step of 2 × 8 lanes of 128
/// tokens, width 256, it saves 5 %.
pub fn keep_freed_memory() {
    // SAFETY: plain settings of the C library; a value it refuses leaves it as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, KEPT_BLOCK_BYTES / 4);
    }
}

/// Fixes libtorch's threads for the life of the process. Sums split over threads round differently, so
/// this number is part of a run's identity.
pub fn set_threads(threads: usize) {
    static INTEROP: std::sync::Once = std::sync::Once::new();
    tch::set_num_threads(threads as i32);
    // libtorch refuses a second call.
    INTEROP.call_once(|| tch::set_num_interop_threads(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Product and gradients of `f` for a loss that weighs every value differently; `weight` is what it sees of the second
    /// input.
    fn product_and_gradients(
        inputs: &[Tensor],
        weight: impl Fn(&Tensor) -> Tensor,
        f: impl Fn(&Tensor, &Tensor, Option<&Tensor>) -> Tensor,
    ) -> Vec<Tensor> {
        let leaves: Vec<Tensor> = inputs.iter().map(|t| t.detach().copy().set_requires_grad(true)).collect();
        let y = f(&leaves[0], &weight(&leaves[1]), leaves.get(2));
        let scale = Tensor::linspace(0.1, 2.0, y.numel() as i64, (y.kind(), Device::Cpu)).view_as(&y);
        (&y * scale).sum(None::<Kind>).backward();
        std::iter::once(y.detach()).chain(leaves.iter().map(Tensor::grad)).collect()
    }

    #[test]
    fn linear_is_the_product_of_libtorch_with_its_gradients() {
        // A weight as XLNet stores it, `[in, out]`, and one that is a part of each row, as heads that read two states have it.
        let transposed: fn(&Tensor) -> Tensor = Tensor::tr;
        let part: fn(&Tensor) -> Tensor = |w| w.view([17, 48]).narrow(1, 24, 24);
        for (kind, limit) in [(Kind::Float, 1e-5), (Kind::Double, 0.0)] {
            let wave = |shape: &[i64], speed: f64| {
                let numel = shape.iter().product::<i64>();
                (Tensor::arange(numel, (kind, Device::Cpu)) * speed).sin().view(shape)
            };
            let (x, bias) = (wave(&[3, 37, 24], 0.7), wave(&[17], 0.9));
            for (stored, weight) in [([24, 17], transposed), ([34, 24], part)] {
                for biased in [false, true] {
                    let mut inputs = vec![x.copy(), wave(&stored, 1.3), bias.copy()];
                    inputs.truncate(if biased { 3 } else { 2 });
                    let ours = product_and_gradients(&inputs, weight, linear);
                    let theirs = product_and_gradients(&inputs, weight, |x, w, b| x.linear(w, b));
                    for (ours, theirs) in ours.iter().zip(&theirs) {
                        assert_eq!((ours.size(), ours.kind()), (theirs.size(), kind));
                        let error = (ours - theirs).abs().max() / theirs.abs().max();
                        assert!(error.double_value(&[]) <= limit, "{kind:?}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_what_wants_a_gradient_gets_one() {
        let (x, weight) = (
            Tensor::ones([4, 3], (Kind::Float, Device::Cpu)),
            Tensor::ones([2, 3], (Kind::Float, Device::Cpu)),
        );
        let weight = weight.set_requires_grad(true);
        linear(&x, &weight, None).sum(None::<Kind>).backward();
        assert_eq!(weight.grad(), Tensor::full([2, 3], 4.0, (Kind::Float, Device::Cpu)));
        assert!(!x.grad().defined());
        assert!(!tch::no_grad(|| linear(&x, &weight, None)).requires_grad());
    }

    #[test]
    #[should_panic(expected = "libtorch")]
    fn shapes_that_do_not_fit_are_told() {
        let x = Tensor::ones([4, 3], (Kind::Double, Device::Cpu));
        let _ = linear(&x, &x, Some(&x.tr()));
    }
}
