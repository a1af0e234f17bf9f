//! The norm of a residual and a dropped sum by kernels for cards.

use std::ffi::c_void;
use std::ptr;

use segue_kernels::Kernels;
use segue_kernels::cards::{self, Source, kind_name, params};
use segue_kernels::libtorch::{Called, KERNEL_ADVICE, functions};
use segue_kernels::noise::DropsOfRows;
use tch::{Kind, Tensor};

pub static NORMS: Source = Source::new("layers/norm", include_str!("../norm.cu"));

/// Threads of a block, which has a row or that many columns.
const THREADS: u32 = 128;
/// Rows that one thread adds up for the gradients of weight and bias.
const ROWS: i64 = 64;

/// Those that norm `x` where it lies, with weights of this kind.
pub fn kernels(kernels: Kernels, x: &Tensor, weight: &Tensor) -> Option<cards::Kernels> {
    let made_for = kernels == Kernels::Fused && kind_name(x.kind()).is_some() && weight.kind() == Kind::Float;
    if made_for { NORMS.kernels(x) } else { None }
}

/// What is normed: a residual plus what is dropped of `x` and its bias.
pub struct Terms<'a> {
    /// In f32, bf16 or f16.
    pub x: &'a Tensor,
    /// `[width]`, of what has made `x`.
    pub bias: Option<&'a Tensor>,
    pub residual: &'a Tensor,
}

/// The norm of a sum by `weight` and `bias`, in f32, and the same in the kind of `x` where `rounds`. One kernel writes both, and one adds up what
/// comes back to them.
pub fn of_sum(
    kernels: cards::Kernels,
    terms: Terms,
    [weight, bias]: [&Tensor; 2],
    epsilon: f32,
    drops: DropsOfRows,
    rounds: bool,
) -> (Tensor, Option<Tensor>) {
    let whole = |tensor: &Tensor| tensor.detach().to_kind(Kind::Float).contiguous();
    let (kind, kind_of_residual) = (terms.x.kind(), terms.residual.kind());
    let added = terms.bias.map(whole);
    let sum = NormedSum { kernels, weight: whole(weight), kind, drops, adds: added.is_some() };
    let x = terms.x.detach().contiguous();
    let (normed, ys) =
        sum.forward([&x, &whole(terms.residual), &whole(bias)], added.as_ref(), epsilon, rounds);
    let inputs: Vec<&Tensor> =
        [terms.x, terms.residual, weight, bias].into_iter().chain(terms.bias).collect();
    let kinds = [weight, bias].map(Tensor::kind);
    let kind_of_added = terms.bias.map(Tensor::kind);
    let values: Vec<&Tensor> = [&ys.0].into_iter().chain(&ys.1).collect();
    let count = inputs.len();
    let called = Called { name: c"the norm of a sum", advice: KERNEL_ADVICE };
    functions(called, &inputs, &values, move |mut grads| {
        let rounded = if grads.len() > 1 { grads.pop().flatten() } else { None };
        let grad = grads.pop().flatten().map(|grad| grad.to_kind(Kind::Float).contiguous());
        let rounded = rounded.map(|grad| grad.to_kind(kind).contiguous());
        if grad.is_none() && rounded.is_none() {
            return (0..count).map(|_| None).collect();
        }
        let [of_x, of_residual, sums] = sum.backward([grad.as_ref(), rounded.as_ref()], &normed);
        let mut found = vec![of_x, of_residual.to_kind(kind_of_residual)];
        found.extend((0..).zip(kinds).map(|(i, kind)| sums.get(i).to_kind(kind)));
        found.extend(kind_of_added.map(|kind| sums.get(2).to_kind(kind)));
        found.into_iter().map(Some).collect()
    });
    ys
}

/// The norm of a sum without a graph.
struct NormedSum {
    kernels: cards::Kernels,
    weight: Tensor,
    kind: Kind,
    drops: DropsOfRows,
    /// Whether `x` has a bias.
    adds: bool,
}

/// What a norm leaves for the way back.
struct Normed {
    /// The sum before it was scaled and moved.
    values: Tensor,
    /// What each row was multiplied by for that, `[rows]`.
    scales: Tensor,
}

