//! The cross-entropy of a linear layer by kernels for cards. Scores are of the products' type, and nothing of their size is made but them: on the
//! way forward they are read once, on the way back they become their own gradient in place.

use std::ops::Range;
use std::ptr;

use segue_kernels::Kernels;
use segue_kernels::cards::{self, Source, THREADS, kind_name, params};
use segue_kernels::libtorch::{Autocast, function};
use tch::{Kind, Tensor};

use super::Words;

pub static CROSS_ENTROPY: Source = Source::new("layers/cross_entropy", include_str!("../cross_entropy.cu"));

/// Columns of scores are a multiple of it: products of other numbers go to much slower kernels, and ours take so many at once.
const COLUMNS: i64 = 8;
/// Scores that are made at once: 256 MiB in 16 bits.
const CHUNK: i64 = 1 << 27;
/// Scores of a pass that are kept for the way back. Of more than these each chunk is made again.
const KEPT: i64 = 1 << 29;
/// Rows that one thread adds up for the gradient of biases.
const ROWS: i64 = 64;
/// Threads of a block on the way back, which have eight columns each.
const THREADS_OF_COLUMNS: u32 = 128;
/// What a card reads at once.
const ALIGNMENT: usize = 16;

/// Most scores that are made at once, and that are kept.
#[derive(Clone, Copy)]
pub struct Limits {
    pub chunk: i64,
    pub kept: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { chunk: CHUNK, kept: KEPT }
    }
}

/// Those for scores of `parts` where `hidden` lies.
pub fn kernels(kernels: Kernels, hidden: &Tensor, parts: &[Words]) -> Option<cards::Kernels> {
    let known = |tensor: &Tensor| kind_name(tensor.kind()).is_some();
    let made_for = kernels == Kernels::Fused && known(hidden) && parts.iter().all(|part| known(&part.weight));
    if made_for { CROSS_ENTROPY.kernels(hidden) } else { None }
}

/// As [`super::nll`], in f32. The type of products is that of this thread's casts, or that of `hidden`. A target that is no word has no number for
/// a loss: nothing waits for a card to look.
pub fn nll(
    kernels: cards::Kernels,
    hidden: &Tensor,
    parts: &[Words],
    targets: &Tensor,
    margins: Option<&Tensor>,
    limits: Limits,
) -> Tensor {
    let kind = Autocast::kind_on(hidden.device()).unwrap_or(hidden.kind());
    let tables = parts.iter().flat_map(|part| [Some(&part.weight), part.bias.as_ref()]).flatten();
    let inputs: Vec<&Tensor> = [hidden].into_iter().chain(tables).chain(margins).collect();
    let keep = inputs.iter().any(|input| input.narrow(0, 0, 0).requires_grad());
    let scored = Scored {
        kernels,
        kind,
        hidden: hidden.detach().to_kind(kind).contiguous(),
        table: Table::new(parts, kind),
        targets: targets.contiguous(),
        margins: margins.map(|margins| margins.detach().to_kind(Kind::Float).contiguous()),
    };
    let (nll, read) = scored.forward(keep, limits);
    let kinds: Vec<(Kind, Option<Kind>)> =
        parts.iter().map(|part| (part.weight.kind(), part.bias.as_ref().map(Tensor::kind))).collect();
    let counts: Vec<i64> = parts.iter().map(|part| part.count() as i64).collect();
    let kind_of_hidden = hidden.kind();
    let lowered = margins.map(|margins| (nll.detach(), margins.kind()));
    function(c"a cross-entropy", &inputs, nll, move |grad| {
        let grad = grad.to_kind(Kind::Float).contiguous();
        // A margin counts as much as the target's score, the other way: 1 − P.
        let of_margins = lowered.map(|(nll, kind)| (-&grad * (-nll).expm1()).to_kind(kind));
        let [of_hidden, of_weight, of_bias] = scored.backward(&grad, read, limits);
        let mut found = vec![Some(of_hidden.to_kind(kind_of_hidden))];
        let mut first = 0;
        for ((of_weights, of_biases), count) in kinds.into_iter().zip(counts) {
            found.push(Some(of_weight.narrow(0, first, count).to_kind(of_weights)));
            found.extend(of_biases.map(|kind| Some(of_bias.narrow(0, first, count).to_kind(kind))));
            first += count;
        }
        found.extend(of_margins.map(Some));
        found
    })
}

