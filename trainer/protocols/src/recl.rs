//! Relative effective context length (Yang 2019, §2.1.4): how much context a model makes use of, compared with
//! the other models of a group. Plain arithmetic on losses that were computed before.
//!
//! With l_i(c, t) the loss of model i at position t, given exactly c tokens of context:
//!
//! - b(c, t) = min_i l_i(c, t), the group's baseline;
//! - T(c), the share r of positions with the largest b(c, t), the same for all models;
//! - f_i(c, c') = mean over T(c) of min(b(c, t), l_i(c', t)): only what beats the baseline counts;
//! - g_i(c, c') = (exp f_i(c, c) − exp f_i(c, c')) / exp f_i(c, c), the relative gain.
//!
//! From c = c0 on, c grows by Δ as long as g_i(c, c + Δ) is at least 0.01; where it stops is RECL_i.

use serde::Serialize;

/// Relative gain below which more context counts as useless.
pub const DEFAULT_THRESHOLD: f64 = 0.01;

/// Losses of a group of models at the same positions.
#[derive(Debug, Clone)]
pub struct LossGroup {
    contexts: Vec<u64>,
    losses: Vec<Vec<Vec<f64>>>,
}

/// How far a model's context reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Recl {
    /// Tokens.
    pub context: u64,
    /// There still was a gain at the longest context that was measured: the true value may be larger.
    pub at_least: bool,
}

/// `first`, `first + step`, .. up to `last`.
pub fn contexts_between(first: u64, step: u64, last: u64) -> Vec<u64> {
    (first..=last).step_by(step.max(1) as usize).collect()
}

impl LossGroup {
    /// `losses[i][k][t]` is the loss of model i with `contexts[k]` tokens at position t, in nats. `None` where the
    /// table has a hole, a value that is not finite, or contexts that do not rise.
    pub fn new(contexts: Vec<u64>, losses: Vec<Vec<Vec<f64>>>) -> Option<Self> {
        let positions = losses.first()?.first()?.len();
        let whole = losses.iter().all(|model| {
            model.len() == contexts.len()
                && model.iter().all(|row| row.len() == positions && row.iter().all(|l| l.is_finite()))
        });
        let rising = contexts.windows(2).all(|w| w[0] < w[1]);
        (whole && rising && positions > 0).then_some(Self { contexts, losses })
    }

    /// Context lengths, rising.
    pub fn contexts(&self) -> &[u64] {
        &self.contexts
    }

    /// Number of models.
    pub fn models(&self) -> usize {
        self.losses.len()
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.losses[0][0].len()
    }

    /// b(c, t) of every position, for context number `c`.
    pub fn baseline(&self, c: usize) -> Vec<f64> {
        let least = |t: usize| self.losses.iter().map(|model| model[c][t]).fold(f64::INFINITY, f64::min);
        (0..self.positions()).map(least).collect()
    }

    /// T(c): the share `r` of positions that are hardest for the baseline, at least one. Of equal ones the
    /// earlier.
    pub fn hardest(&self, c: usize, r: f64) -> Vec<usize> {
        let baseline = self.baseline(c);
        let mut order: Vec<usize> = (0..baseline.len()).collect();
        order.sort_by(|&a, &b| baseline[b].total_cmp(&baseline[a]).then(a.cmp(&b)));
        // A share such as 0.1 of 10 must not become 2 by a rounding error.
        let keep = (r * baseline.len() as f64 - 1e-9).ceil().max(1.0) as usize;
        order.truncate(keep);
        order
    }

    /// f_i(c, c') over the hardest share `r`.
    pub fn calibrated_loss(&self, model: usize, c: usize, longer: usize, r: f64) -> f64 {
        let (baseline, hardest) = (self.baseline(c), self.hardest(c, r));
        let sum: f64 = hardest.iter().map(|&t| baseline[t].min(self.losses[model][longer][t])).sum();
        sum / hardest.len() as f64
    }

    /// exp f_i(c, c) − exp f_i(c, c'), the gain of figure 2.4.
    pub fn gain(&self, model: usize, c: usize, longer: usize, r: f64) -> f64 {
        self.calibrated_loss(model, c, c, r).exp() - self.calibrated_loss(model, c, longer, r).exp()
    }

    /// g_i(c, c'), in [0, 1).
    pub fn relative_gain(&self, model: usize, c: usize, longer: usize, r: f64) -> f64 {
        self.gain(model, c, longer, r) / self.calibrated_loss(model, c, c, r).exp()
    }

