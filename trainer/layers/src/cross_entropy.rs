//! Cross-entropy of a linear layer: the step of a language model from hidden states to the loss of the next word, where
//! the scores of all words are most of its memory.
//!
//! The words are taken in blocks. On the way forward a block's scores are read while they lie in the cache, for a running
//! maximum and sum (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"); on the way back they
//! become their own gradient in place, and go into the products as they are.

pub(super) mod card;
mod rows;
mod smoothing;

use std::ops::Range;

use segue_kernels::Kernels;
use segue_kernels::libtorch::{
    Packed, RIGHT_COLUMNS, Rows, Shared, Side, Start, Strips, as_f32, as_f32_mut, function, plain_linear,
    suit_tiles, turned_product, widened,
};
use segue_kernels::threads;
pub use smoothing::{Distribution, SmoothingForm};
use tch::{Kind, Reduction, Tensor};

use self::rows::{Running, Sums, add_rows, add_up_rows, differentiate_rows, read_rows, smooth_rows};

/// Scores of a block: as many as stay in a core's own cache.
const BLOCK: usize = 1 << 18;
/// The same where products are made in tiles, which are slow to begin.
const BLOCK_OF_TILES: usize = 1 << 19;
/// Words of a block of few rows.
const MOST_WORDS: usize = 2048;
/// Words, or rows, of a part of a block.
const STRIP: usize = 64;
/// Words of blocks that are added to the gradient of hidden states together: that is read and written once for them.
const ADDED_WORDS: usize = 512;

/// Words and what scores them.
pub struct Words {
    /// `[words, width]`
    pub weight: Tensor,
    /// `[words]`
    pub bias: Option<Tensor>,
}

impl Words {
    /// How many.
    pub fn count(&self) -> usize {
        self.weight.size()[0] as usize
    }

    /// The same of other tensors.
    pub fn map(&self, f: impl Fn(&Tensor) -> Tensor) -> Self {
        Self { weight: f(&self.weight), bias: self.bias.as_ref().map(f) }
    }

    /// Scores without a graph, `[n, words]`, for states `[n, width]`, which may have been packed.
    fn scores(&self, hidden: &Tensor, packed: Option<&Packed>) -> Tensor {
        let Some(packed) = packed else { return plain_linear(hidden, &self.weight, self.bias.as_ref()) };
        let mut scores =
            hidden.new_empty([hidden.size()[0], self.count() as i64], (hidden.kind(), hidden.device()));
        let to = Shared::of(&mut scores);
        // SAFETY: only the scores are written to, which were made here, with a row for each state.
        unsafe {
            let start = self.bias.as_ref().map_or(Start::Zero, |bias| Start::Bias(as_f32(bias)));
            packed.times(&Packed::right(rows(&self.weight)), to, self.count(), start);
        }
        scores
    }
}

/// −ln P of each target, `[n]`, for `hidden` `[n, width]` and `targets` `[n]`, numbers of words; P is the softmax of the
/// scores of all `parts`, one after another. `margins`, `[n]`, are taken off the targets' scores first; they may have a graph. Of single
/// precision at least.
pub fn nll(
    kernels: Kernels,
    hidden: &Tensor,
    parts: &[Words],
    targets: &Tensor,
    margins: Option<&Tensor>,
) -> Tensor {
    if let Some(kernels) = card::kernels(kernels, hidden, parts) {
        return card::nll(kernels, hidden, parts, targets, margins, card::Limits::default());
    }
    if !kernels.fuse(hidden) || !parts.iter().all(|part| kernels.fuse(&part.weight)) {
        let scores = plain_scores(kernels, hidden, parts, targets, margins);
        return scores.cross_entropy_loss::<&Tensor>(targets, None, Reduction::None, -100, 0.0);
    }
    let (inputs, keep) = inputs(hidden, parts, margins);
    let (nll, scored) = Scored::new(hidden, parts, targets, margins, None, keep);
    function(c"a cross-entropy", &inputs, nll, move |grad| scored.backward(&grad.contiguous()))
}