/// All words, of one type.
struct Table {
    /// `[columns, width]`, with zeros after the words.
    weight: Tensor,
    /// `[columns]`, in f32.
    bias: Option<Tensor>,
    words: i64,
}

impl Table {
    fn new(parts: &[Words], kind: Kind) -> Self {
        tch::no_grad(|| {
            let words = parts.iter().map(|part| part.count() as i64).sum();
            match parts {
                [part] if words % COLUMNS == 0 => Self {
                    weight: part.weight.detach().to_kind(kind).contiguous(),
                    bias: part.bias.as_ref().map(|bias| aligned(bias.detach().to_kind(Kind::Float))),
                    words,
                },
                _ => Self::joined(parts, words, kind),
            }
        })
    }

    fn joined(parts: &[Words], words: i64, kind: Kind) -> Self {
        let (width, device) = (parts[0].weight.size()[1], parts[0].weight.device());
        let columns = (words as u64).next_multiple_of(COLUMNS as u64) as i64;
        let weight = Tensor::empty([columns, width], (kind, device));
        let biased = parts.iter().any(|part| part.bias.is_some());
        let bias = biased.then(|| Tensor::zeros([columns], (Kind::Float, device)));
        let mut first = 0;
        for part in parts {
            let count = part.count() as i64;
            weight.narrow(0, first, count).copy_(&part.weight);
            if let Some((to, bias)) = bias.as_ref().zip(part.bias.as_ref()) {
                to.narrow(0, first, count).copy_(bias);
            }
            first += count;
        }
        let _ = weight.narrow(0, words, columns - words).zero_();
        Self { weight, bias, words }
    }

    fn columns(&self) -> i64 {
        self.weight.size()[0]
    }

    fn bias(&self) -> *mut std::ffi::c_void {
        self.bias.as_ref().map_or(ptr::null_mut(), Tensor::data_ptr)
    }
}

/// `tensor`, where a card reads several of its values at once.
fn aligned(tensor: Tensor) -> Tensor {
    let tensor = tensor.contiguous();
    if tensor.data_ptr().addr().is_multiple_of(ALIGNMENT) { tensor } else { tensor.copy() }
}

/// What scores are made of.
struct Scored {
    kernels: cards::Kernels,
    kind: Kind,
    /// `[n, width]`
    hidden: Tensor,
    table: Table,
    /// `[n]`
    targets: Tensor,
    /// `[n]`
    margins: Option<Tensor>,
}

/// What the way forward leaves for the way back.
struct Read {
    /// ln Σ exp of each row's scores, `[n]`.
    log_sums: Tensor,
    /// All scores, where they are kept.
    scores: Option<Tensor>,
}

impl Scored {
    fn rows(&self) -> i64 {
        self.hidden.size()[0]
    }

    /// Rows whose scores are made at once: all that are kept, or chunks.
    fn chunks(&self, keep: bool, limits: Limits) -> Vec<Range<i64>> {
        let (rows, columns) = (self.rows(), self.table.columns().max(1));
        let own = if keep && rows * columns <= limits.kept { rows } else { limits.chunk / columns };
        (0..rows).step_by(own.max(1) as usize).map(|start| start..rows.min(start + own.max(1))).collect()
    }

    fn name(&self, of: &str) -> String {
        format!("{of}_{}", kind_name(self.kind).unwrap_or_default())
    }

    /// Without biases, `[rows, columns]`.
    fn scores(&self, rows: &Range<i64>) -> Tensor {
        self.cut(&self.hidden, rows).mm(&self.table.weight.tr())
    }

    fn cut(&self, x: &Tensor, rows: &Range<i64>) -> Tensor {
        x.narrow(0, rows.start, rows.end - rows.start)
    }

    /// −ln P of the targets, `[n]`.
    fn forward(&self, keep: bool, limits: Limits) -> (Tensor, Read) {
        let options = (Kind::Float, self.hidden.device());
        let nll = Tensor::empty([self.rows()], options);
        assert!(
            self.targets.size() == nll.size() && self.targets.kind() == Kind::Int64,
            "a target for each row"
        );
        assert!(self.margins.as_ref().is_none_or(|margins| margins.size() == nll.size()));
        let log_sums = nll.empty_like();
        let mut kept = None;
        let chunks = self.chunks(keep, limits);
        for rows in &chunks {
            let scores = self.scores(rows);
            let [to, to_log_sums] = [&nll, &log_sums].map(|x| self.cut(x, rows).data_ptr());
            let (from, bias) = (scores.data_ptr(), self.table.bias());
            let (targets, margins) = self.of_rows(rows);
            let [words, stride] = [self.table.words, self.table.columns()].map(|count| count as i32);
            let arguments = params![from, bias, targets, margins, to, to_log_sums, words, stride];
            let blocks = [rows.end - rows.start, 1];
            // SAFETY: contiguous tensors of so many rows and columns, in the kinds of the kernel's name; what is written was made here.
            unsafe { self.kernels.launch(&self.name("cross_entropy"), blocks, THREADS, arguments) };
            kept = (keep && chunks.len() == 1).then_some(scores);
        }
        (nll, Read { log_sums, scores: kept })
    }

