//! Activations of the position-wise feed-forward, with the dropout that follows: one pass over the values, which
//! leaves the slope for the way back.

pub(super) mod card;

use std::f32::consts::FRAC_1_SQRT_2;

use schemars::JsonSchema;
use segue_kernels::Kernels;
use segue_kernels::libtorch::{Shared, as_f32, function};
use segue_kernels::noise::{Drops, DropsOfRows, Noise, drop_factors, dropout};
use segue_kernels::simd::{change_pairs, exp, vectorised};
use segue_kernels::threads;
use serde::{Deserialize, Serialize};
use tch::Tensor;

/// The non-linearity between the two matrices of a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// max(0, x).
    Relu,
    /// x · Φ(x), exact, as Hugging Face understands the word.
    Gelu,
    /// Its tanh approximation, which the released models were trained with and which their own configuration calls
    /// `gelu`.
    GeluNew,
    /// x · σ(x), also called SiLU (Ramachandran, Zoph and Le 2017).
    #[serde(alias = "silu")]
    Swish,
}

impl Activation {
    /// Makes its value of each of `values`, in f32 and without a graph.
    pub fn apply(self, values: &mut [f32]) {
        match self {
            Self::Relu => change(values, |x| if x <= 0.0 { 0.0 } else { x }),
            Self::Gelu => change(values, |x| gelu(x).0),
            Self::GeluNew => change(values, |x| gelu_new(x).0),
            Self::Swish => change(values, |x| swish(x).0),
        }
    }
}

vectorised! { fn change(values: &mut [f32], f: impl Fn(f32) -> f32) = change_plain; }

#[inline(always)]
fn change_plain(values: &mut [f32], f: impl Fn(f32) -> f32) {
    values.iter_mut().for_each(|value| *value = f(*value));
}

/// `activation` of what a linear map of this weight, `[out, in]`, and bias, `[out]`, makes of `x`, `[.., in]`, with dropout at `rate` where there is
/// noise. On a card the bias is added, and its gradient summed up, where the activation is.
pub fn activate_map(
    kernels: Kernels,
    x: &Tensor,
    (weight, bias): &(Tensor, Tensor),
    activation: Activation,
    rate: f64,
    noise: Option<&Noise>,
) -> Tensor {
    let Some(on_card) = card::kernels(kernels, x) else {
        return activate(kernels, &kernels.linear(x, weight, Some(bias)), activation, rate, noise);
    };
    let drops = Noise::drops_of(noise, rate).into();
    card::activate(on_card, &kernels.linear(x, weight, None), Some(bias), activation, drops)
}

/// Whether [`activate_rows`] has kernels where `x` lies.
pub fn takes_rows(kernels: Kernels, x: &Tensor) -> bool {
    card::kernels(kernels, x).is_some()
}

/// [`activate_map`] with what has been drawn for rows of several places; `None` where there are no kernels for it.
pub fn activate_rows(
    kernels: Kernels,
    x: &Tensor,
    (weight, bias): &(Tensor, Tensor),
    activation: Activation,
    drops: DropsOfRows,
) -> Option<Tensor> {
    let on_card = card::kernels(kernels, x)?;
    Some(card::activate(on_card, &kernels.linear(x, weight, None), Some(bias), activation, drops))
}

