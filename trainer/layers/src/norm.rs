//! Norms of layers, with what is added before them.

pub(super) mod card;

use std::ops::Range;

use segue_kernels::cards;
use segue_kernels::libtorch::{Autocast, Shared, as_f32, function, widened};
use segue_kernels::noise::{Drops, DropsOfRows, Noise, drop_factors, dropout};
use segue_kernels::simd::{sum, sum_of_pairs, vectorised};
use segue_kernels::threads;
use segue_kernels::{Kernels, Parameters};
use tch::{Device, Kind, Tensor};

use super::recompute::States;

/// Mean of initial LayerNorm weights.
pub const NORM_MEAN: f64 = 1.0;

/// Hidden states of a residual stream, `[.., width]`.
pub struct Stream {
    /// In single precision at least: what is added to.
    pub whole: Tensor,
    /// The same in the type of products, where a card makes them in another. Who reads it spares a pass over all values each way.
    pub short: Option<Tensor>,
}

impl Stream {
    /// Of states that layers with `kernels` read.
    pub fn new(whole: Tensor, kernels: Kernels) -> Self {
        let kind = Autocast::kind_on(whole.device()).filter(|kind| *kind != whole.kind());
        let short = kind.filter(|_| kernels.chunk(&whole)).map(|kind| whole.to_kind(kind));
        Self { whole, short }
    }

    /// The same states.
    pub fn shallow_clone(&self) -> Self {
        Self { whole: self.whole.shallow_clone(), short: self.short.as_ref().map(Tensor::shallow_clone) }
    }

    /// What products read.
    pub fn read(&self) -> &Tensor {
        self.short.as_ref().unwrap_or(&self.whole)
    }

    /// States that are read beside it, in the type that they are read in.
    pub fn beside(&self, states: &Tensor) -> Tensor {
        self.short.as_ref().map_or_else(|| states.shallow_clone(), |short| states.to_kind(short.kind()))
    }

    /// Another stream in the same types.
    pub fn of_same_types(&self, whole: Tensor) -> Self {
        let short = self.short.as_ref().map(|short| whole.to_kind(short.kind()));
        Self { whole, short }
    }
}

impl From<Tensor> for Stream {
    fn from(whole: Tensor) -> Self {
        Self { whole, short: None }
    }
}

impl States for Stream {
    fn into_tensors(self) -> Vec<Tensor> {
        [self.whole].into_iter().chain(self.short).collect()
    }

    fn of_tensors(mut tensors: Vec<Tensor>) -> Self {
        let whole = tensors.remove(0);
        Self { whole, short: tensors.pop() }
    }
}

/// LayerNorm over the last axis.
pub struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
    kernels: Kernels,
}

impl Norm {
    /// `PREFIX.layer_norm.{weight, bias}`.
    pub fn new(parameters: &Parameters, prefix: &str, epsilon: f64) -> Self {
        Self::named(parameters, &format!("{prefix}.layer_norm"), epsilon)
    }

    /// `NAME.{weight, bias}`.
    pub fn named(parameters: &Parameters, name: &str, epsilon: f64) -> Self {
        let get = |part: &str| parameters.get(&format!("{name}.{part}"));
        Self { weight: get("weight"), bias: get("bias"), epsilon, kernels: parameters.kernels() }
    }