    /// Where targets and margins of these rows lie.
    fn of_rows(&self, rows: &Range<i64>) -> (*mut std::ffi::c_void, *mut std::ffi::c_void) {
        let margins = self.margins.as_ref();
        let margins = margins.map_or(ptr::null_mut(), |margins| self.cut(margins, rows).data_ptr());
        (self.cut(&self.targets, rows).data_ptr(), margins)
    }

    /// Gradients of the hidden states, of the table, `[columns, width]`, and of the biases, `[columns]` in f32, for that of −ln P.
    fn backward(self, grad: &Tensor, mut read: Read, limits: Limits) -> [Tensor; 3] {
        let chunks = match read.scores {
            Some(_) => std::iter::once(0..self.rows()).collect(),
            None => self.chunks(false, limits),
        };
        let (mut of_hidden, mut of_table) = (Vec::new(), None::<[Tensor; 2]>);
        for rows in &chunks {
            let scores = read.scores.take().unwrap_or_else(|| self.scores(rows));
            let of_bias = self.differentiate(rows, &scores, &read.log_sums, grad);
            of_hidden.push(scores.mm(&self.table.weight));
            let of_weight = scores.tr().mm(&self.cut(&self.hidden, rows));
            of_table = Some(match of_table {
                // Of several chunks the sum is in single precision.
                None if chunks.len() > 1 => [of_weight.to_kind(Kind::Float), of_bias],
                None => [of_weight, of_bias],
                Some([mut weight, mut bias]) => [weight.g_add_(&of_weight), bias.g_add_(&of_bias)],
            });
        }
        let none = || {
            [
                self.table.weight.zeros_like(),
                Tensor::zeros([self.table.columns()], (Kind::Float, grad.device())),
            ]
        };
        let [of_weight, of_bias] = of_table.unwrap_or_else(none);
        let of_hidden = match &of_hidden[..] {
            [only] => only.shallow_clone(),
            [] => self.hidden.zeros_like(),
            several => Tensor::cat(several, 0),
        };
        [of_hidden, of_weight, of_bias]
    }

    /// Makes scores their own gradient. Returns that of the biases, which is nothing where there are none.
    fn differentiate(&self, rows: &Range<i64>, scores: &Tensor, log_sums: &Tensor, grad: &Tensor) -> Tensor {
        let (count, columns) = (rows.end - rows.start, self.table.columns());
        // The second axis of a grid has no more than 65,535 blocks.
        let part = ROWS.max((count as u64).div_ceil(65_535) as i64);
        let parts = (count as u64).div_ceil(part as u64) as i64;
        let biased = self.table.bias.is_some();
        let sums = Tensor::empty([if biased { parts } else { 0 }, columns], (Kind::Float, scores.device()));
        let to_sums = if biased { sums.data_ptr() } else { ptr::null_mut() };
        let (from, bias) = (scores.data_ptr(), self.table.bias());
        let (targets, margins) = self.of_rows(rows);
        let [log_sums, grad] = [log_sums, grad].map(|x| self.cut(x, rows).data_ptr());
        let [rows, words, stride, part] = [count, self.table.words, columns, part].map(|count| count as i32);
        let blocks = [((columns / COLUMNS) as u64).div_ceil(THREADS_OF_COLUMNS.into()) as i64, parts];
        let arguments =
            params![from, bias, targets, margins, log_sums, grad, to_sums, rows, words, stride, part];
        // SAFETY: as in `forward`; there are as many sums as parts, and the scores are nobody else's.
        unsafe {
            self.kernels.launch(&self.name("cross_entropy_back"), blocks, THREADS_OF_COLUMNS, arguments);
        }
        sums.sum_dim_intlist(0, false, None::<Kind>)
    }
}
