//! The recurrence of a quasi-recurrent layer: one pass over the positions there and one back where a kernel of ours can, tensor by tensor
//! elsewhere.

use segue_kernels::Kernels;
use segue_kernels::libtorch::{Called, KERNEL_ADVICE, Shared, as_f32, functions};
use segue_kernels::simd::vectorised;
use segue_kernels::threads;
use tch::Tensor;

use super::gates::{sigmoid, sigmoid_slope, tanh, tanh_slope};

const CALLED: Called = Called { name: c"a pooling recurrence", advice: KERNEL_ADVICE };

/// h of each position, `[positions, lanes, n]`, and c after the last, `[lanes, n]`, by `scores` of f, z and o before their squashing, side by
/// side, `[positions, lanes, 3 n]`, and c before the first, `[lanes, n]`: c = f ⊙ c' + (1 − f) ⊙ z, h = o ⊙ c (Bradbury et al. 2017, eq. 4,
/// without an input gate).
pub(super) fn pool(kernels: Kernels, scores: &Tensor, cell: &Tensor) -> (Tensor, Tensor) {
    if kernels.fuse(scores) {
        return fused(scores, cell);
    }
    let n = cell.size()[1];
    let mut cell = cell.shallow_clone();
    let f = scores.narrow(-1, 0, n).sigmoid();
    let written: Tensor = (1.0 - &f) * scores.narrow(-1, n, n).tanh();
    let step = |(f, written): (Tensor, Tensor)| {
        cell = f * &cell + written;
        cell.shallow_clone()
    };
    let cells: Vec<Tensor> = f.unbind(0).into_iter().zip(written.unbind(0)).map(step).collect();
    (scores.narrow(-1, 2 * n, n).sigmoid() * Tensor::stack(&cells, 0), cell)
}

/// Positions, lanes and places of a recurrence.
#[derive(Clone, Copy)]
struct Sizes {
    positions: usize,
    lanes: usize,
    n: usize,
}

impl Sizes {
    /// Number of the row of a lane at a position, in tables of all of them.
    fn row(self, position: usize, lane: usize) -> usize {
        position * self.lanes + lane
    }
}

/// Part `number` of the parts of `n` values.
#[inline(always)]
fn part(values: &[f32], number: usize, n: usize) -> &[f32] {
    &values[number * n..][..n]
}

fn fused(scores: &Tensor, start: &Tensor) -> (Tensor, Tensor) {
    let size = scores.size();
    let sizes = Sizes { positions: size[0] as usize, lanes: size[1] as usize, n: start.size()[1] as usize };
    let [kept, first] = [scores, start].map(|tensor| tensor.detach().contiguous());
    let options = (kept.kind(), kept.device());
    let mut hidden = Tensor::empty([size[0], size[1], start.size()[1]], options);
    let (mut cells, mut last) = (hidden.empty_like(), first.copy());
    assert!(kept.numel() == 3 * hidden.numel() && first.numel() == sizes.lanes * sizes.n);
    {
        let [h, c, state] = [&mut hidden, &mut cells, &mut last].map(Shared::of);
        // SAFETY: only `hidden`, `cells` and `last` are written to, which were made here.
        let scores = unsafe { as_f32(&kept) };
        let n = sizes.n;
        threads::for_each(sizes.lanes, |lane| {
            // SAFETY: nobody else has the rows of this lane.
            let state = unsafe { state.slice(lane * n..(lane + 1) * n) };
            for position in 0..sizes.positions {
                let row = sizes.row(position, lane);
                // SAFETY: as above.
                let (h, c) = unsafe { (h.slice(row * n..(row + 1) * n), c.slice(row * n..(row + 1) * n)) };
                step(part(scores, row, 3 * n), state, h);
                c.copy_from_slice(state);
            }
        });
    }
    functions(CALLED, &[scores, start], &[&hidden, &last], move |grads| {
        gradients(sizes, &kept, &first, &cells, &grads)
    });
    (hidden, last)
}

