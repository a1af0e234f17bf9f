//! Matrix products, each by the fastest routine there is for it here.

use std::ffi::c_char;
use std::ops::Range;
use std::ptr;

use tch::{Device, Kind, Tensor};

use super::places::{Rows, Shared};
use super::strips::Strips;
use super::tiles::{self, Side, Start};
use super::{CppTensor, as_f32, checked, cpp, function, mkl};
use crate::simd::transpose;
use crate::threads;

unsafe extern "C" {
    fn segue_linear(
        x: *mut CppTensor,
        weight: *mut CppTensor,
        bias: *mut CppTensor,
        y: *mut *mut CppTensor,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
}

/// `x`, `[.., in]`, times `weight`, `[out, in]`, transposed, plus `bias`, `[out]`. In f32 on the CPU by tiles, MKL or
/// oneDNN, of which the last is up to a quarter faster than `Tensor::linear` where the processor is not of MKL's maker; differentiable once, as a [`function`].
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if x.kind() != Kind::Float || x.device() != Device::Cpu {
        return x.linear(weight, bias);
    }
    let y = plain_linear(x, weight, bias);
    let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
    let wanted: Vec<bool> = inputs.iter().map(|input| input.requires_grad()).collect();
    let (saved_x, saved_weight) = (x.detach(), weight.detach());
    function(c"a linear layer", &inputs, y, move |grad| {
        let grad = grad.contiguous();
        let of_x = wanted[0].then(|| plain_linear(&grad, &saved_weight.tr(), None));
        let rows = |x: &Tensor| x.reshape([-1, x.size()[x.dim() - 1]]);
        let of_weight = wanted[1].then(|| transposed_product(&rows(&grad), &rows(&saved_x)));
        let of_bias =
            wanted.get(2).map(|wanted| wanted.then(|| rows(&grad).sum_dim_intlist(0, false, None::<Kind>)));
        [of_x, of_weight].into_iter().chain(of_bias).collect()
    })
}

/// The same without a graph.
pub fn plain_linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let [n, k] = [weight.size()[0] as usize, weight.size()[1] as usize];
    let m = x.numel() / k.max(1);
    if tiles::suit([m, n, k]) && x.size().last() == Some(&(k as i64)) {
        return linear_in_tiles(&x.contiguous(), weight, bias);
    }
    if mkl::suit([m, n, k]) {
        return mkl::linear(x, weight, bias);
    }
    by_onednn(x, weight, bias)
}

/// The same by oneDNN.
pub(super) fn by_onednn(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let bias = bias.map_or(ptr::null_mut(), cpp);
    let mut y = ptr::null_mut();
    // SAFETY: live tensors, and a null for none; the shim keeps none of the pointers.
    let made = checked(|message, capacity| unsafe {
        segue_linear(cpp(x), cpp(weight), bias, &mut y, message, capacity)
    });
    if let Err(error) = made {
        panic!("{error}");
    }
    // SAFETY: the call has succeeded and left a tensor of its own that nothing else owns, and `CppTensor` is the type
    // behind tch's pointer.
    unsafe { Tensor::from_ptr(y as *mut _) }
}

/// The same in tiles, of a contiguous `x`.
fn linear_in_tiles(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let [n, k] = [weight.size()[0] as usize, weight.size()[1] as usize];
    let m = x.numel() / k;
    let shape = [&x.size()[..x.dim() - 1], &[n as i64]].concat();
    let mut y = Tensor::empty(shape, (Kind::Float, Device::Cpu));
    let weight = if lies_in_lines(weight) { weight.shallow_clone() } else { weight.contiguous() };
    let bias = bias.map(Tensor::contiguous);
    let to = Shared::of(&mut y);
    // SAFETY: only `y` is written to, which was made here and has `m` rows of `n`.
    unsafe {
        let start = bias.as_ref().map_or(Start::Zero, |bias| Start::Bias(as_f32(bias)));
        tiles::product(Side::rows(as_f32(x), [m, k], k), side(&weight), to, n, start);
    }
    y
}

/// Whether rows or columns of a matrix have their values next to each other.
fn lies_in_lines(matrix: &Tensor) -> bool {
    let (sides, strides) = (matrix.size(), matrix.stride());
    (strides[1] == 1 && strides[0] >= sides[1]) || (strides[0] == 1 && strides[1] >= sides[0])
}