/// `activation` of each value of `x`, with dropout at `rate` where there is noise.
pub fn activate(
    kernels: Kernels,
    x: &Tensor,
    activation: Activation,
    rate: f64,
    noise: Option<&Noise>,
) -> Tensor {
    if let Some(kernels) = card::kernels(kernels, x) {
        return card::activate(kernels, x, None, activation, Noise::drops_of(noise, rate).into());
    }
    if !kernels.fuse(x) {
        return dropout(plain(x, activation), rate, noise);
    }
    let drops = noise.filter(|_| rate > 0.0).map_or(Drops::NONE, |noise| noise.drops(rate));
    if activation == Activation::Relu {
        return rectify(x, drops);
    }
    let (mut y, mut slope) = (x.detach().empty_like(), x.detach().empty_like());
    let (to_y, to_slope) = (Shared::of(&mut y), Shared::of(&mut slope));
    // SAFETY: until the last part is done, only `y` and `slope` are written to, which were made here.
    let values = unsafe { as_f32(x) };
    threads::for_each_part(values.len(), threads::PART, |part| {
        // SAFETY: nobody else has this part.
        let (y, slope) = unsafe { (to_y.slice(part.clone()), to_slope.slice(part.clone())) };
        let (x, drops) = (&values[part.clone()], drops.from(part.start));
        match activation {
            Activation::Relu => unreachable!("its value tells its slope"),
            Activation::Gelu => fill(x, y, slope, drops, gelu),
            Activation::GeluNew => fill(x, y, slope, drops, gelu_new),
            Activation::Swish => fill(x, y, slope, drops, swish),
        }
    });
    function(c"an activation", &[x], y, move |grad| vec![Some(grad * slope)])
}

/// max(0, x) with dropout. The value tells the slope, so that nothing else is kept for the way back.
fn rectify(x: &Tensor, drops: Drops) -> Tensor {
    let mut y = x.detach().empty_like();
    let to = Shared::of(&mut y);
    // SAFETY: until the last part is done, only `y` is written to, which was made here.
    let values = unsafe { as_f32(x) };
    threads::for_each_part(values.len(), threads::PART, |part| {
        // SAFETY: nobody else has this part.
        rectify_part(&values[part.clone()], unsafe { to.slice(part.clone()) }, drops.from(part.start));
    });
    let value = y.detach();
    function(c"an activation", &[x], y, move |grad| {
        let grad = grad.contiguous();
        let mut of_x = grad.empty_like();
        let to = Shared::of(&mut of_x);
        // SAFETY: only `of_x` is written to, which was made here.
        let (grad, value) = unsafe { (as_f32(&grad), as_f32(&value)) };
        threads::for_each_part(value.len(), threads::PART, |part| {
            // SAFETY: nobody else has this part.
            let to = unsafe { to.slice(part.clone()) };
            rectify_back(&grad[part.clone()], &value[part], drops.kept(), to);
        });
        vec![Some(of_x)]
    })
}

/// Values that stay in the first cache from loop to loop.
const PART: usize = 1024;

vectorised! { fn rectify_part(x: &[f32], y: &mut [f32], drops: Drops) = rectify_part_plain; }

#[inline(always)]
fn rectify_part_plain(x: &[f32], y: &mut [f32], drops: Drops) {
    for (part, (x, y)) in x.chunks(PART).zip(y.chunks_mut(PART)).enumerate() {
        drop_factors(y, drops.from(part * PART));
        for (y, x) in y.iter_mut().zip(x) {
            // Not `max`: what is no number stays none.
            *y *= if *x <= 0.0 { 0.0 } else { *x };
        }
    }
}

vectorised! { fn rectify_back(grad: &[f32], value: &[f32], kept: f32, to: &mut [f32]) = rectify_back_plain; }

#[inline(always)]
fn rectify_back_plain(grad: &[f32], value: &[f32], kept: f32, to: &mut [f32]) {
    for ((grad, value), to) in grad.iter().zip(value).zip(to) {
        *to = if *value == 0.0 { 0.0 } else { grad * kept };
    }
}

fn plain(x: &Tensor, activation: Activation) -> Tensor {
    match activation {
        Activation::Relu => x.relu(),
        Activation::Gelu => x.gelu("none"),
        Activation::GeluNew => x.gelu("tanh"),
        Activation::Swish => x.silu(),
    }
}

vectorised! {
    /// Writes `y = f(x)` and `slope = f'(x)`, both times what dropout multiplies by. `f` gives both.
    fn fill(x: &[f32], y: &mut [f32], slope: &mut [f32], drops: Drops, f: impl Fn(f32) -> (f32, f32)) = fill_plain;
}