/// Gradients of scores and first c by those of h, `[positions, lanes, n]`, and of the last c, `[lanes, n]`.
fn gradients(
    sizes: Sizes,
    scores: &Tensor,
    first: &Tensor,
    cells: &Tensor,
    grads: &[Option<Tensor>],
) -> Vec<Option<Tensor>> {
    let [of_h, of_last] = grads else { return vec![None, None] };
    let of_h = of_h.as_ref().map_or_else(|| cells.zeros_like(), Tensor::contiguous);
    let mut of_cell = of_last.as_ref().map_or_else(|| first.zeros_like(), |grad| grad.contiguous().copy());
    let mut of_scores = scores.empty_like();
    {
        let [to, state] = [&mut of_scores, &mut of_cell].map(Shared::of);
        // SAFETY: only `of_scores` and `of_cell` are written to, which were made here.
        let (scores, first, cells, of_h) =
            unsafe { (as_f32(scores), as_f32(first), as_f32(cells), as_f32(&of_h)) };
        let n = sizes.n;
        threads::for_each(sizes.lanes, |lane| {
            // SAFETY: nobody else has the rows of this lane.
            let of_cell = unsafe { state.slice(lane * n..(lane + 1) * n) };
            for position in (0..sizes.positions).rev() {
                let row = sizes.row(position, lane);
                let before = match position {
                    0 => part(first, lane, n),
                    _ => part(cells, sizes.row(position - 1, lane), n),
                };
                // SAFETY: as above.
                let to = unsafe { to.slice(3 * row * n..3 * (row + 1) * n) };
                back(
                    part(scores, row, 3 * n),
                    [before, part(cells, row, n), part(of_h, row, n)],
                    of_cell,
                    to,
                );
            }
        });
    }
    vec![Some(of_scores), Some(of_cell)]
}

vectorised! { fn step(scores: &[f32], cell: &mut [f32], hidden: &mut [f32]) = step_plain; }

/// One position of a lane: c' becomes c.
#[inline(always)]
fn step_plain(scores: &[f32], cell: &mut [f32], hidden: &mut [f32]) {
    let n = cell.len();
    let (f, z, o) = (part(scores, 0, n), part(scores, 1, n), part(scores, 2, n));
    for ((((c, h), f), z), o) in cell.iter_mut().zip(hidden).zip(f).zip(z).zip(o) {
        let (f, z) = (sigmoid(*f), tanh(*z));
        *c = f.mul_add(*c - z, z);
        *h = sigmoid(*o) * *c;
    }
}

vectorised! { fn back(scores: &[f32], seen: [&[f32]; 3], of_cell: &mut [f32], of_scores: &mut [f32]) = back_plain; }

