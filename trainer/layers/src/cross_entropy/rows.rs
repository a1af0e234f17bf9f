//! Rows of scores of a block of words: what is kept of them on the way forward, and what becomes of them on the way back.

use segue_kernels::simd::{exp, max, sum, sum_of_pairs, vectorised};

use super::Distribution;

/// Maximum and sum of the exponentials of a row's scores so far, and its target's score.
#[derive(Clone, Copy)]
pub struct Running {
    pub top: f32,
    /// Σ exp(score − top).
    pub sum: f32,
    pub target: f32,
}

impl Default for Running {
    fn default() -> Self {
        Self { top: f32::NEG_INFINITY, sum: 0.0, target: f32::NAN }
    }
}

impl Running {
    #[inline(always)]
    fn read(&mut self, scores: &[f32]) {
        let top = max(scores);
        if top > self.top {
            self.sum *= exp(self.top - top);
            self.top = top;
        }
        let top = self.top;
        self.sum += sum_of_pairs(scores, scores, |score, _| exp(score - top));
    }

    pub fn log_sum(&self) -> f32 {
        self.top + self.sum.ln()
    }

    pub fn nll(&self) -> f32 {
        self.top - self.target + self.sum.ln()
    }
}

/// What the loss of a smoothed target has more than [`Running`].
#[derive(Clone, Copy, Default)]
pub struct Sums {
    /// Σ of the scores of all words.
    pub scores: f32,
    /// Score of the word without a share.
    pub without: f32,
}

impl Sums {
    /// −Σ_j q_j ln P_j of a row, where there are `words` words. Scores count from the largest, so that nothing large is taken from
    /// something large.
    pub fn loss(&self, row: &Running, smoothing: Distribution, words: usize) -> f32 {
        let from_top = |score: f32| f64::from(score) - f64::from(row.top);
        let of_target = from_top(row.target);
        let mut others = f64::from(self.scores) - words as f64 * f64::from(row.top) - of_target;
        if smoothing.without.is_some() {
            others -= from_top(self.without);
        }
        let expected = smoothing.on * of_target + smoothing.off * others;
        (f64::from(row.sum).ln() - expected - smoothing.least) as f32
    }
}

vectorised! { pub fn read_rows(scores: &[f32], first: usize, targets: &[usize], rows: &mut [Running]) = read_rows_plain; }

#[inline(always)]
pub fn read_rows_plain(scores: &[f32], first: usize, targets: &[usize], rows: &mut [Running]) {
    let words = scores.len() / rows.len();
    for ((row, scores), target) in rows.iter_mut().zip(scores.chunks_exact(words)).zip(targets) {
        row.read(scores);
        if let Some(score) = scores.get(target.wrapping_sub(first)) {
            row.target = *score;
        }
    }
}

vectorised! {
    pub fn differentiate_rows(scores: &mut [f32], first: usize, targets: &[usize], log_sums: &[f32], grad: &[f32])
        = differentiate_rows_plain;
}

#[inline(always)]
pub fn differentiate_rows_plain(
    scores: &mut [f32],
    first: usize,
    targets: &[usize],
    log_sums: &[f32],
    grad: &[f32],
) {
    let words = scores.len() / targets.len();
    for (i, scores) in scores.chunks_exact_mut(words).enumerate() {
        for score in scores.iter_mut() {
            *score = grad[i] * exp(*score - log_sums[i]);
        }
        if let Some(score) = scores.get_mut(targets[i].wrapping_sub(first)) {
            *score -= grad[i];
        }
    }
}

vectorised! { pub fn add_up_rows(scores: &[f32], without: usize, sums: &mut [Sums]) = add_up_rows_plain; }

#[inline(always)]
pub fn add_up_rows_plain(scores: &[f32], without: usize, sums: &mut [Sums]) {
    let words = scores.len() / sums.len();
    for (sums, scores) in sums.iter_mut().zip(scores.chunks_exact(words)) {
        sums.scores += sum(scores);
        if let Some(score) = scores.get(without) {
            sums.without = *score;
        }
    }
}

vectorised! {
    pub fn smooth_rows(scores: &mut [f32], first: usize, targets: &[usize], grad: &[f32], smoothing: Distribution)
        = smooth_rows_plain;
}

/// Makes grad · (P − 1 at the target) grad · (P − q).
#[inline(always)]
pub fn smooth_rows_plain(
    scores: &mut [f32],
    first: usize,
    targets: &[usize],
    grad: &[f32],
    smoothing: Distribution,
) {
    let words = scores.len() / targets.len();
    let (on, off) = (smoothing.on as f32, smoothing.off as f32);
    let without = smoothing.without.map_or(usize::MAX, |word| word as usize);
    for (i, scores) in scores.chunks_exact_mut(words).enumerate() {
        let share = grad[i] * off;
        for score in scores.iter_mut() {
            *score -= share;
        }
        if let Some(score) = scores.get_mut(targets[i].wrapping_sub(first)) {
            *score += grad[i] * (1.0 - on) + share;
        }
        if let Some(score) = scores.get_mut(without.wrapping_sub(first)) {
            *score += share;
        }
    }
}

vectorised! { pub fn add_rows(x: &[f32], stride: usize, to: &mut [f32]) = add_rows_plain; }

/// Adds the first values of all rows of `x`, `stride` apart.
#[inline(always)]
pub fn add_rows_plain(x: &[f32], stride: usize, to: &mut [f32]) {
    for row in x.chunks(stride) {
        to.iter_mut().zip(row).for_each(|(to, x)| *to += x);
    }
}