    /// `x`, each of its rows at mean 0 and variance 1, scaled and moved; of single precision at least.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        widened(x).layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), self.epsilon, true)
    }

    /// The norm of the residual stream plus what a linear map of this weight, `[out, in]`, and bias, `[out]`, makes of `x`, `[.., in]`, with dropout
    /// at `rate` where there is noise. On a card the bias is added, and its gradient summed up, where the norm is.
    pub fn of_mapped_sum(
        &self,
        x: &Tensor,
        (weight, bias): (&Tensor, Option<&Tensor>),
        residual: &Stream,
        rate: f64,
        noise: Option<&Noise>,
    ) -> Stream {
        let Some(on_card) = card::kernels(self.kernels, x, &self.weight) else {
            let mapped = self.kernels.linear(x, weight, bias);
            return Stream::from(self.of_sum(&mapped, &residual.whole, rate, noise));
        };
        self.on_card(on_card, x, (weight, bias), residual, Noise::drops_of(noise, rate).into())
    }

    /// Whether [`Norm::of_mapped_rows`] has kernels where `x` lies.
    pub fn takes_rows(&self, x: &Tensor) -> bool {
        card::kernels(self.kernels, x, &self.weight).is_some()
    }

    /// [`Norm::of_mapped_sum`] with what has been drawn for rows of several places; `None` where there are no kernels for it.
    pub fn of_mapped_rows(
        &self,
        x: &Tensor,
        map: (&Tensor, Option<&Tensor>),
        residual: &Stream,
        drops: DropsOfRows,
    ) -> Option<Stream> {
        let on_card = card::kernels(self.kernels, x, &self.weight)?;
        Some(self.on_card(on_card, x, map, residual, drops))
    }

    fn on_card(
        &self,
        kernels: cards::Kernels,
        x: &Tensor,
        (weight, bias): (&Tensor, Option<&Tensor>),
        residual: &Stream,
        drops: DropsOfRows,
    ) -> Stream {
        let mapped = self.kernels.linear(x, weight, None);
        let rounds = residual.short.as_ref().is_some_and(|short| short.kind() == mapped.kind());
        let terms = card::Terms { x: &mapped, bias, residual: &residual.whole };
        let affine = [&self.weight, &self.bias];
        let (whole, short) = card::of_sum(kernels, terms, affine, self.epsilon as f32, drops, rounds);
        Stream { whole, short }
    }

    /// The norm of `residual` plus `x` with dropout at `rate` where there is noise; both of one shape. In f32 on the CPU one
    /// pass over the values each way.
    pub fn of_sum(&self, x: &Tensor, residual: &Tensor, rate: f64, noise: Option<&Noise>) -> Tensor {
        if let Some(kernels) = card::kernels(self.kernels, x, &self.weight) {
            let (terms, affine) = (card::Terms { x, bias: None, residual }, [&self.weight, &self.bias]);
            let drops = Noise::drops_of(noise, rate).into();
            return card::of_sum(kernels, terms, affine, self.epsilon as f32, drops, false).0;
        }
        if !self.kernels.fuse(x) || !self.kernels.fuse(residual) {
            return self.forward(&(dropout(x.shallow_clone(), rate, noise) + residual));
        }
        let drops = noise.filter(|_| rate > 0.0).map_or(Drops::NONE, |noise| noise.drops(rate));
        let sum = NormedSum { weight: self.weight.detach(), epsilon: self.epsilon as f32, drops };
        let [y, normed, scales] = sum.forward(&x.detach(), &residual.detach(), &self.bias.detach());
        let inputs = [x, residual, &self.weight, &self.bias];
        function(c"the norm of a sum", &inputs, y, move |grad| {
            sum.backward(&grad.contiguous(), &normed, &scales)
        })
    }
}

/// The norm of a sum without a graph.
struct NormedSum {
    weight: Tensor,
    epsilon: f32,
    drops: Drops,
}

impl NormedSum {
    /// The norm, what it was before it was scaled and moved, and what each row was multiplied by for that, `[rows]`.
    fn forward(&self, x: &Tensor, residual: &Tensor, bias: &Tensor) -> [Tensor; 3] {
        let (epsilon, drops) = (self.epsilon, self.drops);
        let (mut y, mut normed) = (x.empty_like(), x.empty_like());
        // SAFETY: until the last part is done, only tensors that are made here are written to; weights change between
        // steps, on the thread that waits for this.
        let [weight, x, residual, bias] =
            [&self.weight, x, residual, bias].map(|tensor| unsafe { as_f32(tensor) });
        let mut scales = Tensor::empty([(x.len() / weight.len()) as i64], (Kind::Float, Device::Cpu));
        assert!(x.len() == residual.len() && weight.len() == bias.len());
        let (to_y, to_normed, to_scales) =
            (Shared::of(&mut y), Shared::of(&mut normed), Shared::of(&mut scales));
        for_each_part(x.len(), weight.len(), |_, rows, values| {
            // SAFETY: nobody else has these rows.
            let to = unsafe {
                (to_y.slice(values.clone()), to_normed.slice(values.clone()), to_scales.slice(rows))
            };
            let drops = drops.from(values.start);
            normalise(&x[values.clone()], &residual[values], (weight, bias), epsilon, drops, to);
        });
        [y, normed, scales]
    }