/// The loss of a smoothed target, −Σ_j q_j ln P_j, `[n]`, and −ln P of the targets themselves, `[n]`, which has no graph. `margins` are taken off the targets'
/// scores before either is computed. Else as [`nll`]; on cards by libtorch's operations.
pub fn smoothed(
    kernels: Kernels,
    hidden: &Tensor,
    parts: &[Words],
    targets: &Tensor,
    margins: Option<&Tensor>,
    smoothing: &Distribution,
) -> [Tensor; 2] {
    if !kernels.fuse(hidden) || !parts.iter().all(|part| kernels.fuse(&part.weight)) {
        let scores = plain_scores(kernels, hidden, parts, targets, margins);
        let log_probs = scores.log_softmax(-1, None::<Kind>);
        let of = |words: &Tensor| log_probs.gather(1, &words.unsqueeze(1), false).squeeze_dim(1);
        let of_targets = of(targets);
        let mut others = log_probs.sum_dim_intlist(1, false, None::<Kind>) - &of_targets;
        if let Some(word) = smoothing.without {
            others -= log_probs.select(1, word);
        }
        let loss = -(&of_targets * smoothing.on + others * smoothing.off) - smoothing.least;
        return [loss, -of_targets.detach()];
    }
    let (inputs, keep) = inputs(hidden, parts, margins);
    let (loss, scored) = Scored::new(hidden, parts, targets, margins, Some(*smoothing), keep);
    let nll = scored.nll.shallow_clone();
    [function(c"a cross-entropy", &inputs, loss, move |grad| scored.backward(&grad.contiguous())), nll]
}

/// What the loss is differentiated by, and whether a graph is made: without one the scores need not be kept.
fn inputs<'a>(
    hidden: &'a Tensor,
    parts: &'a [Words],
    margins: Option<&'a Tensor>,
) -> (Vec<&'a Tensor>, bool) {
    let tables = parts.iter().flat_map(|part| [Some(&part.weight), part.bias.as_ref()]).flatten();
    let inputs: Vec<&Tensor> = [hidden].into_iter().chain(tables).chain(margins).collect();
    // The result of an operation on them requires gradients if any of them does.
    let keep = inputs.iter().any(|input| input.narrow(0, 0, 0).requires_grad());
    (inputs, keep)
}

/// Scores of all words by libtorch's operations, `[n, words]`, those of targets less `margins`.
fn plain_scores(
    kernels: Kernels,
    hidden: &Tensor,
    parts: &[Words],
    targets: &Tensor,
    margins: Option<&Tensor>,
) -> Tensor {
    let scores: Vec<Tensor> =
        parts.iter().map(|part| kernels.linear(hidden, &part.weight, part.bias.as_ref())).collect();
    let scores = if let [scores] = &scores[..] { scores.shallow_clone() } else { Tensor::cat(&scores, 1) };
    let scores = widened(&scores);
    match margins {
        Some(margins) => scores.scatter_add(1, &targets.unsqueeze(1), &-margins.unsqueeze(1)),
        None => scores,
    }
}

/// Scores that were read, and what their gradient is made of.
struct Scored {
    hidden: Tensor,
    parts: Vec<Words>,
    blocks: Vec<Block>,
    targets: Vec<usize>,
    /// ln Σ exp of each row's scores.
    log_sums: Vec<f32>,
    /// −ln P of targets, `[n]`.
    nll: Tensor,
    /// Whether margins were taken off.
    lowered: bool,
    smoothing: Option<Distribution>,
}

/// Scores of some words of a part.
struct Block {
    part: usize,
    /// The words, numbered in their part.
    words: Range<usize>,
    /// What the first is numbered in all parts.
    first: usize,
    /// `[n, words]`
    scores: Tensor,
}