#[inline(always)]
fn fill_plain(x: &[f32], y: &mut [f32], slope: &mut [f32], drops: Drops, f: impl Fn(f32) -> (f32, f32)) {
    let parts = x.chunks(PART).zip(y.chunks_mut(PART)).zip(slope.chunks_mut(PART));
    for (part, ((x, y), slope)) in parts.enumerate() {
        y.copy_from_slice(x);
        drop_factors(slope, drops.from(part * PART));
        change_pairs(y, slope, |x, factor| {
            let (value, slope) = f(x);
            (factor * value, factor * slope)
        });
    }
}

/// x Φ(x), Φ the distribution function of the normal distribution (Hendrycks and Gimpel 2016).
#[inline(always)]
fn gelu(x: f32) -> (f32, f32) {
    const INVERSE_ROOT_OF_2_PI: f32 = 0.398_942_3;
    // Abramowitz and Stegun 7.1.26: the error function to 1.5e-7.
    const P: f32 = 0.327_591_1;
    const A: [f32; 5] = [0.254_829_6, -0.284_496_72, 1.421_413_7, -1.453_152, 1.061_405_4];
    let magnitude = x.abs() * FRAC_1_SQRT_2;
    let t = 1.0 / magnitude.mul_add(P, 1.0);
    let bell = exp(-0.5 * x * x);
    let tail = 0.5 * bell * t * A[4].mul_add(t, A[3]).mul_add(t, A[2]).mul_add(t, A[1]).mul_add(t, A[0]);
    let phi = if x < 0.0 { tail } else { 1.0 - tail };
    (x * phi, (x * bell).mul_add(INVERSE_ROOT_OF_2_PI, phi))
}

/// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, as the reference has it: x σ(2z) where z is what tanh is taken of.
#[inline(always)]
fn gelu_new(x: f32) -> (f32, f32) {
    const TWICE_ROOT_OF_2_OVER_PI: f32 = 1.595_769_2;
    const CUBIC: f32 = 0.044_715;
    /// Beyond it σ(2z) is 0 or 1 in f32.
    const END: f32 = 10.0;
    let near = x.clamp(-END, END);
    let square = near * near;
    let twice_z = TWICE_ROOT_OF_2_OVER_PI * near * square.mul_add(CUBIC, 1.0);
    let sigmoid = 1.0 / (1.0 + exp(-twice_z));
    let slope_of_twice_z = TWICE_ROOT_OF_2_OVER_PI * square.mul_add(3.0 * CUBIC, 1.0);
    (x * sigmoid, (x * sigmoid * (1.0 - sigmoid)).mul_add(slope_of_twice_z, sigmoid))
}

/// x σ(x).
#[inline(always)]
fn swish(x: f32) -> (f32, f32) {
    let sigmoid = 1.0 / (1.0 + exp(-x));
    (x * sigmoid, (x * sigmoid).mul_add(1.0 - sigmoid, sigmoid))
}

#[cfg(test)]
mod tests {
    use segue_testing::emulated::{self, Order};
    use tch::{Device, Kind};

    use super::*;

    const ALL: [Activation; 4] = [Activation::Relu, Activation::Gelu, Activation::GeluNew, Activation::Swish];

    fn values() -> Tensor {
        let dense = Tensor::linspace(-12.0, 12.0, 100_003, (Kind::Float, Device::Cpu));
        Tensor::cat(&[dense, Tensor::from_slice(&[0.0f32, -0.0, 1e-30, -1e30, 1e30, -90.0])], 0)
    }

    fn value_and_slope(x: &Tensor, f: impl Fn(&Tensor) -> Tensor) -> (Tensor, Tensor) {
        let x = x.detach().copy().set_requires_grad(true);
        let y = f(&x);
        y.sum(None::<Kind>).backward();
        (y.detach(), x.grad())
    }