/// The way back through it. `seen`: c', c, and the gradient of h; `of_cell`: the gradient of c by what comes later, which becomes that of c'.
#[inline(always)]
fn back_plain(scores: &[f32], [before, cell, of_h]: [&[f32]; 3], of_cell: &mut [f32], of_scores: &mut [f32]) {
    let n = of_cell.len();
    let (f, z, o) = (part(scores, 0, n), part(scores, 1, n), part(scores, 2, n));
    let (to_f, rest) = of_scores.split_at_mut(n);
    let (to_z, to_o) = rest.split_at_mut(n);
    for k in 0..n {
        let (f, z, o) = (sigmoid(f[k]), tanh(z[k]), sigmoid(o[k]));
        let of_c = of_h[k].mul_add(o, of_cell[k]);
        to_f[k] = of_c * (before[k] - z) * sigmoid_slope(f);
        to_z[k] = of_c * (1.0 - f) * tanh_slope(z);
        to_o[k] = of_h[k] * cell[k] * sigmoid_slope(o);
        of_cell[k] = of_c * f;
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    fn wave(shape: &[i64], speed: f64, kind: Kind) -> Tensor {
        let values = Tensor::arange(shape.iter().product::<i64>(), (Kind::Double, Device::Cpu));
        ((values * speed).sin() * 2.0).view(shape).to_kind(kind)
    }

    fn leaves([positions, lanes, n]: [i64; 3], kind: Kind) -> [Tensor; 2] {
        [wave(&[positions, lanes, 3 * n], 0.7, kind), wave(&[lanes, n], 1.1, kind)]
    }

    /// A number that all of h and c count in.
    fn total(kernels: Kernels, scores: &Tensor, cell: &Tensor) -> Tensor {
        let (hidden, last) = pool(kernels, scores, cell);
        let weighed = |x: &Tensor, speed| (x * wave(&x.size(), speed, x.kind())).sum(None::<Kind>);
        weighed(&hidden, 0.37) + weighed(&last, 0.41)
    }

    /// Row S16.
    #[test]
    fn gradients_are_those_of_finite_differences() {
        let [scores, cell] = leaves([3, 2, 2], Kind::Double).map(|leaf| leaf.set_requires_grad(true));
        total(Kernels::Plain, &scores, &cell).backward();
        const STEP: f64 = 1e-6;
        for (which, leaf) in [&scores, &cell].into_iter().enumerate() {
            for place in 0..leaf.numel() as i64 {
                let moved = |by: f64| {
                    let copies = [&scores, &cell].map(|leaf| leaf.detach().copy());
                    let _ = copies[which].view([-1]).get(place).g_add_scalar_(by);
                    total(Kernels::Plain, &copies[0], &copies[1]).double_value(&[])
                };
                let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                let found = leaf.grad().view([-1]).double_value(&[place]);
                assert!((found - expected).abs() < 1e-8, "{which}, {place}: {found} instead of {expected}");
            }
        }
    }

    /// Widths that are no multiple of what is computed side by side, one position, one lane.
    /// Row S16.
    #[test]
    fn the_kernel_is_that_of_double_precision() {
        for sizes in [[7, 3, 37], [1, 2, 16], [5, 1, 1]] {
            let of = |kernels, kind| {
                let leaves = leaves(sizes, kind).map(|leaf| leaf.set_requires_grad(true));
                let (hidden, last) = pool(kernels, &leaves[0], &leaves[1]);
                let grads =
                    Tensor::run_backward(&[total(kernels, &leaves[0], &leaves[1])], &leaves, false, false);
                [hidden.detach(), last.detach()].into_iter().chain(grads).collect::<Vec<_>>()
            };
            let (ours, exact) = (of(Kernels::Fused, Kind::Float), of(Kernels::Plain, Kind::Double));
            for (ours, exact) in ours.iter().zip(&exact) {
                assert_eq!(ours.size(), exact.size());
                let error = (ours - exact).abs().max().double_value(&[]);
                assert!(error < 5e-6, "{sizes:?}: {error:e}");
            }
        }
    }

    /// Row S16.
    #[test]
    fn what_has_no_part_in_the_loss_has_no_gradient() {
        for kernels in [Kernels::Fused, Kernels::Plain] {
            let gradients = |last: bool| {
                let leaves = leaves([4, 2, 5], Kind::Float).map(|leaf| leaf.set_requires_grad(true));
                let (hidden, cell) = pool(kernels, &leaves[0], &leaves[1]);
                if last { cell } else { hidden }.sum(None::<Kind>).backward();
                leaves[0].grad()
            };
            // c does not go through o.
            assert_eq!(gradients(true).narrow(-1, 10, 5).abs().max().double_value(&[]), 0.0);
            assert!(gradients(false).narrow(-1, 10, 5).abs().min().double_value(&[]) > 0.0);
        }
    }

    /// Row S16.
    #[test]
    fn a_gradient_of_a_gradient_is_refused() {
        segue_kernels::libtorch::assert_differentiable_once("a pooling recurrence", || {
            let leaves = leaves([3, 2, 5], Kind::Float).map(|leaf| leaf.set_requires_grad(true));
            let (hidden, last) = pool(Kernels::Fused, &leaves[0], &leaves[1]);
            (hidden + last, leaves.into())
        });
    }
}