impl Scored {
    /// Returns the loss too, `[n]`: −ln P of the targets, or that of smoothed ones. Keeps the scores where `keep`.
    fn new(
        hidden: &Tensor,
        parts: &[Words],
        targets: &Tensor,
        margins: Option<&Tensor>,
        smoothing: Option<Distribution>,
        keep: bool,
    ) -> (Tensor, Self) {
        let parts: Vec<Words> = parts.iter().map(|part| part.map(Tensor::detach)).collect();
        let mut rows = vec![Running::default(); hidden.size()[0] as usize];
        let mut sums = vec![Sums::default(); if smoothing.is_some() { rows.len() } else { 0 }];
        let total: usize = parts.iter().map(Words::count).sum();
        let targets = numbers(targets);
        let known = targets.len() == rows.len() && targets.iter().all(|target| *target < total);
        assert!(known, "a target for each row, below {total}: {targets:?}");
        let margins = margins.map(|margins| margins.detach().contiguous());
        let mut scored = Self {
            hidden: hidden.detach(),
            parts,
            blocks: Vec::new(),
            targets,
            log_sums: Vec::new(),
            nll: Tensor::new(),
            lowered: margins.is_some(),
            smoothing,
        };
        let hidden = scored.hidden.contiguous();
        // SAFETY: nobody writes to states that a graph needs.
        let packed = scored.in_tiles().then(|| Packed::left(unsafe { self::rows(&hidden) }));
        let size = words_of_block(if packed.is_some() { BLOCK_OF_TILES } else { BLOCK }, rows.len());
        let mut before = 0;
        for part in 0..scored.parts.len() {
            let count = scored.parts[part].count();
            for start in (0..count).step_by(size) {
                let words = start..count.min(start + size);
                let cut = |t: &Tensor| t.narrow(0, words.start as i64, words.len() as i64);
                let scores = scored.parts[part].map(cut).scores(&hidden, packed.as_ref());
                let mut block = Block { part, first: before + words.start, words, scores };
                if let Some(margins) = &margins {
                    block.lower(&scored.targets, margins);
                }
                block.read(&scored.targets, &mut rows);
                if let Some(smoothing) = smoothing {
                    block.add_up(smoothing.without, &mut sums);
                }
                if keep {
                    scored.blocks.push(block);
                }
            }
            before += count;
        }
        scored.log_sums = rows.iter().map(Running::log_sum).collect();
        let nll: Vec<f32> = rows.iter().map(Running::nll).collect();
        scored.nll = Tensor::from_slice(&nll);
        let loss = match smoothing {
            Some(smoothing) => {
                let each = rows.iter().zip(&sums).map(|(row, sums)| sums.loss(row, smoothing, total));
                Tensor::from_slice(&each.collect::<Vec<f32>>())
            }
            None => scored.nll.copy(),
        };
        (loss, scored)
    }

    /// Whether products are made in tiles.
    fn in_tiles(&self) -> bool {
        let words = self.parts.iter().map(Words::count).sum();
        suit_tiles([self.hidden.size()[0] as usize, words, self.hidden.size()[1] as usize])
    }

    /// Gradients of the hidden states, of each part's weight and bias and of the margins, for that of −ln P, `[n]`.
    fn backward(self, grad: &Tensor) -> Vec<Option<Tensor>> {
        // A margin counts as much as the target's score, the other way: q − P.
        let of_margins = self.lowered.then(|| match self.smoothing {
            Some(smoothing) => grad * (smoothing.on - (-&self.nll).exp()),
            None => -grad * (-&self.nll).expm1(),
        });
        // SAFETY: nobody writes to what comes in.
        let grad = unsafe { as_f32(grad) };
        let mut of_hidden = self.hidden.zeros_like();
        // Every word's row is written whole, by the block that it is in; biases are added up.
        let mut of_parts: Vec<Words> = self
            .parts
            .iter()
            .map(|part| Words {
                weight: part.weight.empty_like(),
                bias: part.bias.as_ref().map(Tensor::zeros_like),
            })
            .collect();
        let tiles = self.in_tiles();
        let states = Right::of(&self.hidden, tiles);
        let mut blocks = self.blocks.into_iter();
        while let Some(first) = blocks.next() {
            let mut group = vec![first];
            while group.iter().map(|block| block.words.len()).sum::<usize>() < ADDED_WORDS
                && let Some(next) = blocks.next()
            {
                group.push(next);
            }
            for block in &mut group {
                block.differentiate(&self.targets, &self.log_sums, grad, self.smoothing);
                block.write_words(&states, &mut of_parts[block.part]);
            }
            add_to_hidden(&group, &self.parts, tiles, &mut of_hidden);
        }
        let of_parts = of_parts.into_iter().flat_map(|part| [Some(part.weight), part.bias]);
        let of_parts = of_parts.filter(Option::is_some);
        [Some(of_hidden)].into_iter().chain(of_parts).chain(of_margins.map(Some)).collect()
    }
}