    #[test]
    fn values_and_slopes_are_those_of_double_precision() {
        for activation in ALL {
            let x = values();
            let (y, slope) = value_and_slope(&x, |x| activate(Kernels::Fused, x, activation, 0.0, None));
            let x = x.narrow(0, 0, 100_003);
            let (exact, exact_slope) = value_and_slope(&x.to_kind(Kind::Double), |x| plain(x, activation));
            for (ours, exact) in [(y, exact), (slope, exact_slope)] {
                assert!(ours.isfinite().all().int64_value(&[]) == 1, "{activation:?}");
                let error = (ours.narrow(0, 0, 100_003) - exact).abs().max().double_value(&[]);
                assert!(error < 2e-6, "{activation:?}: {error}");
            }
        }
    }

    #[test]
    fn values_in_place_are_those_with_a_way_back() {
        for activation in ALL {
            let x = values();
            let expected: Vec<f32> =
                Vec::try_from(activate(Kernels::Fused, &x, activation, 0.0, None)).unwrap();
            let mut found: Vec<f32> = Vec::try_from(x).unwrap();
            activation.apply(&mut found);
            assert!(found == expected, "{activation:?}");
        }
    }

    #[test]
    fn values_and_slopes_on_cards_are_those_of_double_precision() {
        let on_card = |x: &Tensor, activation, rate, noise: Option<&Noise>| {
            emulated::during(Order::Forwards, || {
                value_and_slope(x, |x| activate(Kernels::Fused, x, activation, rate, noise))
            })
        };
        for activation in ALL {
            let x = values();
            let (y, slope) = on_card(&x, activation, 0.0, None);
            let exact = value_and_slope(&x.to_kind(Kind::Double), |x| plain(x, activation));
            for (ours, exact) in [(&y, exact.0), (&slope, exact.1)] {
                assert!(ours.isfinite().all().int64_value(&[]) == 1, "{activation:?}");
                let error = (ours - exact).narrow(0, 0, 100_003).abs().max().double_value(&[]);
                assert!(error < 2e-6, "{activation:?}: {error}");
            }
            let dropped = on_card(&x, activation, 0.3, Some(&Noise::new(7)));
            let mask = dropout(x.ones_like(), 0.3, Some(&Noise::new(7)));
            assert_eq!(dropped, (y * &mask, slope * mask), "{activation:?}");
        }
    }

    /// An activated map of x, and the gradients of x, weight and bias.
    fn mapped(kind: Kind, width: i64, activation: Activation, kernels: Kernels) -> Vec<Tensor> {
        let leaf = |shape: &[i64], speed: f64| {
            let count = shape.iter().product::<i64>();
            let wave = (Tensor::arange(count, (Kind::Double, Device::Cpu)) * speed).sin().view(shape) * 2.0;
            wave.to_kind(Kind::Float).to_kind(kind).set_requires_grad(true)
        };
        let (x, map) = (leaf(&[3, 37, 6], 1.1), (leaf(&[width, 6], 1.3), leaf(&[width], 0.9)));
        let y = activate_map(kernels, &x, &map, activation, 0.3, Some(&Noise::new(7)));
        let scale = Tensor::linspace(0.1, 2.0, y.numel() as i64, (kind, Device::Cpu)).view_as(&y);
        (&y * scale).sum(None::<Kind>).backward();
        [y.detach(), x.grad(), map.0.grad(), map.1.grad()].into()
    }

