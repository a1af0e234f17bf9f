//! Scores of predicted classes, with scikit-learn's definitions.

use std::collections::BTreeMap;

use serde::Serialize;

/// The share of predictions that are right; of multiple choice, the share of questions with the right option chosen.
/// NaN where there are none.
///
/// # Panics
/// Where the slices differ in length; so do all functions of this file.
///
/// ```
/// use segue_measure::accuracy;
/// assert_eq!(accuracy(&[0, 1, 2, 1], &[0, 1, 1, 1]), 0.75);
/// ```
pub fn accuracy(gold: &[u32], predicted: &[u32]) -> f64 {
    let right = pairs(gold, predicted).filter(|(gold, predicted)| gold == predicted).count();
    right as f64 / gold.len() as f64
}

/// How well one class is told from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BinaryScores {
    /// Share of those predicted that are of the class; 0 where none is predicted.
    pub precision: f64,
    /// Share of those of the class that are predicted; 0 where there are none.
    pub recall: f64,
    /// Harmonic mean of both; 0 where both are.
    pub f1: f64,
}

impl BinaryScores {
    /// From counts of what was found rightly, of what was predicted and of what is there.
    pub(super) fn of(right: usize, predicted: usize, gold: usize) -> Self {
        let share = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Self {
            precision: share(right, predicted),
            recall: share(right, gold),
            f1: share(2 * right, predicted + gold),
        }
    }
}

/// Precision, recall and F1 of the class `positive` (`f1_score` with `zero_division=0`).
pub fn binary_scores(gold: &[u32], predicted: &[u32], positive: u32) -> BinaryScores {
    let right = pairs(gold, predicted).filter(|pair| *pair == (positive, positive)).count();
    let count = |labels: &[u32]| labels.iter().filter(|label| **label == positive).count();
    BinaryScores::of(right, count(predicted), count(gold))
}

/// The mean of the F1 of every class that occurs on either side (`f1_score` with `average="macro"`). NaN where there
/// are none.
pub fn macro_f1(gold: &[u32], predicted: &[u32]) -> f64 {
    let classes = classes(gold, predicted);
    let sum: f64 = classes.iter().map(|class| binary_scores(gold, predicted, *class).f1).sum();
    sum / classes.len() as f64
}

/// Matthews' correlation of two or more classes (`matthews_corrcoef`; for more than two, Gorodkin's R_K). As there, 0
/// where either side has one class alone.
pub fn matthews_correlation(gold: &[u32], predicted: &[u32]) -> f64 {
    let mut of_class: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    let mut right = 0.0;
    for (gold, predicted) in pairs(gold, predicted) {
        of_class.entry(gold).or_default().0 += 1.0;
        of_class.entry(predicted).or_default().1 += 1.0;
        right += f64::from(u8::from(gold == predicted));
    }
    let total = gold.len() as f64;
    let sum =
        |term: fn(f64, f64) -> f64| of_class.values().map(|(gold, predicted)| term(*gold, *predicted)).sum();
    let both: f64 = sum(|gold, predicted| gold * predicted);
    let (golds, predictions): (f64, f64) =
        (sum(|gold, _| gold * gold), sum(|_, predicted| predicted * predicted));
    let spread = (total * total - golds) * (total * total - predictions);
    if spread == 0.0 { 0.0 } else { (right * total - both) / spread.sqrt() }
}

fn classes(gold: &[u32], predicted: &[u32]) -> Vec<u32> {
    let mut classes = [gold, predicted].concat();
    classes.sort_unstable();
    classes.dedup();
    classes
}

fn pairs<'a>(gold: &'a [u32], predicted: &'a [u32]) -> impl Iterator<Item = (u32, u32)> + 'a {
    assert_eq!(gold.len(), predicted.len(), "as many predictions as examples");
    gold.iter().copied().zip(predicted.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_a_table_of_four_cells() {
        // 3 found, 1 false alarm, 2 missed, 4 rightly left: MCC = (3*4 - 1*2) / sqrt(4*5*5*6).
        let gold = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0];
        let predicted = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0];
        let scores = binary_scores(&gold, &predicted, 1);
        assert_eq!((scores.precision, scores.recall), (0.75, 0.6));
        assert!((scores.f1 - 2.0 / 3.0).abs() < 1e-15);
        assert!((matthews_correlation(&gold, &predicted) - 10.0 / 600.0_f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn input_without_contrast_gives_zero_and_no_input_nan() {
        assert_eq!(matthews_correlation(&[1, 1, 1], &[1, 0, 1]), 0.0);
        assert_eq!(matthews_correlation(&[], &[]), 0.0);
        assert_eq!(binary_scores(&[0, 0], &[0, 0], 1).f1, 0.0);
        assert!(accuracy(&[], &[]).is_nan() && macro_f1(&[], &[]).is_nan());
    }
}