impl Block {
    /// Takes `margins` off the scores of targets.
    fn lower(&mut self, targets: &[usize], margins: &Tensor) {
        let (words, first) = (self.words.len(), self.first);
        // SAFETY: only the scores are written to.
        let margins = unsafe { as_f32(margins) };
        let rows = as_f32_mut(&mut self.scores).chunks_exact_mut(words);
        for ((scores, target), margin) in rows.zip(targets).zip(margins) {
            if let Some(score) = scores.get_mut(target.wrapping_sub(first)) {
                *score -= margin;
            }
        }
    }

    /// Takes the scores into what is known of each row.
    fn read(&self, targets: &[usize], rows: &mut [Running]) {
        // SAFETY: nobody writes to them before the way back.
        let scores = unsafe { as_f32(&self.scores) };
        let (words, first) = (self.words.len(), self.first);
        let parts = rows.chunks_mut(STRIP).zip(scores.chunks(STRIP * words)).zip(targets.chunks(STRIP));
        threads::for_each_of(parts.collect(), |((rows, scores), targets)| {
            read_rows(scores, first, targets, rows);
        });
    }

    /// Adds up what the losses of smoothed targets have more of: all scores of each row, and that of the word `without` a share.
    fn add_up(&self, without: Option<i64>, sums: &mut [Sums]) {
        let (words, first) = (self.words.len(), self.first);
        let without = without.map_or(usize::MAX, |word| word as usize).wrapping_sub(first);
        // SAFETY: nobody writes to them before the way back.
        let scores = unsafe { as_f32(&self.scores) };
        let parts = sums.chunks_mut(STRIP).zip(scores.chunks(STRIP * words));
        threads::for_each_of(parts.collect(), |(sums, scores)| add_up_rows(scores, without, sums));
    }

    /// Makes the scores their own gradient: grad · (P − q), where q is 1 at the target or what is smoothed.
    fn differentiate(
        &mut self,
        targets: &[usize],
        log_sums: &[f32],
        grad: &[f32],
        smoothing: Option<Distribution>,
    ) {
        let (words, first) = (self.words.len(), self.first);
        let scores = as_f32_mut(&mut self.scores).chunks_mut(STRIP * words);
        let rows = targets.chunks(STRIP).zip(log_sums.chunks(STRIP)).zip(grad.chunks(STRIP));
        threads::for_each_of(scores.zip(rows).collect(), |(scores, ((targets, log_sums), grad))| {
            differentiate_rows(scores, first, targets, log_sums, grad);
            if let Some(smoothing) = smoothing {
                smooth_rows(scores, first, targets, grad, smoothing);
            }
        });
    }

