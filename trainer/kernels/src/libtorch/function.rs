//! Functions of tensors with hand-written gradients.

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use tch::Tensor;

use super::{CppTensor, checked, cpp, leave_message, pointers};

type Backward = unsafe extern "C" fn(
    *mut c_void,
    *const *mut CppTensor,
    usize,
    *mut *mut CppTensor,
    usize,
    *mut c_char,
    usize,
) -> bool;

unsafe extern "C" {
    fn segue_function(
        what: *const c_char,
        advice: *const c_char,
        ys: *const *mut CppTensor,
        y_count: usize,
        inputs: *const *mut CppTensor,
        count: usize,
        backward: Backward,
        release: unsafe extern "C" fn(*mut c_void),
        state: *mut c_void,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
}

/// What computes the gradients of a function's inputs from those of its values.
type Gradient = Box<dyn FnOnce(Vec<Option<Tensor>>) -> Vec<Option<Tensor>> + Send>;

/// What a function is called in errors.
#[derive(Debug, Clone, Copy)]
pub struct Called {
    /// Its name.
    pub name: &'static CStr,
    /// What to do instead of differentiating it twice.
    pub advice: &'static CStr,
}

/// What functions of a kernel's say.
pub const KERNEL_ADVICE: &CStr =
    c"it is computed by Segue, not by libtorch; layers with Kernels::Plain can be differentiated any number of times";

/// `y`, computed from `inputs` without a graph, as a function of them: `gradient` gives the gradients of the inputs from
/// that of `y`, one for each, once. It is never called where no input wants one. `name` is the function's in errors.
///
/// It is differentiable once. Where a graph of the gradients is asked for (`create_graph`), they are right, and
/// differentiating them by anything they depend on is an error; so is a second pass through a graph that was kept
/// (`keep_graph`). [`Kernels::Plain`](crate::Kernels::Plain) has neither limit.
pub fn function(
    name: &'static CStr,
    inputs: &[&Tensor],
    y: Tensor,
    gradient: impl FnOnce(Tensor) -> Vec<Option<Tensor>> + Send + 'static,
) -> Tensor {
    let count = inputs.len();
    let gradient = move |mut grads: Vec<Option<Tensor>>| match grads.pop().flatten() {
        Some(grad) => gradient(grad),
        None => (0..count).map(|_| None).collect(),
    };
    functions(Called { name, advice: KERNEL_ADVICE }, inputs, &[&y], gradient);
    y
}

/// The same for several values at once, which must not have a history. `gradient` gets the gradients of `ys`, of which some
/// may be none.
pub fn functions(
    called: Called,
    inputs: &[&Tensor],
    ys: &[&Tensor],
    gradient: impl FnOnce(Vec<Option<Tensor>>) -> Vec<Option<Tensor>> + Send + 'static,
) {
    let [inputs, ys] = [inputs, ys].map(pointers);
    let gradient: Gradient = Box::new(gradient);
    let state = Box::into_raw(Box::new(Some(gradient))) as *mut c_void;
    // SAFETY: live tensors, of which the shim keeps none but as parts of the graph; it takes over the state, which
    // `backward` and `release` know the type of.
    let made = checked(|message, capacity| unsafe {
        segue_function(
            called.name.as_ptr(),
            called.advice.as_ptr(),
            ys.as_ptr(),
            ys.len(),
            inputs.as_ptr(),
            inputs.len(),
            backward,
            release,
            state,
            message,
            capacity,
        )
    });
    if let Err(error) = made {
        panic!("{error}");
    }
}

/// Calls the gradient that `state` holds. What panics inside becomes libtorch's error: nothing unwinds through C++.
unsafe extern "C" fn backward(
    state: *mut c_void,
    of_outputs: *const *mut CppTensor,
    given: usize,
    grads: *mut *mut CppTensor,
    count: usize,
    message: *mut c_char,
    capacity: usize,
) -> bool {
    // SAFETY: made by `functions`, and not yet released.
    let state = unsafe { &mut *(state as *mut Option<Gradient>) };
    let Some(gradient) = state.take() else {
        // SAFETY: `capacity` bytes are the caller's own.
        unsafe { leave_message("a gradient was asked for twice", message, capacity) };
        return false;
    };
    // SAFETY: `given` pointers, each null or to a live tensor of the caller; the clones share their storage.
    let of_outputs = unsafe { std::slice::from_raw_parts(of_outputs, given) }
        .iter()
        .map(|grad| (!grad.is_null()).then(|| unsafe { Tensor::clone_from_ptr(*grad as *mut _) }))
        .collect();
    match catch_unwind(AssertUnwindSafe(|| gradient(of_outputs))) {
        Ok(found) if found.len() == count => {
            for (i, tensor) in found.into_iter().enumerate() {
                let owned = tensor.map_or(ptr::null_mut(), into_cpp);
                // SAFETY: the caller has `count` places.
                unsafe { *grads.add(i) = owned };
            }
            true
        }
        Ok(found) => {
            let text = format!("{} gradients for {count} inputs", found.len());
            // SAFETY: as above.
            unsafe { leave_message(&text, message, capacity) };
            false
        }
        Err(panic) => {
            // SAFETY: as above.
            unsafe { leave_message(said(panic.as_ref()), message, capacity) };
            false
        }
    }
}

unsafe extern "C" fn release(state: *mut c_void) {
    // SAFETY: made by `functions`, released once.
    drop(unsafe { Box::from_raw(state as *mut Option<Gradient>) });
}

/// Gives the tensor's handle away.
fn into_cpp(tensor: Tensor) -> *mut CppTensor {
    let pointer = cpp(&tensor);
    std::mem::forget(tensor);
    pointer
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a gradient panicked")
}

/// Asserts that gradients of the value of `f` by its leaves are the same with a graph (`create_graph`) as without, and that
/// none of them can be differentiated by any leaf; the error names `name` and says what else there is.
pub fn assert_differentiable_once(name: &str, f: impl Fn() -> (Tensor, Vec<Tensor>)) {
    let gradients = |create_graph| {
        let (y, leaves) = f();
        // Squares, so that the gradient that comes in depends on the leaves too.
        let loss = y.square().sum(None::<tch::Kind>);
        (Tensor::run_backward(&[loss], &leaves, create_graph, create_graph), leaves)
    };
    assert_eq!(gradients(true).0, gradients(false).0);
    let (found, leaves) = gradients(true);
    for (gradient, leaf) in found.iter().flat_map(|gradient| leaves.iter().map(move |leaf| (gradient, leaf)))
    {
        let again = Tensor::f_run_backward(&[gradient.sum(None::<tch::Kind>)], &[leaf], true, false);
        let error = crate::TrainError::from(again.expect_err(name)).to_string();
        assert!(error.contains(&format!("the gradient of {name} has no derivative")), "{error}");
        assert!(error.contains("Kernels::Plain"), "{error}");
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    fn leaf(values: &[f64]) -> Tensor {
        Tensor::from_slice(values).set_requires_grad(true)
    }

    /// x y, by hand.
    fn product(x: &Tensor, y: &Tensor) -> Tensor {
        let (a, b) = (x.detach(), y.detach());
        function(c"a product", &[x, y], &a * &b, move |grad| vec![Some(&grad * &b), Some(&grad * &a)])
    }

    #[test]
    fn gradients_are_those_that_were_given() {
        let (x, y) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 5.0]));
        (product(&x, &y) * 10.0).sum(None::<Kind>).backward();
        assert_eq!(x.grad(), Tensor::from_slice(&[30.0, 50.0]));
        assert_eq!(y.grad(), Tensor::from_slice(&[10.0, 20.0]));
    }

    #[test]
    fn what_wants_no_gradient_has_no_graph() {
        let (x, plain) = (leaf(&[1.0]), Tensor::ones([1], (Kind::Double, Device::Cpu)));
        assert!(!product(&plain, &plain).requires_grad());
        assert!(!tch::no_grad(|| product(&x, &x)).requires_grad());
        product(&x, &plain).backward();
        assert!(!plain.grad().defined());
    }

    #[test]
    fn panics_and_second_derivations_are_errors() {
        let x = leaf(&[1.0]);
        let y = function(c"a copy", &[&x], x.detach().copy(), |_| panic!("no way back"));
        assert!(y.f_backward().unwrap_err().to_string().contains("no way back"));
        let y = function(c"a copy", &[&x], x.detach().copy(), |_| Vec::new());
        assert!(y.f_backward().unwrap_err().to_string().contains("0 gradients for 1 inputs"));
        let y = product(&x, &x);
        y.backward();
        assert!(y.f_backward().is_err());
        let kept = product(&x, &x);
        let twice = || Tensor::f_run_backward(&[&kept], &[&x], true, false);
        assert_eq!(twice().unwrap()[0], Tensor::from_slice(&[2.0]));
        assert!(twice().unwrap_err().to_string().contains("a product is differentiated once, and it was"));
    }

    #[test]
    fn gradients_of_gradients_are_refused() {
        assert_differentiable_once("a product", || {
            let (x, y) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 5.0]));
            (product(&x, &y), vec![x, y])
        });
        // Gradients that are the incoming one itself keep its history apart from the error.
        assert_differentiable_once("an identity", || {
            let x = leaf(&[1.0, 2.0]);
            let y = function(c"an identity", &[&x, &x], x.detach().copy(), |grad| {
                vec![Some(grad.shallow_clone()), Some(grad)]
            });
            (y, vec![x])
        });
    }

    #[test]
    fn what_does_not_go_through_it_can_be_differentiated_twice() {
        let (x, w) = (leaf(&[2.0]), leaf(&[3.0]));
        let loss = product(&x, &x) + w.pow_tensor_scalar(3);
        let gradients = Tensor::run_backward(&[loss], &[&x, &w], true, true);
        assert_eq!(gradients[0].double_value(&[0]), 4.0);
        let second = Tensor::run_backward(&[&gradients[1]], &[&w], true, false);
        assert_eq!(second[0].double_value(&[0]), 18.0);
        assert!(Tensor::f_run_backward(&[&gradients[0]], &[&x], true, false).is_err());
    }

    #[test]
    fn what_a_gradient_was_made_of_is_freed_with_it() {
        let counted = std::sync::Arc::new(());
        let x = leaf(&[2.0]);
        let kept = counted.clone();
        let y = function(c"a copy", &[&x], x.detach().copy(), move |grad| {
            let _kept = &kept;
            vec![Some(grad)]
        });
        // The graph is kept, and the gradient gets one of its own.
        let _gradients = Tensor::run_backward(&[&y], &[&x], true, true);
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }
}
