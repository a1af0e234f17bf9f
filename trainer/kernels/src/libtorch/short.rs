//! Products of 16 bits with sums of 32, as cards make them. libtorch's own casts leave the gradient of a weight in 16 bits and copy it to
//! 32 afterwards; here it is added up and written in 32.

use tch::{Device, Kind, Tensor};

use super::{Autocast, function};

/// The kind that products of `x` are cast to, where it lies on a card and they are.
pub fn short_kind(x: &Tensor) -> Option<Kind> {
    match x.device() {
        Device::Cuda(_) => Autocast::kind_on(x.device()),
        _ => None,
    }
}

/// `x`, `[.., in]`, times `weight`, `[out, in]`, transposed, plus `bias`, `[out]`, in `kind`; differentiable once, as a [`function`].
pub fn short_linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, kind: Kind) -> Tensor {
    let (y, saved) = Autocast::without(|| {
        tch::no_grad(|| {
            let [own_x, own_weight] = [x, weight].map(|tensor| tensor.detach().to_kind(kind));
            let own_bias = bias.map(|bias| bias.detach().to_kind(kind));
            (own_x.linear(&own_weight, own_bias.as_ref()), [own_x, own_weight])
        })
    });
    let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
    let wanted: Vec<bool> = inputs.iter().map(|input| input.requires_grad()).collect();
    let kinds: Vec<Kind> = inputs.iter().map(|input| input.kind()).collect();
    function(c"a linear layer", &inputs, y, move |grad| {
        Autocast::without(|| {
            let [own_x, own_weight] = &saved;
            let grad = grad.to_kind(kind);
            let rows = |x: &Tensor| x.reshape([-1, x.size()[x.dim() - 1]]);
            let of_x = wanted[0].then(|| grad.matmul(own_weight).to_kind(kinds[0]));
            let of_weight =
                wanted[1].then(|| short_weight_gradient(&rows(&grad), &rows(own_x), own_weight, kinds[1]));
            let of_bias = wanted.get(2).map(|wanted| {
                wanted.then(|| rows(&grad).sum_dim_intlist([0i64].as_slice(), false, kinds[2]))
            });
            [of_x, of_weight].into_iter().chain(of_bias).collect()
        })
    })
}

/// `grad`, `[n, out]`, transposed times `x`, `[n, in]`, in `kind`: `[out, in]`, laid out as `weight` is, so that nobody has to turn it.
pub fn short_weight_gradient(grad: &Tensor, x: &Tensor, weight: &Tensor, kind: Kind) -> Tensor {
    let turned = weight.stride()[0] == 1 && weight.size()[0] > 1;
    let (left, right) = if turned { (x, grad) } else { (grad, x) };
    let found = long_product(&left.tr(), right, kind);
    if turned { found.tr() } else { found }
}

/// `a`, `[i, j]`, times `b`, `[j, k]`, both of 16 bits, in `kind`.
fn long_product(a: &Tensor, b: &Tensor, kind: Kind) -> Tensor {
    let by_card = match a.device() {
        // Only cards have products of short numbers with long sums.
        Device::Cuda(_) if kind == Kind::Float && kind != a.kind() => a.f_mm_dtype(b, kind).ok(),
        _ => None,
    };
    by_card.unwrap_or_else(|| a.to_kind(kind).mm(&b.to_kind(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values in double precision and in single, which are rounded to 16 bits.
    #[test]
    fn values_and_gradients_are_those_of_libtorch_but_for_roundings() {
        let wave = |shape: &[i64], speed: f64| {
            let count = shape.iter().product::<i64>();
            (Tensor::arange(count, (Kind::Double, Device::Cpu)) * speed)
                .sin()
                .to_kind(Kind::BFloat16)
                .view(shape)
        };
        for turned in [false, true] {
            let found = |kind: Kind| {
                let leaf = |shape: &[i64], speed| wave(shape, speed).to_kind(kind).set_requires_grad(true);
                let (x, bias) = (leaf(&[2, 5, 7], 0.7), leaf(&[3], 1.9));
                let weight = if turned { leaf(&[7, 3], 1.3) } else { leaf(&[3, 7], 1.3) };
                let own = if turned { weight.tr() } else { weight.shallow_clone() };
                let y = match kind {
                    Kind::Double => x.linear(&own, Some(&bias)),
                    _ => short_linear(&x, &own, Some(&bias), Kind::BFloat16),
                };
                (&y * wave(&[2, 5, 3], 0.3).to_kind(kind)).sum(None::<Kind>).backward();
                [y.detach(), x.grad(), weight.grad(), bias.grad()]
            };
            let (short, exact) = (found(Kind::Float), found(Kind::Double));
            for (i, (short, exact)) in short.iter().zip(&exact).enumerate() {
                let error =
                    (short - exact).abs().max().double_value(&[]) / exact.abs().max().double_value(&[]);
                // What is rounded to 16 bits: the result, and the gradient of x.
                assert!(error < if i < 2 { 4e-3 } else { 1e-2 }, "turned: {turned}, tensor {i}: {error}");
                assert_eq!(short.size(), exact.size());
            }
        }
    }
}