    /// Gradients of x, the residual, weight and bias.
    fn backward(&self, grad: &Tensor, normed: &Tensor, scales: &Tensor) -> Vec<Option<Tensor>> {
        let drops = self.drops;
        let (mut of_x, mut of_residual) = (grad.empty_like(), grad.empty_like());
        // SAFETY: as in `forward`.
        let [weight, grad, normed, scales] =
            [&self.weight, grad, normed, scales].map(|tensor| unsafe { as_f32(tensor) });
        let width = weight.len();
        // Sums of parts, then of these: they must not depend on the number of threads.
        let parts = (scales.len().div_ceil(rows_of_part(width)) * 2 * width) as i64;
        let mut of_parts = Tensor::zeros([parts], (Kind::Float, Device::Cpu));
        let (to_x, to_residual, to_parts) =
            (Shared::of(&mut of_x), Shared::of(&mut of_residual), Shared::of(&mut of_parts));
        for_each_part(grad.len(), width, |part, rows, values| {
            let sums = part * 2 * width..(part + 1) * 2 * width;
            // SAFETY: nobody else has these rows, or this part's sums.
            let (of_inputs, sums) = unsafe {
                ((to_x.slice(values.clone()), to_residual.slice(values.clone())), to_parts.slice(sums))
            };
            let drops = drops.from(values.start);
            let normed = (&normed[values.clone()], &scales[rows]);
            normalise_back(&grad[values], normed, weight, drops, of_inputs, sums.split_at_mut(width));
        });
        let mut sums = vec![0f32; 2 * width];
        // SAFETY: all threads are done with it.
        for part in unsafe { as_f32(&of_parts) }.chunks_exact(2 * width) {
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        let (of_weight, of_bias) = sums.split_at(width);
        [of_x, of_residual, Tensor::from_slice(of_weight), Tensor::from_slice(of_bias)].map(Some).into()
    }
}

fn rows_of_part(width: usize) -> usize {
    threads::PART.div_ceil(width)
}

/// Calls `f` with the number of a part of `count` values in rows of `width`, the numbers of its rows and those of its values.
fn for_each_part(count: usize, width: usize, f: impl Fn(usize, Range<usize>, Range<usize>) + Sync + Send) {
    threads::for_each_part(count / width, rows_of_part(width), |rows| {
        f(rows.start / rows_of_part(width), rows.clone(), rows.start * width..rows.end * width);
    });
}

#[inline(always)]
fn normalise_plain(
    x: &[f32],
    residual: &[f32],
    (weight, bias): (&[f32], &[f32]),
    epsilon: f32,
    drops: Drops,
    (y, normed, scales): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let width = weight.len();
    for (row, scale) in scales.iter_mut().enumerate() {
        let own = row * width..(row + 1) * width;
        let (x, residual) = (&x[own.clone()], &residual[own.clone()]);
        let (y, normed) = (&mut y[own.clone()], &mut normed[own.clone()]);
        // First the factors: a loop that hashes and reads is not compiled for many values at once.
        drop_factors(normed, drops.from(own.start));
        for ((z, x), residual) in normed.iter_mut().zip(x).zip(residual) {
            *z = *z * x + residual;
        }
        let mean = sum(normed) / width as f32;
        let variance = sum_of_pairs(normed, normed, |z, _| (z - mean) * (z - mean)) / width as f32;
        *scale = 1.0 / (variance + epsilon).sqrt();
        for z in normed.iter_mut() {
            *z = (*z - mean) * *scale;
        }
        for (((y, z), weight), bias) in y.iter_mut().zip(&*normed).zip(weight).zip(bias) {
            *y = z * weight + bias;
        }
    }
}

vectorised! {
    fn normalise(
        x: &[f32],
        residual: &[f32],
        affine: (&[f32], &[f32]),
        epsilon: f32,
        drops: Drops,
        to: (&mut [f32], &mut [f32], &mut [f32]),
    ) = normalise_plain;
}

#[inline(always)]
fn normalise_back_plain(
    grad: &[f32],
    (normed, scales): (&[f32], &[f32]),
    weight: &[f32],
    drops: Drops,
    (of_x, of_residual): (&mut [f32], &mut [f32]),
    (of_weight, of_bias): (&mut [f32], &mut [f32]),
) {
    let width = weight.len();
    for (row, scale) in scales.iter().enumerate() {
        let own = row * width..(row + 1) * width;
        let (grad, normed) = (&grad[own.clone()], &normed[own.clone()]);
        let (of_x, of_z) = (&mut of_x[own.clone()], &mut of_residual[own.clone()]);
        for ((total, grad), normed) in of_weight.iter_mut().zip(grad).zip(normed) {
            *total += grad * normed;
        }
        for (total, grad) in of_bias.iter_mut().zip(grad) {
            *total += grad;
        }
        for ((of_z, grad), weight) in of_z.iter_mut().zip(grad).zip(weight) {
            *of_z = grad * weight;
        }
        let mean = sum(of_z) / width as f32;
        let slant = sum_of_pairs(of_z, normed, |grad, normed| grad * normed) / width as f32;
        for (of_z, normed) in of_z.iter_mut().zip(normed) {
            *of_z = scale * (*of_z - mean - normed * slant);
        }
        drop_factors(of_x, drops.from(own.start));
        for (of_x, of_z) in of_x.iter_mut().zip(&*of_z) {
            *of_x *= of_z;
        }
    }
}

vectorised! {
    fn normalise_back(
        grad: &[f32],
        normed: (&[f32], &[f32]),
        weight: &[f32],
        drops: Drops,
        of_inputs: (&mut [f32], &mut [f32]),
        of_affine: (&mut [f32], &mut [f32]),
    ) = normalise_back_plain;
}

#[cfg(test)]
mod tests {
    use segue_configs::Precision;
    use segue_testing::emulated::{self, Order};

