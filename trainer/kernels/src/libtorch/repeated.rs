//! A linear map that is applied again and again within one graph, as a recurrent layer's weights are at each position.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tch::{Kind, Tensor};

use super::function::{Called, KERNEL_ADVICE};
use super::places::{Rows, Shared};
use super::product::transposed_product;
use super::strips::Strips;
use super::{as_f32, functions};
use crate::threads;

const CALLED: Called = Called { name: c"a repeated linear map", advice: KERNEL_ADVICE };
/// Columns of a product that are computed together, and how many rows of them: of few rows of the left side, all that a product takes
/// in are these weights, which come from far, and are read best in one stream.
const STRIP: usize = 16;
const DEPTH: usize = 256;

/// `x`, `[n, rows]`, times the matrix in `strips`: `[n, columns]`, added to `start` where there is one.
fn times(strips: &Strips, x: &Tensor, start: Option<Tensor>) -> Tensor {
    let x = x.contiguous();
    let n = x.size()[0] as usize;
    let (rows, columns) = (strips.rows(), strips.columns());
    let add = start.is_some();
    let mut y = start.unwrap_or_else(|| x.new_empty([n as i64, columns as i64], (x.kind(), x.device())));
    let to = Shared::of(&mut y);
    // SAFETY: only `y` is written to, which is the caller's alone or was made here.
    let from = unsafe { as_f32(&x) };
    assert!(from.len() == n * rows && y.numel() == n * columns);
    threads::for_each(strips.count(), |strip| {
        for first in (0..rows).step_by(DEPTH) {
            let depth = first..rows.min(first + DEPTH);
            // SAFETY: the lengths were compared above, and no other strip has these columns of `y`.
            unsafe {
                let a = Rows { start: from[first..].as_ptr(), stride: rows };
                let to = Rows { start: to.at(0), stride: columns };
                strips.multiply(strip, (a, n), depth, to, add || first > 0);
            }
        }
    });
    y
}

/// Strips of a tensor `[rows, columns]`, of its transpose where it is `turned`.
fn strips(matrix: &Tensor, turned: bool) -> Strips {
    let sides = [matrix.size()[0] as usize, matrix.size()[1] as usize];
    // SAFETY: nobody writes to a weight while a graph needs it.
    let values = unsafe { as_f32(matrix) };
    if turned { Strips::transposed(values, sides, STRIP) } else { Strips::of(values, sides, STRIP) }
}

/// What one application leaves for the gradient of the weight.
struct Application {
    number: usize,
    /// `[n, in]`
    x: Tensor,
    /// `[n, out]`
    of_y: Tensor,
}

struct Inner {
    forward: Strips,
    applied: AtomicUsize,
    back: Mutex<Back>,
}

/// What the way back is made of.
struct Back {
    /// `[out, in]`, without history.
    weight: Tensor,
    /// Laid out when the first gradient comes.
    strips: Option<Arc<Strips>>,
    seen: Vec<Application>,
}

/// x Wᵀ + b of few rows at a time, many times, in f32 on the CPU. The weight is laid out once. Its gradient is one product over all
/// applications, made when the last of them has been differentiated: added up one by one, it would be read and written at each.
/// Differentiable once, as a [`function`](super::function).
pub struct Repeated {
    inner: Arc<Inner>,
    bias: Option<Tensor>,
    /// What the graph of each application goes through on its way to weight and bias; its value and gradient mean nothing.
    end: Tensor,
}

impl Repeated {
    /// The map by `weight`, `[out, in]`, and `bias`, `[out]`.
    pub fn new(weight: &Tensor, bias: Option<&Tensor>) -> Self {
        let values = weight.detach().contiguous();
        let inner = Arc::new(Inner {
            forward: strips(&values, true),
            applied: AtomicUsize::new(0),
            back: Mutex::new(Back { weight: values, strips: None, seen: Vec::new() }),
        });
        let end = weight.detach().new_empty([0], (Kind::Float, weight.device()));
        let inputs: Vec<&Tensor> = [weight].into_iter().chain(bias).collect();
        let (of, biased) = (Arc::clone(&inner), bias.is_some());
        functions(CALLED, &inputs, &[&end], move |_| of.gradients(biased));
        Self { inner, bias: bias.map(Tensor::detach), end }
    }