    #[test]
    fn maps_on_cards_have_the_gradients_of_double_precision() {
        for activation in ALL {
            for width in [1, 5, 24, 1032] {
                let on_card = |order| {
                    emulated::during(order, || mapped(Kind::Float, width, activation, Kernels::Fused))
                };
                let (ours, exact) =
                    (on_card(Order::Forwards), mapped(Kind::Double, width, activation, Kernels::Plain));
                for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                    assert_eq!(ours.size(), exact.size());
                    let error = ((ours - exact).abs().max() / (exact.abs().max() + 0.1)).double_value(&[]);
                    assert!(error < 3e-6, "{activation:?} {width}: output or gradient {i} is off by {error}");
                }
                assert_eq!(ours, on_card(Order::Backwards), "the order of threads shows at {width}");
            }
        }
    }

    /// All numbers of 16 bits there are, through a kernel and back.
    #[test]
    fn short_numbers_on_cards_are_those_of_libtorch() {
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for kind in [Kind::BFloat16, Kind::Half] {
            let x = Tensor::f_from_data_size(&bits, &[1 << 16], kind).unwrap();
            let noise = || Noise::new(7);
            let found = emulated::during(Order::Forwards, || {
                activate(Kernels::Fused, &x, Activation::Relu, 0.3, Some(&noise()))
            });
            // Of numbers that are none, one is like another, and relu of libtorch's leaves them as well.
            let mask = dropout(x.ones_like().to_kind(Kind::Float), 0.3, Some(&noise()));
            let expected = (x.to_kind(Kind::Float).relu() * mask).to_kind(kind);
            assert_eq!(found.kind(), kind);
            let same = found.eq_tensor(&expected).logical_or(&found.isnan().logical_and(&expected.isnan()));
            assert_eq!(same.all().int64_value(&[]), 1, "{kind:?}");
        }
    }

    #[test]
    fn dropout_is_what_a_mask_of_its_own_would_be() {
        for activation in ALL {
            let (at_once, apart) = (Noise::new(7), Noise::new(7));
            let x = values();
            let (y, slope) =
                value_and_slope(&x, |x| activate(Kernels::Fused, x, activation, 0.3, Some(&at_once)));
            let (expected, expected_slope) = value_and_slope(&x, |x| {
                dropout(activate(Kernels::Fused, x, activation, 0.0, None), 0.3, Some(&apart))
            });
            assert_eq!((y, slope), (expected, expected_slope), "{activation:?}");
        }
    }

    #[test]
    fn a_gradient_of_a_gradient_is_refused_by_fused_kernels_alone() {
        for activation in ALL {
            let leaf = || Tensor::linspace(-2.0, 2.0, 9, (Kind::Float, Device::Cpu)).set_requires_grad(true);
            segue_kernels::libtorch::assert_differentiable_once("an activation", || {
                let x = leaf();
                (activate(Kernels::Fused, &x, activation, 0.0, None), vec![x])
            });
            let x = leaf();
            let y = activate(Kernels::Plain, &x, activation, 0.3, Some(&Noise::new(7)));
            let dropped = activate(Kernels::Fused, &x, activation, 0.3, Some(&Noise::new(7)));
            assert!((&y - dropped).abs().max().double_value(&[]) < 1e-6);
            let first = Tensor::run_backward(&[y.square().sum(None::<Kind>)], &[&x], true, true);
            let second = Tensor::run_backward(&[first[0].sum(None::<Kind>)], &[&x], false, false);
            assert!(second[0].abs().max().double_value(&[]) > 0.5);
        }
    }

    #[test]
    fn both_loops_give_the_same_bits() {
        fn check(f: impl Fn(f32) -> (f32, f32)) {
            let x = values();
            // SAFETY: nothing below writes to a tensor.
            let x = unsafe { as_f32(&x) };
            let mut fast = (vec![0.0; x.len()], vec![0.0; x.len()]);
            let mut slow = fast.clone();
            fill(x, &mut fast.0, &mut fast.1, Drops::NONE, &f);
            fill_plain(x, &mut slow.0, &mut slow.1, Drops::NONE, &f);
            assert!(fast == slow);
        }
        check(gelu);
        check(gelu_new);
        check(swish);
        let x = values();
        // SAFETY: nothing below writes to a tensor.
        let x = unsafe { as_f32(&x) };
        let drops = Noise::new(7).drops(0.3);
        let (mut fast, mut slow) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        rectify_part(x, &mut fast, drops);
        rectify_part_plain(x, &mut slow, drops);
        assert!(fast == slow);
        let (mut fast_back, mut slow_back) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        rectify_back(x, &fast, drops.kept(), &mut fast_back);
        rectify_back_plain(x, &fast, drops.kept(), &mut slow_back);
        assert!(fast_back == slow_back);
    }
}