    use super::*;

    fn wave(shape: &[i64], speed: f64) -> Tensor {
        let count = shape.iter().product::<i64>();
        (Tensor::arange(count, (Kind::Double, Device::Cpu)) * speed).sin().view(shape)
    }

    /// The norm of x and a residual, and the gradients of both, of weight and bias.
    fn found(kind: Kind, width: i64, f: impl Fn(&Norm, &Tensor, &Tensor) -> Tensor) -> Vec<Tensor> {
        let leaf = |x: Tensor| x.to_kind(kind).set_requires_grad(true);
        let (x, residual) = (leaf(wave(&[3, 7, width], 1.1) + 0.5), leaf(wave(&[3, 7, width], 0.7) * 2.0));
        let norm = Norm {
            weight: leaf(wave(&[width], 0.3) + 1.5),
            bias: leaf(wave(&[width], 0.4)),
            epsilon: 1e-6,
            kernels: Kernels::Fused,
        };
        let y = f(&norm, &x, &residual);
        (&y * wave(&y.size(), 0.9).to_kind(kind)).sum(None::<Kind>).backward();
        [y.detach(), x.grad(), residual.grad(), norm.weight.grad(), norm.bias.grad()].into()
    }

    #[test]
    fn norms_of_sums_and_their_gradients_are_those_of_double_precision() {
        threads::set_count(3);
        for width in [1, 5, 16, 100, 20_000] {
            for rate in [0.0, 0.3] {
                let factors = dropout(
                    Tensor::ones([3, 7, width], (Kind::Float, Device::Cpu)),
                    rate,
                    Some(&Noise::new(3)),
                );
                let ours = found(Kind::Float, width, |norm, x, residual| {
                    norm.of_sum(x, residual, rate, Some(&Noise::new(3)))
                });
                let exact =
                    found(Kind::Double, width, |norm, x, residual| norm.forward(&(x * &factors + residual)));
                for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                    let error = ((ours - exact).abs().max() / (exact.abs().max() + 0.1)).double_value(&[]);
                    // A row of one value is all mean: what is left is rounding, times up to 1e3.
                    let limit = if width == 1 { 1e-3 } else { 2e-6 };
                    assert!(error < limit, "{width} {rate}: output or gradient {i} is off by {error}");
                }
            }
        }
    }

