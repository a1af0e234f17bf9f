//! Functions of tensors with hand-written gradients.

use std::any::Any;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use tch::Tensor;

use super::{CppTensor, checked, cpp, leave_message};

type Backward =
    unsafe extern "C" fn(*mut c_void, *mut CppTensor, *mut *mut CppTensor, usize, *mut c_char, usize) -> bool;

unsafe extern "C" {
    fn segue_function(
        y: *mut CppTensor,
        inputs: *const *mut CppTensor,
        count: usize,
        backward: Backward,
        release: unsafe extern "C" fn(*mut c_void),
        state: *mut c_void,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
}

/// What computes the gradients of a function's inputs from that of its value.
type Gradient = Box<dyn FnOnce(Tensor) -> Vec<Option<Tensor>> + Send>;

/// `y`, computed from `inputs` without a graph, as a function of them: `gradient` gives the gradients of the inputs from
/// that of `y`, one for each, once. It is never called where no input wants one.
pub fn function(
    inputs: &[&Tensor],
    y: Tensor,
    gradient: impl FnOnce(Tensor) -> Vec<Option<Tensor>> + Send + 'static,
) -> Tensor {
    let pointers: Vec<_> = inputs.iter().map(|tensor| cpp(tensor)).collect();
    let gradient: Gradient = Box::new(gradient);
    let state = Box::into_raw(Box::new(Some(gradient))) as *mut c_void;
    // SAFETY: live tensors, of which the shim keeps none but as parts of the graph; it takes over the state, which
    // `backward` and `release` know the type of.
    let made = checked(|message, capacity| unsafe {
        segue_function(
            cpp(&y),
            pointers.as_ptr(),
            pointers.len(),
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
    y
}

/// Calls the gradient that `state` holds. What panics inside becomes libtorch's error: nothing unwinds through C++.
unsafe extern "C" fn backward(
    state: *mut c_void,
    grad: *mut CppTensor,
    grads: *mut *mut CppTensor,
    count: usize,
    message: *mut c_char,
    capacity: usize,
) -> bool {
    // SAFETY: made by `function`, and not yet released.
    let state = unsafe { &mut *(state as *mut Option<Gradient>) };
    let Some(gradient) = state.take() else {
        // SAFETY: `capacity` bytes are the caller's own.
        unsafe { leave_message("a function was differentiated a second time", message, capacity) };
        return false;
    };
    // SAFETY: a live tensor of the caller; the clone shares its storage.
    let grad = unsafe { Tensor::clone_from_ptr(grad as *mut _) };
    match catch_unwind(AssertUnwindSafe(|| gradient(grad))) {
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
    // SAFETY: made by `function`, released once.
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
        function(&[x, y], &a * &b, move |grad| vec![Some(&grad * &b), Some(&grad * &a)])
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
        let y = function(&[&x], x.detach().copy(), |_| panic!("no way back"));
        assert!(y.f_backward().unwrap_err().to_string().contains("no way back"));
        let y = function(&[&x], x.detach().copy(), |_| Vec::new());
        assert!(y.f_backward().unwrap_err().to_string().contains("0 gradients for 1 inputs"));
        let y = product(&x, &x);
        y.backward();
        assert!(y.f_backward().is_err());
    }
}
