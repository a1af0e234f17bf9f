use std::iter::Sum;

use serde::Serialize;

use super::pcg64::Pcg64;

/// Resampling of a corpus' sentences with replacement (Koehn 2004), by the numbers that sacrebleu draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// Number of resampled corpora.
    pub samples: usize,
    /// Seed.
    pub seed: u32,
}

impl Default for Bootstrap {
    /// sacrebleu's.
    fn default() -> Self {
        Self { samples: 1000, seed: 12345 }
    }
}

/// Where 95 % of resampled scores lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Mean of all of them.
    pub mean: f64,
    /// Half the width of the interval.
    pub half_width: f64,
}

impl Bootstrap {
    /// The interval of a score that a sum of counts has, from the counts of each sentence; `None` where there is no sentence.
    pub fn interval<C: Clone + Sum>(self, counts: &[C], score: impl Fn(&C) -> f64) -> Option<Interval> {
        let sentences = u32::try_from(counts.len()).ok().filter(|sentences| *sentences > 0)?;
        let mut generator = Pcg64::seeded(self.seed);
        let mut resampled = || {
            let drawn = (0..sentences).map(|_| counts[generator.below(sentences) as usize].clone());
            score(&drawn.sum())
        };
        let mut scores: Vec<f64> = (0..self.samples).map(|_| resampled()).collect();
        scores.sort_by(f64::total_cmp);
        // A fortieth on either side lies outside.
        let outside = scores.len() / 40;
        let [lower, upper] = [outside, scores.len().checked_sub(outside + 1)?].map(|place| scores[place]);
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        Some(Interval { mean, half_width: (upper - lower) / 2.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bleu, ReferenceCount, TranslationMetric};
    use super::*;

    /// sacrebleu 2.6.0: `BLEU().corpus_score(hypotheses, [references], n_bootstrap=1000)`, which computes resampled scores in single precision.
    #[test]
    fn an_interval_is_that_of_sacrebleu() {
        let pairs = [
            ("the cat sat on the mat", "the cat is on the mat"),
            ("there is a book on the desk today", "there is a book on the desk"),
            ("he reads", "he reads the paper every day"),
            ("a dog runs over the green grass", "a dog is running over the grass"),
            ("two men talk in front of the house", "two men are talking in front of a house"),
        ];
        let bleu = Bleu::default();
        let counts: Vec<_> =
            pairs.iter().map(|(hypothesis, reference)| bleu.counts(hypothesis, &[reference])).collect();
        let found = Bootstrap::default().interval(&counts, |counts| bleu.score(counts).score).unwrap();
        assert!((found.mean - 36.4119750711629).abs() < 1e-6, "{found:?}");
        assert!((found.half_width - 29.388420751947507).abs() < 1e-6, "{found:?}");
        let Bootstrap { samples, seed } = Bootstrap::default();
        let signature = bleu.settings(ReferenceCount::Fixed(1)).with_bootstrap(samples, seed);
        assert_eq!(
            signature.long(),
            "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
        );
        assert_eq!(signature.short(), "#:1|bs:1000|rs:12345|c:mixed|e:no|tok:13a|s:exp|v:2.6.0");
    }

    #[test]
    fn nothing_has_no_interval() {
        let bleu = Bleu::default();
        assert_eq!(Bootstrap::default().interval(&[], |counts| bleu.score(counts).score), None);
        let none = Bootstrap { samples: 0, ..Bootstrap::default() };
        let counts = [bleu.counts("a", &["a"])];
        assert_eq!(none.interval(&counts, |counts| bleu.score(counts).score), None);
    }
}
