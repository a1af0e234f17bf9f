//! Functions of several tensors, place by place, in one pass there and one back.

use std::array;
use std::ffi::CStr;

use tch::Tensor;

use super::function::{Called, KERNEL_ADVICE};
use super::{as_f32, as_f32_mut, functions};
use crate::simd::vectorised;

/// Places that are copied to where nothing else can lie, and computed there: loops over them are then compiled for several at a time.
const BLOCK: usize = 64;

/// Values of so many places, of each of some columns.
type Blocks<const COLUMNS: usize> = [[f32; BLOCK]; COLUMNS];

/// `O` values of `I` numbers, with the way back.
pub trait Pointwise<const I: usize, const O: usize>: Copy + Send + Sync + 'static {
    /// What it is called in errors.
    const NAME: &'static CStr;

    /// The values. Must be inlined always, as must be what it calls.
    fn values(self, x: [f32; I]) -> [f32; O];

    /// What the numbers get of the gradients of the values: Σ_o ∂y_o/∂x_i · of_y_o. Must be inlined always.
    fn slopes(self, x: [f32; I], of_y: [f32; O]) -> [f32; I];
}

/// Where one of the numbers of a place lies: in which tensor, and how far from the begin of its row.
#[derive(Clone, Copy)]
struct Column {
    tensor: usize,
    offset: usize,
}

/// Rows of `n` places, whose numbers stand in `I` columns of several tensors.
#[derive(Clone, Copy)]
struct Layout<const I: usize> {
    rows: usize,
    n: usize,
    columns: [Column; I],
}

impl<const I: usize> Layout<I> {
    /// That of `inputs`, `[rows, k n]` each: a tensor of k columns has k of the numbers, in their order.
    fn of(inputs: &[&Tensor], n: usize) -> Self {
        let rows = inputs[0].size()[0] as usize;
        let mut columns = Vec::with_capacity(I);
        for (tensor, input) in inputs.iter().enumerate() {
            let size = input.size();
            assert!(size.len() == 2 && size[0] as usize == rows && (size[1] as usize).is_multiple_of(n));
            columns.extend((0..size[1] as usize / n).map(|k| Column { tensor, offset: k * n }));
        }
        let columns = columns.try_into().unwrap_or_else(|found: Vec<_>| {
            panic!("{} columns of numbers, expected {I}", found.len());
        });
        Self { rows, n, columns }
    }

    /// Where the values of a column begin in its tensor, for the places from `k` on in a row.
    #[inline(always)]
    fn start(&self, column: usize, row: usize, k: usize, widths: &[usize]) -> usize {
        let Column { tensor, offset } = self.columns[column];
        row * widths[tensor] + offset + k
    }
}

/// `f` of the numbers of each place of `inputs`, `[rows, k n]` each, of which a tensor has k numbers of each place, those of one
/// number side by side: `[rows, n]` each. In f32 on the CPU; differentiable once, as a [`function`](super::function).
pub fn pointwise<const I: usize, const O: usize>(
    inputs: &[&Tensor],
    n: i64,
    f: impl Pointwise<I, O>,
) -> [Tensor; O] {
    let layout = Layout::<I>::of(inputs, n as usize);
    let kept: Vec<Tensor> = inputs.iter().map(|input| input.detach().contiguous()).collect();
    let mut ys: [Tensor; O] =
        array::from_fn(|_| kept[0].new_empty([layout.rows as i64, n], (kept[0].kind(), kept[0].device())));
    run(Values { f, layout, x: slices(&kept), y: ys.each_mut().map(as_f32_mut) });
    let called = Called { name: name(f), advice: KERNEL_ADVICE };
    let outputs: Vec<&Tensor> = ys.iter().collect();
    functions(called, inputs, &outputs, move |grads| {
        let grads: Vec<Option<Tensor>> = grads.into_iter().map(|grad| grad.map(|g| g.contiguous())).collect();
        if grads.iter().all(Option::is_none) {
            return kept.iter().map(|_| None).collect();
        }
        let mut found: Vec<Tensor> = kept.iter().map(Tensor::empty_like).collect();
        // SAFETY: only `found` is written to, which was made here.
        let of_y = array::from_fn(|o| grads[o].as_ref().map(|grad| unsafe { as_f32(grad) }));
        let of_x = found.iter_mut().map(as_f32_mut).collect();
        run(Slopes::<_, I, O> { f, layout, x: slices(&kept), of_y, of_x });
        found.into_iter().map(Some).collect()
    });
    ys
}

fn name<const I: usize, const O: usize, F: Pointwise<I, O>>(_: F) -> &'static CStr {
    F::NAME
}

