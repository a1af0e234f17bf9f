//! Activations with the bias before and the dropout after them by kernels for cards. Nothing but `x` is kept for the way back.

use std::ptr;

use segue_kernels::Kernels;
use segue_kernels::cards::{self, Source, kind_name, params};
use segue_kernels::libtorch::function;
use segue_kernels::noise::DropsOfRows;
use tch::{Kind, Tensor};

use super::Activation;

pub static ACTIVATIONS: Source = Source::new("layers/activation", include_str!("../activation.cu"));

/// Threads of a block, each of which has some columns.
const THREADS: u32 = 128;
/// Columns of a thread, where their number is a multiple of it.
const COLUMNS: i64 = 8;
/// Rows of a thread on the way forward.
const ROWS: i64 = 4;
/// The same on the way back, which it adds up for the gradient of the bias.
const ADDED_ROWS: i64 = 32;

/// Those for `x` where it lies.
pub fn kernels(kernels: Kernels, x: &Tensor) -> Option<cards::Kernels> {
    let made_for = kernels == Kernels::Fused && kind_name(x.kind()).is_some();
    if made_for { ACTIVATIONS.kernels(x) } else { None }
}

/// `activation` of each value of `x` plus `bias`, `[width]`, with dropout, in the kind of `x`.
pub fn activate(
    kernels: cards::Kernels,
    x: &Tensor,
    bias: Option<&Tensor>,
    activation: Activation,
    drops: DropsOfRows,
) -> Tensor {
    let pass = Pass::new(kernels, x, bias, activation, drops);
    let y = pass.forward();
    let inputs: Vec<&Tensor> = [x].into_iter().chain(bias).collect();
    let kind_of_bias = bias.map(Tensor::kind);
    function(c"an activation", &inputs, y, move |grad| {
        let (of_x, of_bias) = pass.backward(&grad.to_kind(pass.x.kind()).contiguous());
        let of_bias = of_bias.zip(kind_of_bias).map(|(of_bias, kind)| Some(of_bias.to_kind(kind)));
        [Some(of_x)].into_iter().chain(of_bias).collect()
    })
}

/// An activation without a graph.
struct Pass {
    kernels: cards::Kernels,
    x: Tensor,
    /// In f32.
    bias: Option<Tensor>,
    rows: i64,
    width: i64,
    activation: Activation,
    drops: DropsOfRows,
}

impl Pass {
    fn new(
        kernels: cards::Kernels,
        x: &Tensor,
        bias: Option<&Tensor>,
        activation: Activation,
        drops: DropsOfRows,
    ) -> Self {
        let x = x.detach().contiguous();
        let width = x.size().last().copied().unwrap_or(1);
        let rows = x.numel() as i64 / width.max(1);
        let bias = bias.map(|bias| bias.detach().to_kind(Kind::Float).contiguous());
        assert!(bias.as_ref().is_none_or(|bias| bias.numel() as i64 == width));
        Self { kernels, x, bias, rows, width, activation, drops }
    }

    fn name(&self, of: &str) -> String {
        format!("{of}_{}", kind_name(self.x.kind()).unwrap_or_default())
    }

    /// As the kernels number them.
    fn which(&self) -> i32 {
        match self.activation {
            Activation::Relu => 0,
            Activation::Gelu => 1,
            Activation::GeluNew => 2,
            Activation::Swish => 3,
        }
    }

    fn bias(&self) -> *mut std::ffi::c_void {
        self.bias.as_ref().map_or(ptr::null_mut(), Tensor::data_ptr)
    }

    /// Columns of a thread where all `tensors` begin where so many are read at once.
    fn columns(&self, tensors: &[&Tensor]) -> i64 {
        let aligned = |tensor: &Tensor| tensor.data_ptr().addr().is_multiple_of(16);
        let all = tensors.iter().copied().chain([&self.x]).chain(&self.bias).all(aligned);
        if self.width % COLUMNS == 0 && all { COLUMNS } else { 1 }
    }

    /// Blocks whose threads have so many columns and rows, and the rows.
    fn blocks(&self, columns: i64, rows: i64) -> ([i64; 2], i64) {
        // The second axis of a grid has no more than 65,535 blocks.
        let part = rows.max((self.rows as u64).div_ceil(65_535) as i64);
        let blocks = ((self.width / columns) as u64).div_ceil(THREADS.into()) as i64;
        ([blocks, (self.rows as u64).div_ceil(part as u64) as i64], part)
    }

    fn forward(&self) -> Tensor {
        let y = self.x.empty_like();
        let columns = self.columns(&[&y]);
        let (blocks, part) = self.blocks(columns, ROWS);
        let (from, bias, to) = (self.x.data_ptr(), self.bias(), y.data_ptr());
        let [rows, width, part, columns] = [self.rows, self.width, part, columns].map(|count| count as i32);
        let (which, drops) = (self.which(), self.drops);
        let arguments = params![from, bias, to, rows, width, part, columns, which, drops];
        // SAFETY: so many rows and columns of one kind, and a bias for each column; `y` was made here.
        unsafe { self.kernels.launch(&self.name("activation"), blocks, THREADS, arguments) };
        y
    }

    /// Gradients of x and of the bias, where there is one.
    fn backward(&self, grad: &Tensor) -> (Tensor, Option<Tensor>) {
        assert!(grad.numel() == self.x.numel());
        let of_x = self.x.empty_like();
        let columns = self.columns(&[grad, &of_x]);
        let (blocks, part) = self.blocks(columns, ADDED_ROWS);
        let sums = self
            .bias
            .as_ref()
            .map(|_| Tensor::empty([blocks[1], self.width], (Kind::Float, self.x.device())));
        let to_sums = sums.as_ref().map_or(ptr::null_mut(), Tensor::data_ptr);
        let (from, bias, from_grad, to) = (self.x.data_ptr(), self.bias(), grad.data_ptr(), of_x.data_ptr());
        let [rows, width, part, columns] = [self.rows, self.width, part, columns].map(|count| count as i32);
        let (which, drops) = (self.which(), self.drops);
        let arguments = params![from, bias, from_grad, to, to_sums, rows, width, part, columns, which, drops];
        // SAFETY: as in `forward`; there are sums of so many parts.
        unsafe { self.kernels.launch(&self.name("activation_back"), blocks, THREADS, arguments) };
        (of_x, sums.map(|sums| sums.sum_dim_intlist(0, false, None::<Kind>)))
    }
}