    /// The map of `x`, `[n, in]`, and `add`, `[n, out]`: `[n, out]`.
    pub fn apply(&self, x: &Tensor, add: Option<&Tensor>) -> Tensor {
        let n = x.size()[0];
        let start = match (&self.bias, add) {
            (None, None) => None,
            // Of one row too, what is written to must be no other name for the bias.
            (Some(bias), None) => Some(bias.unsqueeze(0).repeat([n, 1])),
            (None, Some(add)) => Some(add.detach().copy()),
            (Some(bias), Some(add)) => Some(add.detach() + bias),
        };
        let values = x.detach();
        let y = times(&self.inner.forward, &values, start);
        let number = self.inner.applied.fetch_add(1, Ordering::Relaxed);
        let (inner, adds, of_x) = (Arc::clone(&self.inner), add.is_some(), x.requires_grad());
        let of_weight = self.end.requires_grad();
        let inputs: Vec<&Tensor> = [x, &self.end].into_iter().chain(add).collect();
        functions(CALLED, &inputs, &[&y], move |mut grads| {
            let Some(of_y) = grads.pop().flatten() else {
                return (0..2 + usize::from(adds)).map(|_| None).collect();
            };
            let of_y = of_y.contiguous();
            let of_x = of_x.then(|| times(&inner.strips(), &of_y, None));
            if of_weight {
                inner.remember(Application { number, x: values, of_y: of_y.shallow_clone() });
            }
            let of_add = adds.then(|| Some(of_y.shallow_clone()));
            // Nothing, but a defined nothing: an undefined gradient would not let the last node run.
            let of_end = of_y.new_empty([0], (Kind::Float, of_y.device()));
            [of_x, Some(of_end)].into_iter().chain(of_add).collect()
        });
        y
    }
}

impl Inner {
    fn back(&self) -> MutexGuard<'_, Back> {
        self.back.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn strips(&self) -> Arc<Strips> {
        let mut back = self.back();
        let Back { weight, strips: laid_out, .. } = &mut *back;
        Arc::clone(laid_out.get_or_insert_with(|| Arc::new(strips(weight, false))))
    }

    fn remember(&self, application: Application) {
        self.back().seen.push(application);
    }

    /// Gradients of the weight, and of the bias where it is `biased`, of all applications in the order they were made in; none where
    /// none was differentiated.
    fn gradients(&self, biased: bool) -> Vec<Option<Tensor>> {
        let mut seen = std::mem::take(&mut self.back().seen);
        if seen.is_empty() {
            return (0..1 + usize::from(biased)).map(|_| None).collect();
        }
        seen.sort_by_key(|application| application.number);
        let all =
            |part: fn(&Application) -> &Tensor| Tensor::cat(&seen.iter().map(part).collect::<Vec<_>>(), 0);
        let (x, of_y) = (all(|application| &application.x), all(|application| &application.of_y));
        let of_bias = biased.then(|| Some(of_y.sum_dim_intlist(0, false, None::<Kind>)));
        [Some(transposed_product(&of_y, &x))].into_iter().chain(of_bias).collect()
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    fn wave(shape: &[i64], speed: f64) -> Tensor {
        let numel = shape.iter().product::<i64>();
        (Tensor::arange(numel, (Kind::Float, Device::Cpu)) * speed).sin().view(shape)
    }

    /// A recurrence of five positions, each of which reads what the one before wrote; values and gradients of the leaves.
    fn recurrence(leaves: &[Tensor], apply: impl Fn(&Tensor, &Tensor) -> Tensor) -> Vec<Tensor> {
        let mut h = leaves[0].shallow_clone();
        let mut sum = h.sum(None::<Kind>);
        for t in 0..5 {
            h = apply(&h, &(&leaves[3] * f64::from(t))).tanh();
            sum += (&h * wave(&h.size(), 0.37)).sum(None::<Kind>);
        }
        let gradients = Tensor::run_backward(&[sum.shallow_clone()], leaves, false, false);
        std::iter::once(sum.detach()).chain(gradients).collect()
    }

    #[test]
    fn a_recurrence_has_the_values_and_gradients_of_libtorch() {
        for (rows, n) in [(1, 3), (3, 70), (20, 128), (2, 1)] {
            let leaves: Vec<Tensor> = [
                wave(&[rows, n], 0.7),
                wave(&[n, n], 1.3) / (n as f64).sqrt(),
                wave(&[n], 0.9),
                wave(&[rows, n], 0.3),
            ]
            .map(|leaf| leaf.set_requires_grad(true))
            .into();
            let repeated = Repeated::new(&leaves[1], Some(&leaves[2]));
            let ours = recurrence(&leaves, |h, add| repeated.apply(h, Some(add)));
            let doubles: Vec<Tensor> = leaves
                .iter()
                .map(|leaf| leaf.detach().to_kind(Kind::Double).set_requires_grad(true))
                .collect();
            let theirs = recurrence(&doubles, |h, add| h.linear(&doubles[1], Some(&doubles[2])) + add);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                assert_eq!(ours.size(), theirs.size());
                let error = (ours - theirs).abs().max() / theirs.abs().max();
                assert!(error.double_value(&[]) < 2e-6, "{rows} {n}: {error}");
            }
        }
    }