    #[test]
    fn norms_on_cards_and_their_gradients_are_those_of_double_precision() {
        for (width, rate) in [(1, 0.0), (5, 0.3), (100, 0.0), (300, 0.3), (1000, 0.3)] {
            let shape = [3, 7, width];
            let factors =
                dropout(Tensor::ones(shape, (Kind::Float, Device::Cpu)), rate, Some(&Noise::new(3)));
            let ours = |order| {
                emulated::during(order, || {
                    found(Kind::Float, width, |norm, x, residual| {
                        norm.of_sum(x, residual, rate, Some(&Noise::new(3)))
                    })
                })
            };
            let exact =
                found(Kind::Double, width, |norm, x, residual| norm.forward(&(x * &factors + residual)));
            let found = ours(Order::Forwards);
            for (i, (ours, exact)) in found.iter().zip(&exact).enumerate() {
                let error = ((ours - exact).abs().max() / (exact.abs().max() + 0.1)).double_value(&[]);
                // The limits of the loops above: each thread adds up less, and what threads have found meets in a tree.
                let limit = if width == 1 { 1e-3 } else { 2e-6 };
                assert!(error < limit, "{width} {rate}: output or gradient {i} is off by {error}");
            }
            assert_eq!(found, ours(Order::Backwards), "the order of threads shows at {width}");
        }
    }

    /// x in bf16 or f16 is what it is in f32, and its gradient is rounded once.
    #[test]
    fn norms_on_cards_take_short_numbers() {
        let noise = || Noise::new(3);
        for kind in [Kind::BFloat16, Kind::Half] {
            let rounded = (wave(&[6, 70], 1.1) + 0.5).to_kind(kind);
            let found = |x: Tensor| {
                let x = x.detach().copy().set_requires_grad(true);
                let residual = wave(&[6, 70], 0.7).to_kind(Kind::Float);
                let plain = |speed: f64| (wave(&[70], speed) + 1.5).to_kind(Kind::Float);
                let norm =
                    Norm { weight: plain(0.3), bias: plain(0.4), epsilon: 1e-6, kernels: Kernels::Fused };
                let y = emulated::during(Order::Forwards, || {
                    let y = norm.of_sum(&x, &residual, 0.3, Some(&noise()));
                    (&y * wave(&[6, 70], 0.9).to_kind(Kind::Float)).sum(None::<Kind>).backward();
                    y
                });
                (y.detach(), x.grad())
            };
            let (short, long) = (found(rounded.shallow_clone()), found(rounded.to_kind(Kind::Float)));
            assert_eq!((short.0.kind(), short.1.kind()), (Kind::Float, kind));
            assert_eq!(short, (long.0, long.1.to_kind(kind)));
        }
    }

    /// Which of what a norm gives counts: the norm, and what is rounded of it.
    type Counts = [bool; 2];

    /// The norm of a residual and a map of x, and the gradients of x, weight and bias of the map, the residual, and weight and bias of the norm.
    fn mapped(kind: Kind, width: i64, rate: f64, biased: bool, counts: Counts) -> Vec<Tensor> {
        let leaf = |x: Tensor| x.to_kind(kind).set_requires_grad(true);
        let (x, residual) = (leaf(wave(&[3, 37, 6], 1.1)), leaf(wave(&[3, 37, width], 0.7) * 2.0));
        let (weight, bias) = (leaf(wave(&[width, 6], 1.3)), leaf(wave(&[width], 0.9)));
        let kernels = if kind == Kind::Float { Kernels::Fused } else { Kernels::Plain };
        let (of_norm, moved) = (leaf(wave(&[width], 0.3) + 1.5), leaf(wave(&[width], 0.4)));
        let share = Tensor::shallow_clone;
        let norm = Norm { weight: share(&of_norm), bias: share(&moved), epsilon: 1e-6, kernels };
        // In single precision what is rounded is the norm itself.
        let stream = Stream { whole: share(&residual), short: Some(residual.detach()) };
        let map = (&weight, biased.then_some(&bias));
        let found = norm.of_mapped_sum(&x, map, &stream, rate, Some(&Noise::new(3)));
        let rounded = found.short.unwrap_or_else(|| share(&found.whole));
        assert_eq!(rounded.detach(), found.whole.detach());
        let parts = [(&found.whole, 0.9), (&rounded, 0.2)].into_iter().zip(counts);
        let parts = parts
            .filter(|(_, counts)| *counts)
            .map(|((y, speed), _)| (y * wave(&y.size(), speed).to_kind(kind)).sum(None::<Kind>));
        parts.reduce(|a, b| a + b).unwrap().backward();
        let leaves = [&x, &weight, &bias, &residual, &of_norm, &moved];
        let grads = leaves.map(Tensor::grad).into_iter().filter(Tensor::defined);
        std::iter::once(found.whole.detach()).chain(grads).collect()
    }