/// The rows of a matrix that [`lies_in_lines`], in f32 on the CPU.
///
/// # Safety
///
/// As of [`as_f32`].
unsafe fn side(matrix: &Tensor) -> Side<'_> {
    let [rows, columns] = [matrix.size()[0] as usize, matrix.size()[1] as usize];
    let strides = [matrix.stride()[0] as usize, matrix.stride()[1] as usize];
    let count = rows.saturating_sub(1) * strides[0] + columns.saturating_sub(1) * strides[1] + 1;
    let is_f32 = matrix.kind() == Kind::Float && matrix.device() == Device::Cpu;
    assert!(is_f32 && matrix.numel() > 0 && lies_in_lines(matrix));
    // SAFETY: so many values lie from the first to the last one; the rest is the caller's.
    let values = unsafe { std::slice::from_raw_parts(matrix.data_ptr() as *const f32, count) };
    if strides[1] == 1 {
        Side::rows(values, [rows, columns], strides[0])
    } else {
        Side::columns(values, [columns, rows], strides[1])
    }
}

/// Columns of the left side that are turned at once, and rows: what is turned stays in the cache.
const TURNED_COLUMNS: usize = 128;
const DEPTH: usize = 256;
/// From one turned row to the next: no power of two, which would lay all of them into the same few lines of the cache.
const TURNED: usize = DEPTH + 16;
/// Columns of the right side that a product reads at once: so many of [`DEPTH`] rows stay in the second cache beside what is turned.
pub const RIGHT_COLUMNS: usize = 64;
/// Columns of the left side for which rows of the right one stay in the cache.
const GROUP: usize = 4 * TURNED_COLUMNS;

/// `left`, `[n, a]`, transposed times `right`, `[n, b]`, both f32 on the CPU: `[a, b]`.
pub fn transposed_product(left: &Tensor, right: &Tensor) -> Tensor {
    let sides = [left.size()[1], right.size()[1], left.size()[0]].map(|side| side as usize);
    if tiles::suit(sides) {
        return in_tiles(&left.contiguous().tr(), &right.contiguous());
    }
    if mkl::suit(sides) {
        return mkl::transposed_product(left, right);
    }
    in_strips(left, right)
}

/// The same in strips.
pub(super) fn in_strips(left: &Tensor, right: &Tensor) -> Tensor {
    let (a, b) = (left.size()[1], right.size()[1]);
    // The wider side is turned: rows of the other then lie close together.
    if b > a {
        return in_strips(right, left).tr();
    }
    let (left, right) = (left.contiguous(), right.contiguous());
    let mut product = Tensor::empty([a, b], (Kind::Float, Device::Cpu));
    let (n, a, b) = (left.size()[0] as usize, a as usize, b as usize);
    if n == 0 {
        return product.zero_();
    }
    let to = Shared::of(&mut product);
    // SAFETY: until the last strip is done, only `product` is written to, which was made here.
    let (from, by) = unsafe { (as_f32(&left), as_f32(&right)) };
    assert!(from.len() == n * a && by.len() == n * b);
    let by = Strips::of(by, [n, b], RIGHT_COLUMNS);
    threads::for_each_part(a, GROUP.min(a.div_ceil(threads::count())), |columns| {
        // SAFETY: no other part has these rows of the product, of which there are as many as `columns`.
        unsafe {
            let to = Rows { start: to.at(columns.start * b), stride: b };
            turned_product(from, a, columns, &by, to);
        }
    });
    product
}

/// `left`, `[m, k]`, times `right`, `[k, n]`, in tiles; of both, rows or columns have their values next to each other.
pub(super) fn in_tiles(left: &Tensor, right: &Tensor) -> Tensor {
    let mut product = Tensor::empty([left.size()[0], right.size()[1]], (Kind::Float, Device::Cpu));
    let columns = right.size()[1] as usize;
    let to = Shared::of(&mut product);
    let right = right.tr();
    // SAFETY: only `product` is written to, which was made here and has all rows.
    unsafe { tiles::product(side(left), side(&right), to, columns, Start::Zero) };
    product
}