fn place(tensor: Option<&Tensor>) -> *mut c_void {
    tensor.map_or(ptr::null_mut(), Tensor::data_ptr)
}

impl NormedSum {
    fn name(&self, of: &str) -> String {
        format!("{of}_{}", kind_name(self.kind).unwrap_or_default())
    }

    fn width(&self) -> i32 {
        self.weight.numel() as i32
    }

    /// The norm, and the same rounded where it `rounds`.
    fn forward(
        &self,
        [x, residual, bias]: [&Tensor; 3],
        added: Option<&Tensor>,
        epsilon: f32,
        rounds: bool,
    ) -> (Normed, (Tensor, Option<Tensor>)) {
        let (width, float) = (self.width(), (Kind::Float, x.device()));
        let rows = x.numel() as i64 / i64::from(width);
        assert!(
            x.size() == residual.size()
                && x.size().last() == Some(&width.into())
                && bias.numel() == width as usize
                && added.is_none_or(|added| added.numel() == width as usize)
        );
        let y = Tensor::empty(x.size(), float);
        let rounded = rounds.then(|| x.empty_like());
        let normed = Normed { values: y.empty_like(), scales: Tensor::empty([rows], float) };
        let added = place(added);
        let [x, residual, weight, bias] = [x, residual, &self.weight, bias].map(Tensor::data_ptr);
        let [to, to_normed, to_scales] = [&y, &normed.values, &normed.scales].map(Tensor::data_ptr);
        let (to_rounded, drops) = (place(rounded.as_ref()), self.drops);
        let arguments = params![
            x, added, residual, weight, bias, to, to_rounded, to_normed, to_scales, width, epsilon, drops
        ];
        // SAFETY: contiguous tensors of so many rows and columns, in the kinds of the kernel's name; what is written was made here.
        unsafe { self.kernels.launch(&self.name("norm"), [rows, 1], THREADS, arguments) };
        (normed, (y, rounded))
    }

    /// Gradients of x and the residual, and those of weight, bias and x's bias, `[2 or 3, width]`, from those of the norm and of what was rounded.
    fn backward(&self, [grad, rounded]: [Option<&Tensor>; 2], normed: &Normed) -> [Tensor; 3] {
        let (width, rows) = (self.width(), normed.scales.numel() as i32);
        let size = normed.values.size();
        assert!([grad, rounded].into_iter().flatten().all(|grad| grad.size() == size));
        let of_x = Tensor::empty(&size[..], (self.kind, normed.values.device()));
        let of_residual = normed.values.empty_like();
        let (from, from_rounded, weight) = (place(grad), place(rounded), self.weight.data_ptr());
        let [values, scales] = [&normed.values, &normed.scales].map(Tensor::data_ptr);
        let [to_x, to_residual] = [&of_x, &of_residual].map(Tensor::data_ptr);
        let drops = self.drops;
        let arguments = params![from, from_rounded, values, scales, weight, to_x, to_residual, width, drops];
        // SAFETY: as in `forward`.
        unsafe { self.kernels.launch(&self.name("norm_back"), [rows.into(), 1], THREADS, arguments) };
        // Sums of parts, then of these, in an order that shapes alone say.
        // The second axis of a grid has no more than 65,535 blocks.
        let part = (ROWS as i32).max((rows as u64).div_ceil(65_535) as i32);
        let parts = (rows as u64).div_ceil(part as u64) as i64;
        let of_each = if self.adds { 3 } else { 2 };
        let sums = Tensor::empty([parts, of_each, width.into()], (Kind::Float, of_x.device()));
        let to_sums = sums.data_ptr();
        let added_up = if self.adds { to_x } else { ptr::null_mut() };
        let columns = (width as u32).div_ceil(THREADS);
        let arguments = params![from, from_rounded, values, added_up, to_sums, rows, width, part];
        // SAFETY: as in `forward`; there are as many sums as parts.
        unsafe { self.kernels.launch(&self.name("norm_sums"), [columns.into(), parts], THREADS, arguments) };
        [of_x, of_residual, sums.sum_dim_intlist(0, false, None::<Kind>)]
    }
}