    #[test]
    fn norms_of_maps_on_cards_and_their_gradients_are_those_of_double_precision() {
        let all = [[true, true], [true, false], [false, true]];
        for (width, rate, biased) in [(5, 0.3, true), (100, 0.0, true), (300, 0.3, true), (300, 0.3, false)] {
            for counts in all {
                let ours =
                    |order| emulated::during(order, || mapped(Kind::Float, width, rate, biased, counts));
                let exact = mapped(Kind::Double, width, rate, biased, counts);
                let found = ours(Order::Forwards);
                assert!(found.len() == exact.len() && found.len() == if biased { 7 } else { 6 });
                for (i, (ours, exact)) in found.iter().zip(&exact).enumerate() {
                    let error = ((ours - exact).abs().max() / (exact.abs().max() + 0.1)).double_value(&[]);
                    // Gradients of weights and biases are sums over 111 rows here.
                    assert!(
                        error < 6e-6,
                        "{width} {rate} {counts:?}: output or gradient {i} is off by {error}"
                    );
                }
                assert_eq!(found, ours(Order::Backwards), "the order of threads shows at {width}");
            }
        }
    }

    /// With casts, states are rounded where they are normed, once.
    #[test]
    fn norms_on_cards_leave_what_products_read() {
        let casts = Autocast::to(Precision::Bf16, Device::Cpu).unwrap();
        let plain = |shape: &[i64], speed: f64| (wave(shape, speed) + 1.5).to_kind(Kind::Float);
        let (weight, bias) = (plain(&[70, 6], 1.3), plain(&[70], 0.9));
        let norm = Norm {
            weight: plain(&[70], 0.3),
            bias: plain(&[70], 0.4),
            epsilon: 1e-6,
            kernels: Kernels::Fused,
        };
        let x = plain(&[4, 6], 0.2).set_requires_grad(true);
        let found = emulated::during(Order::Forwards, || {
            casts.during(|| {
                let stream = Stream::new(plain(&[4, 70], 0.7), Kernels::Fused);
                assert_eq!(stream.read().kind(), Kind::BFloat16);
                let found =
                    norm.of_mapped_sum(&x, (&weight, Some(&bias)), &stream, 0.3, Some(&Noise::new(3)));
                (found.read().to_kind(Kind::Float) * &found.whole).sum(None::<Kind>).backward();
                found
            })
        });
        let short = found.short.unwrap();
        assert_eq!((short.kind(), found.whole.kind()), (Kind::BFloat16, Kind::Float));
        assert_eq!(short, found.whole.to_kind(Kind::BFloat16));
        assert!(x.grad().defined());
    }

    #[test]
    fn a_gradient_of_a_gradient_is_refused() {
        let leaf = |x: Tensor| x.to_kind(Kind::Float).set_requires_grad(true);
        segue_kernels::libtorch::assert_differentiable_once("the norm of a sum", || {
            let (x, residual) = (leaf(wave(&[3, 8], 1.1)), leaf(wave(&[3, 8], 0.7)));
            let (weight, bias) = (leaf(wave(&[8], 0.3)), leaf(wave(&[8], 0.4)));
            let share = Tensor::shallow_clone;
            let norm =
                Norm { weight: share(&weight), bias: share(&bias), epsilon: 1e-6, kernels: Kernels::Fused };
            (norm.of_sum(&x, &residual, 0.0, None), vec![x, residual, weight, bias])
        });
    }

    #[test]
    fn other_kinds_take_the_way_of_tensors() {
        let ours = found(Kind::Double, 9, |norm, x, residual| norm.of_sum(x, residual, 0.5, None));
        let plain = found(Kind::Double, 9, |norm, x, residual| norm.forward(&(x + residual)));
        assert_eq!(ours, plain);
    }
}
