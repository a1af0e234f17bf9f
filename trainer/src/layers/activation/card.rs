//! Activations with the dropout that follows by kernels for cards. Nothing but `x` is kept for the way back.

use tch::Tensor;

use super::Activation;
use crate::Kernels;
use crate::cards::{self, Source, kind_name, params};
use crate::libtorch::function;
use crate::noise::Drops;

pub static ACTIVATIONS: Source = Source::new("layers/activation", include_str!("../activation.cu"));

/// Those for `x` where it lies.
pub fn kernels(kernels: Kernels, x: &Tensor) -> Option<cards::Kernels> {
    let made_for = kernels == Kernels::Fused && kind_name(x.kind()).is_some();
    if made_for { ACTIVATIONS.kernels(x) } else { None }
}

/// `activation` of each value with dropout, in the kind of `x`.
pub fn activate(kernels: cards::Kernels, x: &Tensor, activation: Activation, drops: Drops) -> Tensor {
    let read = x.detach().contiguous();
    let (count, kind) = (read.numel() as i64, kind_name(x.kind()).unwrap_or_default());
    // As the kernels number them.
    let which: i32 = match activation {
        Activation::Relu => 0,
        Activation::Gelu => 1,
        Activation::GeluNew => 2,
    };
    let y = read.empty_like();
    let (from, to) = (read.data_ptr(), y.data_ptr());
    // SAFETY: `count` values of one kind each; `y` was made here.
    unsafe {
        let arguments = params![from, to, count, which, drops];
        kernels.launch_for_values(&format!("activation_{kind}"), count, arguments);
    }
    function(c"an activation", &[x], y, move |grad| {
        let grad = grad.to_kind(read.kind()).contiguous();
        let of_x = read.empty_like();
        let (from, from_grad, to) = (read.data_ptr(), grad.data_ptr(), of_x.data_ptr());
        assert_eq!(grad.numel() as i64, count);
        // SAFETY: as above.
        unsafe {
            let arguments = params![from, from_grad, to, count, which, drops];
            kernels.launch_for_values(&format!("activation_back_{kind}"), count, arguments);
        }
        vec![Some(of_x)]
    })
}
