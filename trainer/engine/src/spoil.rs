//! Tensors that tests spoil: what a broken processor or memory does unasked.

use segue_faults::Spoil;
use tch::{Kind, Tensor};

/// A bit of the mantissa's upper half: a wrong value that looks like a right one.
const BIT: i64 = 1 << 20;

/// Spoils the value in the middle of `tensor`, f32, where the process' plan of faults says so at the point `name`.
pub fn spoil(name: &str, tensor: impl FnOnce() -> Tensor) {
    if let Some(how) = segue_faults::spoil(name) {
        apply(how, &tensor());
    }
}

/// The same where libtorch calls.
pub fn spoil_in_callback(name: &str, tensor: impl FnOnce() -> Tensor) {
    if let Some(how) = segue_faults::spoil_in_callback(name) {
        apply(how, &tensor());
    }
}

fn apply(how: Spoil, tensor: &Tensor) {
    tch::no_grad(|| {
        let values = tensor.detach().view(-1);
        if values.numel() == 0 {
            return;
        }
        let mut value = values.narrow(0, values.size()[0] / 2, 1);
        match how {
            Spoil::Nan => _ = value.fill_(f64::NAN),
            Spoil::Flip => _ = value.view_dtype(Kind::Int).bitwise_xor_(BIT),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_spoiled() {
        let weights = Tensor::ones([2, 3], (Kind::Float, tch::Device::Cpu)).set_requires_grad(true);
        apply(Spoil::Flip, &weights);
        let found = Vec::<f32>::try_from(weights.detach().view(-1)).unwrap();
        assert_eq!(found, [1.0, 1.0, 1.0, 1.125, 1.0, 1.0]);
        apply(Spoil::Nan, &weights);
        assert_eq!(weights.isnan().sum(Kind::Int64).int64_value(&[]), 1);
    }
}