    /// Writes the gradient of weight and bias of these words, which no other block has a share in.
    fn write_words(&self, hidden: &Right, to: &mut Words) {
        let width = to.weight.size()[1] as usize;
        let (words, first_word) = (self.words.len(), self.words.start);
        // SAFETY: only `to` is written to.
        let scores = unsafe { as_f32(&self.scores) };
        let weight = Shared::of(&mut to.weight);
        let bias = to.bias.as_mut().map(Shared::of);
        threads::for_each_part(words, 2 * STRIP, |columns| {
            let own = first_word + columns.start..first_word + columns.end;
            if let Some(bias) = bias {
                // SAFETY: no other part has these words.
                add_rows(&scores[columns.start..], words, unsafe { bias.slice(own.clone()) });
            }
            if let Right::Strips(hidden) = hidden {
                // SAFETY: as above.
                unsafe {
                    let to = Rows { start: weight.at(own.start * width), stride: width };
                    turned_product(scores, words, columns, hidden, to);
                }
            }
        });
        if let Right::Tiles(hidden) = hidden {
            let left = Packed::left(Side::columns(scores, [scores.len() / words, words], words));
            // SAFETY: no other block has these words.
            unsafe {
                let to = Shared::of_slice(weight.slice(first_word * width..(first_word + words) * width));
                left.times(hidden, to, width, Start::Zero);
            }
        }
    }
}

/// A matrix as the right side of products: its rows are added up, each times a value of the left side.
enum Right {
    Strips(Strips),
    Tiles(Packed),
}

impl Right {
    fn of(matrix: &Tensor, tiles: bool) -> Self {
        let sides = [matrix.size()[0] as usize, matrix.size()[1] as usize];
        let matrix = matrix.contiguous();
        // SAFETY: nobody writes to it meanwhile.
        let values = unsafe { as_f32(&matrix) };
        if tiles {
            Self::Tiles(Packed::right(Side::columns(values, sides, sides[1])))
        } else {
            Self::Strips(Strips::of(values, sides, RIGHT_COLUMNS))
        }
    }
}

/// The rows of a contiguous matrix.
///
/// # Safety
///
/// As of [`as_f32`].
unsafe fn rows(matrix: &Tensor) -> Side<'_> {
    let sides = [matrix.size()[0] as usize, matrix.size()[1] as usize];
    // SAFETY: the caller's.
    Side::rows(unsafe { as_f32(matrix) }, sides, sides[1])
}

/// Adds the share of the words of `blocks` to the gradient of the hidden states.
fn add_to_hidden(blocks: &[Block], parts: &[Words], tiles: bool, to: &mut Tensor) {
    let (rows, width) = (to.size()[0] as usize, to.size()[1] as usize);
    let to = Shared::of(to);
    let mut strips = Vec::new();
    for block in blocks {
        let words = block.words.len();
        // SAFETY: only `to` is written to.
        let scores = unsafe { as_f32(&block.scores) };
        assert!(scores.len() == rows * words);
        let weight = parts[block.part].weight.narrow(0, block.words.start as i64, words as i64);
        match Right::of(&weight, tiles) {
            Right::Strips(weight) => strips.push((scores, weight)),
            // SAFETY: as many rows of the result as of scores.
            Right::Tiles(weight) => unsafe {
                Packed::left(Side::rows(scores, [rows, words], words)).times(
                    &weight,
                    to,
                    width,
                    Start::There,
                );
            },
        }
    }
    threads::for_each_part(rows, STRIP, |own| {
        for (scores, weight) in &strips {
            let words = weight.rows();
            for strip in 0..weight.count() {
                // SAFETY: `own` rows of `words` scores, and no other part has these rows of the result.
                unsafe {
                    let a = Rows { start: scores[own.start * words..].as_ptr(), stride: words };
                    let to = Rows { start: to.at(own.start * width), stride: width };
                    weight.multiply(strip, (a, own.len()), 0..words, to, true);
                }
            }
        }
    });
}

/// How many words a block of so many scores has over so many rows: whole strips, of which a block is at least one.
fn words_of_block(scores: usize, rows: usize) -> usize {
    (scores / rows.max(1)).clamp(STRIP, MOST_WORDS) / STRIP * STRIP
}

fn numbers(targets: &Tensor) -> Vec<usize> {
    // One axis of whole numbers, which a vector can be made of; a negative one becomes a number that no word has.
    Vec::<i64>::try_from(targets).unwrap_or_default().into_iter().map(|target| target as usize).collect()
}

#[cfg(test)]
mod tests;