fn slices(tensors: &[Tensor]) -> Vec<&[f32]> {
    // SAFETY: nobody writes to what a graph keeps.
    tensors.iter().map(|tensor| unsafe { as_f32(tensor) }).collect()
}

/// A loop to be compiled for the processor.
trait Loop {
    /// All of it. Must be inlined always.
    fn go(self);
}

#[inline(always)]
fn run_plain(all: impl Loop) {
    all.go();
}

vectorised! { fn run(all: impl Loop) = run_plain; }

struct Values<'a, F, const I: usize, const O: usize> {
    f: F,
    layout: Layout<I>,
    x: Vec<&'a [f32]>,
    y: [&'a mut [f32]; O],
}

struct Slopes<'a, F, const I: usize, const O: usize> {
    f: F,
    layout: Layout<I>,
    x: Vec<&'a [f32]>,
    of_y: [Option<&'a [f32]>; O],
    of_x: Vec<&'a mut [f32]>,
}

/// Copies `count` places, from `k` on in a row.
#[inline(always)]
fn load<const I: usize>(
    layout: &Layout<I>,
    x: &[&[f32]],
    widths: &[usize],
    [row, k, count]: [usize; 3],
    to: &mut Blocks<I>,
) {
    for (column, to) in to.iter_mut().enumerate() {
        let start = layout.start(column, row, k, widths);
        to[..count].copy_from_slice(&x[layout.columns[column].tensor][start..start + count]);
    }
}

/// Of whole blocks, also where fewer places are asked for: a loop of a length that is not known would take the rest one by one.
#[inline(always)]
fn values<const I: usize, const O: usize>(f: impl Pointwise<I, O>, x: &Blocks<I>, y: &mut Blocks<O>) {
    for k in 0..BLOCK {
        let values = f.values(array::from_fn(|column| x[column][k]));
        for (y, value) in y.iter_mut().zip(values) {
            y[k] = value;
        }
    }
}

#[inline(always)]
fn slopes<const I: usize, const O: usize>(
    f: impl Pointwise<I, O>,
    x: &Blocks<I>,
    of_y: &Blocks<O>,
    of_x: &mut Blocks<I>,
) {
    for k in 0..BLOCK {
        let slopes =
            f.slopes(array::from_fn(|column| x[column][k]), array::from_fn(|column| of_y[column][k]));
        for (of_x, slope) in of_x.iter_mut().zip(slopes) {
            of_x[k] = slope;
        }
    }
}

impl<F: Pointwise<I, O>, const I: usize, const O: usize> Loop for Values<'_, F, I, O> {
    #[inline(always)]
    fn go(self) {
        let Self { f, layout, x, mut y } = self;
        let widths: Vec<usize> = x.iter().map(|x| x.len() / layout.rows.max(1)).collect();
        let (mut numbers, mut found) = ([[0.0; BLOCK]; I], [[0.0; BLOCK]; O]);
        for row in 0..layout.rows {
            for k in (0..layout.n).step_by(BLOCK) {
                let count = BLOCK.min(layout.n - k);
                load(&layout, &x, &widths, [row, k, count], &mut numbers);
                values(f, &numbers, &mut found);
                let start = row * layout.n + k;
                for (y, found) in y.iter_mut().zip(&found) {
                    y[start..start + count].copy_from_slice(&found[..count]);
                }
            }
        }
    }
}

impl<F: Pointwise<I, O>, const I: usize, const O: usize> Loop for Slopes<'_, F, I, O> {
    #[inline(always)]
    fn go(self) {
        let Self { f, layout, x, of_y, mut of_x } = self;
        let widths: Vec<usize> = x.iter().map(|x| x.len() / layout.rows.max(1)).collect();
        let (mut numbers, mut found) = ([[0.0; BLOCK]; I], [[0.0; BLOCK]; I]);
        // Those of values that got no gradient stay 0.
        let mut grads = [[0.0; BLOCK]; O];
        for row in 0..layout.rows {
            for k in (0..layout.n).step_by(BLOCK) {
                let count = BLOCK.min(layout.n - k);
                load(&layout, &x, &widths, [row, k, count], &mut numbers);
                let start = row * layout.n + k;
                for (grad, from) in grads.iter_mut().zip(&of_y) {
                    if let Some(from) = from {
                        grad[..count].copy_from_slice(&from[start..start + count]);
                    }
                }
                slopes(f, &numbers, &grads, &mut found);
                for (column, found) in found.iter().enumerate() {
                    let start = layout.start(column, row, k, &widths);
                    of_x[layout.columns[column].tensor][start..start + count]
                        .copy_from_slice(&found[..count]);
                }
            }
        }
    }
}