    /// RECL of a model: the first context from which one step more gains less than `threshold`.
    pub fn recl(&self, model: usize, r: f64, threshold: f64) -> Recl {
        let last = self.contexts.len() - 1;
        let stop = (0..last).find(|&c| self.relative_gain(model, c, c + 1, r) < threshold);
        Recl { context: self.contexts[stop.unwrap_or(last)], at_least: stop.is_none() }
    }

    /// Perplexity over all positions at context number `c`, without a baseline (figure 2.5).
    pub fn perplexity(&self, model: usize, c: usize) -> f64 {
        let losses = &self.losses[model][c];
        (losses.iter().sum::<f64>() / losses.len() as f64).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The toy of docs/book/src/contributing/expected-values.md: one hard position of ten, on which a model gains up to its reach.
    fn toy() -> LossGroup {
        let contexts = contexts_between(0, 100, 600);
        let model = |reach: u64| -> Vec<Vec<f64>> {
            let row = |&c: &u64| {
                let mut losses = vec![1.0; 10];
                losses[3] = 5.0 - 0.5 * c.min(reach) as f64 / 100.0;
                losses
            };
            contexts.iter().map(row).collect()
        };
        LossGroup::new(contexts.clone(), vec![model(300), model(100)]).unwrap()
    }

    /// Row T22.
    #[test]
    fn recl_of_the_toy_is_recovered() {
        for r in [0.1, 1.0] {
            let found = [0, 1].map(|model| toy().recl(model, r, DEFAULT_THRESHOLD));
            let expected = [300, 100].map(|context| Recl { context, at_least: false });
            assert_eq!(found, expected, "r = {r}");
        }
    }

    /// Row T22.
    #[test]
    fn gains_lie_between_zero_and_one_and_the_baseline_is_shared() {
        let group = toy();
        assert_eq!(group.hardest(2, 0.1), [3]);
        assert_eq!(group.hardest(2, 1.0).len(), 10);
        for (c, longer) in [(0, 0), (0, 1), (0, 6), (2, 4), (5, 1)] {
            for r in [0.1, 0.5, 1.0] {
                let same = [0, 1].map(|m| group.calibrated_loss(m, c, c, r));
                assert_eq!(same[0], same[1]);
                for model in [0, 1] {
                    let gain = group.relative_gain(model, c, longer, r);
                    assert!((0.0..1.0).contains(&gain), "{gain} from {c} to {longer}");
                }
            }
        }
        // By hand: from 200 to 300 tokens the hard position falls from 4 to 3.5 nats.
        assert!((group.gain(0, 2, 3, 0.1) - (4f64.exp() - 3.5f64.exp())).abs() < 1e-12);
        assert!((group.relative_gain(0, 2, 3, 1.0) - (1.0 - (-0.05f64).exp())).abs() < 1e-12);
        // The weaker model stands still at 4.5, above the baseline.
        assert_eq!(group.gain(1, 2, 3, 0.1), 0.0);
    }

    /// Row T23.
    #[test]
    fn perplexity_falls_up_to_the_true_reach_and_no_further() {
        let group = toy();
        let curve: Vec<f64> = (0..7).map(|c| group.perplexity(1, c)).collect();
        assert!(curve[0] > curve[1] && curve[1..].windows(2).all(|w| w[0] == w[1]), "{curve:?}");
        // (9 · 1 + 5) / 10 nats.
        assert!((curve[0] - 1.4f64.exp()).abs() < 1e-12);
    }

    #[test]
    fn a_gain_at_the_last_context_is_no_end() {
        let contexts = vec![0, 100];
        let group = LossGroup::new(contexts, vec![vec![vec![5.0], vec![4.0]]]).unwrap();
        assert_eq!(group.recl(0, 1.0, DEFAULT_THRESHOLD), Recl { context: 100, at_least: true });
    }

    #[test]
    fn tables_with_holes_are_refused() {
        assert!(LossGroup::new(vec![1, 2], vec![vec![vec![1.0]]]).is_none());
        assert!(LossGroup::new(vec![1], vec![vec![vec![f64::NAN]]]).is_none());
        assert!(LossGroup::new(vec![2, 1], vec![vec![vec![1.0], vec![1.0]]]).is_none());
        assert!(LossGroup::new(vec![], vec![]).is_none());
    }
}
