//! The norm of a residual and a dropped sum by kernels for cards.

use tch::{Kind, Tensor};

use crate::Kernels;
use crate::cards::{self, Source, kind_name, params};
use crate::libtorch::function;
use crate::noise::Drops;

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

/// The norm of `residual` plus `x` with dropout, in f32; `x` may be in f32, bf16 or f16.
pub fn of_sum(kernels: cards::Kernels, inputs: [&Tensor; 4], epsilon: f32, drops: Drops) -> Tensor {
    let [x, residual, weight, bias] = inputs.map(|tensor| tensor.detach().contiguous());
    let (kind, kind_of_residual) = (x.kind(), residual.kind());
    let residual = residual.to_kind(Kind::Float);
    let sum = NormedSum { kernels, weight, kind, drops };
    let [y, normed, scales] = sum.forward(&x, &residual, &bias, epsilon);
    function(c"the norm of a sum", &inputs, y, move |grad| {
        let [of_x, of_residual, of_weight, of_bias] =
            sum.backward(&grad.to_kind(Kind::Float).contiguous(), &normed, &scales);
        [of_x, of_residual.to_kind(kind_of_residual), of_weight, of_bias].map(Some).into()
    })
}

/// The norm of a sum without a graph.
struct NormedSum {
    kernels: cards::Kernels,
    weight: Tensor,
    kind: Kind,
    drops: Drops,
}

impl NormedSum {
    fn name(&self, of: &str) -> String {
        format!("{of}_{}", kind_name(self.kind).unwrap_or_default())
    }

    fn width(&self) -> i32 {
        self.weight.numel() as i32
    }

    /// The norm, what it was before it was scaled and moved, and what each row was multiplied by for that, `[rows]`.
    fn forward(&self, x: &Tensor, residual: &Tensor, bias: &Tensor, epsilon: f32) -> [Tensor; 3] {
        let (width, float) = (self.width(), (Kind::Float, x.device()));
        let rows = x.numel() as i64 / i64::from(width);
        assert!(
            x.size() == residual.size()
                && x.size().last() == Some(&width.into())
                && bias.numel() == width as usize
        );
        let y = Tensor::empty(x.size(), float);
        let (normed, scales) = (y.empty_like(), Tensor::empty([rows], float));
        let [x, residual, weight, bias] = [x, residual, &self.weight, bias].map(Tensor::data_ptr);
        let [to, to_normed, to_scales] = [&y, &normed, &scales].map(Tensor::data_ptr);
        let drops = self.drops;
        let arguments = params![x, residual, weight, bias, to, to_normed, to_scales, width, epsilon, drops];
        // SAFETY: contiguous tensors of so many rows and columns, in the kinds of the kernel's name; the last three were made here.
        unsafe { self.kernels.launch(&self.name("norm"), [rows, 1], THREADS, arguments) };
        [y, normed, scales]
    }

    /// Gradients of x, the residual, weight and bias.
    fn backward(&self, grad: &Tensor, normed: &Tensor, scales: &Tensor) -> [Tensor; 4] {
        let (width, rows) = (self.width(), scales.numel() as i32);
        let of_x = Tensor::empty(grad.size(), (self.kind, grad.device()));
        let of_residual = grad.empty_like();
        let [from, weight] = [grad, &self.weight].map(Tensor::data_ptr);
        let [normed, scales] = [normed, scales].map(Tensor::data_ptr);
        let [to_x, to_residual] = [&of_x, &of_residual].map(Tensor::data_ptr);
        let drops = self.drops;
        let arguments = params![from, normed, scales, weight, to_x, to_residual, width, drops];
        // SAFETY: as in `forward`.
        unsafe { self.kernels.launch(&self.name("norm_back"), [rows.into(), 1], THREADS, arguments) };
        // Sums of parts, then of these, in an order that shapes alone say.
        // The second axis of a grid has no more than 65,535 blocks.
        let part = (ROWS as i32).max((rows as u64).div_ceil(65_535) as i32);
        let parts = (rows as u64).div_ceil(part as u64) as i64;
        let sums = Tensor::empty([parts, 2, width.into()], (Kind::Float, grad.device()));
        let to_sums = sums.data_ptr();
        let columns = (width as u32).div_ceil(THREADS);
        let arguments = params![from, normed, to_sums, rows, width, part];
        // SAFETY: as in `forward`; there are as many sums as parts.
        unsafe { self.kernels.launch("norm_sums", [columns.into(), parts], THREADS, arguments) };
        let sums = sums.sum_dim_intlist(0, false, None::<Kind>);
        [of_x, of_residual, sums.get(0), sums.get(1)]
    }
}