/// `to` `[columns, b]` = some columns of `from`, in rows of `stride`, transposed times `by`, `[rows, b]`. On one thread.
///
/// # Safety
///
/// `to` must have as many rows of `b` as there are columns, which nobody else reads or writes meanwhile.
pub unsafe fn turned_product(
    from: &[f32],
    stride: usize,
    columns: Range<usize>,
    by: &Strips,
    to: Rows<*mut f32>,
) {
    assert!(from.len() == by.rows() * stride && columns.end <= stride);
    let mut turned = vec![0f32; TURNED_COLUMNS.min(columns.len()) * TURNED];
    for start in (0..by.rows()).step_by(DEPTH) {
        let depth = start..by.rows().min(start + DEPTH);
        for first in columns.clone().step_by(TURNED_COLUMNS) {
            let own = TURNED_COLUMNS.min(columns.end - first);
            transpose(&from[start * stride + first..], stride, [depth.len(), own], &mut turned, TURNED);
            // SAFETY: `turned` holds a row of the depth for each column; of the product, the caller's.
            unsafe {
                let a = Rows { start: turned.as_ptr(), stride: TURNED };
                let to = Rows { start: to.start.add((first - columns.start) * to.stride), stride: to.stride };
                for strip in 0..by.count() {
                    by.multiply(strip, (a, own), depth.clone(), to, start > 0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Product and gradients of `f` for a loss that weighs every value differently; `weight` is what it sees of the second
    /// input.
    fn product_and_gradients(
        inputs: &[Tensor],
        weight: impl Fn(&Tensor) -> Tensor,
        f: impl Fn(&Tensor, &Tensor, Option<&Tensor>) -> Tensor,
    ) -> Vec<Tensor> {
        let leaves: Vec<Tensor> = inputs.iter().map(|t| t.detach().copy().set_requires_grad(true)).collect();
        let y = f(&leaves[0], &weight(&leaves[1]), leaves.get(2));
        let scale = Tensor::linspace(0.1, 2.0, y.numel() as i64, (y.kind(), Device::Cpu)).view_as(&y);
        (&y * scale).sum(None::<Kind>).backward();
        std::iter::once(y.detach()).chain(leaves.iter().map(Tensor::grad)).collect()
    }

    #[test]
    fn linear_is_the_product_of_libtorch_with_its_gradients() {
        // A weight as XLNet stores it, `[in, out]`, and one that is a part of each row, as heads that read two states have it.
        let transposed: fn(&Tensor) -> Tensor = Tensor::tr;
        let part: fn(&Tensor) -> Tensor = |w| w.view([17, 48]).narrow(1, 24, 24);
        for (kind, limit) in [(Kind::Float, 1e-5), (Kind::Double, 0.0)] {
            let wave = |shape: &[i64], speed: f64| {
                let numel = shape.iter().product::<i64>();
                (Tensor::arange(numel, (kind, Device::Cpu)) * speed).sin().view(shape)
            };
            let (x, bias) = (wave(&[3, 37, 24], 0.7), wave(&[17], 0.9));
            for (stored, weight) in [([24, 17], transposed), ([34, 24], part)] {
                for biased in [false, true] {
                    let mut inputs = vec![x.copy(), wave(&stored, 1.3), bias.copy()];
                    inputs.truncate(if biased { 3 } else { 2 });
                    let ours = product_and_gradients(&inputs, weight, linear);
                    let theirs = product_and_gradients(&inputs, weight, |x, w, b| x.linear(w, b));
                    for (ours, theirs) in ours.iter().zip(&theirs) {
                        assert_eq!((ours.size(), ours.kind()), (theirs.size(), kind));
                        let error = (ours - theirs).abs().max() / theirs.abs().max();
                        assert!(error.double_value(&[]) <= limit, "{kind:?}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_all_shapes_are_those_of_libtorch() {
        for (n, a, b) in [(1, 1, 1), (3, 70, 2), (256, 64, 64), (300, 130, 5), (600, 5, 130), (0, 4, 3)] {
            let wave = |shape: &[i64], speed: f64| {
                let count = shape.iter().product::<i64>();
                (Tensor::arange(count, (Kind::Float, Device::Cpu)) * speed).sin().view(shape)
            };
            let (left, right) = (wave(&[n, a], 0.7), wave(&[n, b], 1.3));
            let exact = left.to_kind(Kind::Double).tr().mm(&right.to_kind(Kind::Double));
            let error = (transposed_product(&left, &right) - exact).abs().max().double_value(&[]);
            assert!(error < 1e-4, "{n} {a} {b}: {error}");
        }
    }

    #[test]
    fn only_what_wants_a_gradient_gets_one() {
        let (x, weight) = (
            Tensor::ones([4, 3], (Kind::Float, Device::Cpu)),
            Tensor::ones([2, 3], (Kind::Float, Device::Cpu)),
        );
        let weight = weight.set_requires_grad(true);
        linear(&x, &weight, None).sum(None::<Kind>).backward();
        assert_eq!(weight.grad(), Tensor::full([2, 3], 4.0, (Kind::Float, Device::Cpu)));
        assert!(!x.grad().defined());
        assert!(!tch::no_grad(|| linear(&x, &weight, None)).requires_grad());
    }

    #[test]
    fn a_gradient_of_a_gradient_is_refused() {
        crate::libtorch::assert_differentiable_once("a linear layer", || {
            let wave = |shape: &[i64], speed: f64| {
                let count = shape.iter().product::<i64>();
                let wave = (Tensor::arange(count, (Kind::Float, Device::Cpu)) * speed).sin().view(shape);
                wave.set_requires_grad(true)
            };
            let (x, weight, bias) = (wave(&[3, 4], 0.7), wave(&[2, 4], 1.3), wave(&[2], 0.9));
            (linear(&x, &weight, Some(&bias)), vec![x, weight, bias])
        });
    }

    #[test]
    #[should_panic(expected = "libtorch")]
    fn shapes_that_do_not_fit_are_told() {
        let x = Tensor::ones([4, 3], (Kind::Float, Device::Cpu));
        let _ = linear(&x, &x, Some(&x.tr()));
    }
}