    #[test]
    fn inputs_and_outputs_may_differ_in_width_and_bias_and_addend_may_lack() {
        let (x, weight) = (wave(&[4, 5], 0.7), wave(&[130, 5], 1.3));
        let repeated = Repeated::new(&weight, None);
        let expected = x.linear(&weight, None::<&Tensor>);
        assert!((repeated.apply(&x, None) - &expected).abs().max().double_value(&[]) < 1e-6);
        let bias = wave(&[130], 0.9);
        let repeated = Repeated::new(&weight, Some(&bias));
        assert!((repeated.apply(&x, None) - (expected + bias)).abs().max().double_value(&[]) < 1e-6);
    }

    /// A bias is the same before and after, of one row too, and so is what comes of it.
    #[test]
    fn a_bias_is_read_and_not_written() {
        let (weight, bias) = (wave(&[130, 5], 1.3), wave(&[130], 0.9));
        for rows in [1, 2] {
            let (x, before) = (wave(&[rows, 5], 0.7), bias.copy());
            let repeated = Repeated::new(&weight, Some(&bias));
            let (first, second) = (repeated.apply(&x, None), repeated.apply(&x, None));
            assert!(first.equal(&second) && bias.equal(&before), "{rows} rows");
        }
    }

    #[test]
    fn only_what_wants_a_gradient_gets_one() {
        let (x, weight) = (wave(&[4, 3], 0.7), wave(&[2, 3], 1.3).set_requires_grad(true));
        let repeated = Repeated::new(&weight, None);
        let (first, second) = (repeated.apply(&x, None), repeated.apply(&x, None));
        // The second application has no part in the loss.
        let _ = second;
        first.sum(None::<Kind>).backward();
        let expected = x.sum_dim_intlist(0, false, None::<Kind>).expand([2, 3], false);
        assert!((weight.grad() - expected).abs().max().double_value(&[]) < 1e-6);
        assert!(!x.grad().defined());
        assert!(!tch::no_grad(|| Repeated::new(&weight, None).apply(&x, None)).requires_grad());
        // A weight that is not trained lets gradients through.
        let x = x.set_requires_grad(true);
        let frozen = weight.detach();
        Repeated::new(&frozen, None).apply(&x, None).sum(None::<Kind>).backward();
        let expected = frozen.sum_dim_intlist(0, false, None::<Kind>).expand([4, 3], false);
        assert!((x.grad() - expected).abs().max().double_value(&[]) < 1e-6);
    }

    #[test]
    fn a_gradient_of_a_gradient_is_refused() {
        crate::libtorch::assert_differentiable_once("a repeated linear map", || {
            let leaf = |shape: &[i64], speed| wave(shape, speed).set_requires_grad(true);
            let (x, weight, bias) = (leaf(&[3, 4], 0.7), leaf(&[4, 4], 1.3), leaf(&[4], 0.9));
            let repeated = Repeated::new(&weight, Some(&bias));
            (repeated.apply(&repeated.apply(&x, None), None), vec![x, weight, bias])
        });
    }
}
