//! The best evaluation of a run, which decides over the model that is kept.

use serde::{Deserialize, Serialize};

/// An evaluation, as models are chosen by it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rating {
    /// The measure that checkpoints are chosen by.
    pub value: f64,
    /// What decides between it and one as good, where there is such a thing: lower is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tie: Option<f64>,
    /// The step it was made after.
    pub step: u64,
}

impl Rating {
    /// Whether it is of the same evaluation. What decides between equals is not always told.
    fn is(self, other: Self) -> bool {
        (self.step, self.value) == (other.step, other.value)
    }

    /// What is not finite is never the best, and of equals the one with the lower `tie` is.
    fn beats(&self, other: Option<Self>, is_better: impl Fn(f64, f64) -> bool) -> bool {
        let Some(other) = other else { return self.value.is_finite() };
        let wins_tie = self.value == other.value
            && matches!((self.tie, other.tie), (Some(own), Some(best)) if own < best);
        self.value.is_finite() && is_better(self.value, other.value) || wins_tie
    }
}

/// How the evaluations of a run that keeps its best model have gone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BestSoFar {
    /// The best value of the measure that checkpoints are chosen by, of the evaluations that count.
    pub best: Option<f64>,
    /// What decides between it and one as good, where there is such a thing: lower is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tie: Option<f64>,
    /// The step it was found after.
    pub best_step: u64,
    /// Evaluations since the last one with a better value, by more than the least improvement that counts.
    pub since_best: u64,
    /// The value of that one, where it is another than the best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bar: Option<f64>,
    /// The evaluation of the model that is kept, where it is another one: a better one that does not count, say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Rating>,
}

impl BestSoFar {
    /// The evaluation of the model that is kept: the best that was seen, whether it counts or not.
    pub fn kept(&self) -> Option<Rating> {
        self.aside.or(self.counted())
    }

    /// Takes note of the evaluation of the model that a run which goes on finds where its best one is kept. One that it knows nothing of was made
    /// after the state was written, and is likely to be made again.
    pub(super) fn find(&mut self, found: Rating) {
        if self.kept().is_none_or(|kept| !kept.is(found)) {
            self.aside = Some(found);
        }
    }

    fn counted(&self) -> Option<Rating> {
        self.best.map(|value| Rating { value, tie: self.tie, step: self.best_step })
    }

    /// Takes note of an evaluation; true where its model is the one to keep. One that wins by its `tie` alone is no reason for more
    /// patience, and so is one that is better by `min_delta` or less than the last that was a reason. One that does not count (`counts`) changes
    /// nothing of what others are measured by.
    pub fn observe(
        &mut self,
        found: Rating,
        counts: bool,
        min_delta: f64,
        is_better: impl Fn(f64, f64) -> bool,
    ) -> bool {
        let again = self.aside.is_some_and(|aside| aside.is(found));
        let keep = again || found.beats(self.kept(), &is_better);
        if !counts {
            self.aside = if keep { Some(found) } else { self.aside };
            return keep;
        }
        let bar = self.bar.or(self.best);
        let exceeds = |bar: f64| is_better(found.value, bar) && (found.value - bar).abs() > min_delta;
        let better = found.value.is_finite() && bar.is_none_or(exceeds);
        self.since_best = if better { 0 } else { self.since_best + 1 };
        let bar = if better { Some(found.value) } else { bar };
        if found.beats(self.counted(), &is_better) {
            (self.best, self.tie, self.best_step) = (Some(found.value), found.tie, found.step);
        }
        self.bar = bar.filter(|bar| Some(*bar) != self.best);
        if keep {
            self.aside = Some(found).filter(|found| self.counted() != Some(*found));
        }
        keep
    }

    /// Stands where `stored` did. The model that is kept stays the best that was seen, of steps too that are no part of the run any more.
    pub(super) fn go_back_to(&mut self, stored: Self) {
        let kept = self.kept();
        *self = stored;
        if kept != self.kept() {
            self.aside = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_evaluations_the_one_with_the_lower_tie_is_best() {
        let mut best = BestSoFar::default();
        let seen = [(0.0, 0.7), (0.0, 0.8), (0.0, 0.6), (f64::NAN, 0.1), (-0.5, 0.0), (0.5, 0.9)];
        let is: Vec<bool> = (1..)
            .zip(seen)
            .map(|(step, (value, tie))| {
                best.observe(Rating { value, tie: Some(tie), step }, true, 0.0, |a, b| a > b)
            })
            .collect();
        assert_eq!(is, [true, false, true, false, false, true]);
        assert_eq!((best.best_step, best.best, best.tie, best.since_best), (6, Some(0.5), Some(0.9), 0));
        assert!(!best.observe(Rating { value: 0.5, tie: None, step: 7 }, true, 0.0, |a, b| a > b));
    }

    /// A model of step 10 lies there, of which the state of step 7 knows nothing.
    #[test]
    fn a_run_that_goes_on_measures_by_the_model_that_lies_there() {
        let rating = |step, value| Rating { value, tie: None, step };
        let state = || BestSoFar { best: Some(3.0), best_step: 5, ..BestSoFar::default() };
        let see = |best: &mut BestSoFar, found| best.observe(found, true, 0.0, |a, b| a < b);
        let mut best = state();
        best.find(rating(5, 3.0));
        assert_eq!(best, state());
        best.find(rating(10, 2.0));
        assert_eq!((best.kept(), best.since_best, best.best_step), (Some(rating(10, 2.0)), 0, 5));
        // Made again, it is as if nothing had happened; another one has to be better.
        let mut again = best.clone();
        assert!(see(&mut again, rating(10, 2.0)));
        assert_eq!(again, BestSoFar { best: Some(2.0), best_step: 10, ..BestSoFar::default() });
        assert!(!see(&mut best, rating(10, 2.5)));
        assert_eq!((best.kept(), best.best_step), (Some(rating(10, 2.0)), 10));
        assert!(see(&mut best, rating(15, 1.0)) && best.aside.is_none());
    }

    /// By more than half a unit: steps of 0.3 count when two of them have come together; the best is kept at each.
    #[test]
    fn small_improvements_use_up_patience_until_they_add_up() {
        let mut best = BestSoFar::default();
        let seen = [3.0, 2.7, 2.4, 2.1, 1.9, 1.8, 2.0, 1.2];
        let found: Vec<(bool, u64)> = (1..)
            .zip(seen)
            .map(|(step, value)| {
                let keep = best.observe(Rating { value, tie: None, step }, true, 0.5, |a, b| a < b);
                best = serde_json::from_str(&serde_json::to_string(&best).unwrap()).unwrap();
                (keep, best.since_best)
            })
            .collect();
        let expected =
            [(true, 0), (true, 1), (true, 0), (true, 1), (true, 2), (true, 0), (false, 1), (true, 0)];
        assert_eq!(found, expected);
        assert_eq!((best.best, best.bar), (Some(1.2), None));
    }

    #[test]
    fn an_evaluation_that_does_not_count_keeps_its_model_and_sets_no_bar() {
        let mut best = BestSoFar::default();
        let mut see = |step, value, counts| {
            let keep = best.observe(Rating { value, tie: None, step }, counts, 0.0, |a, b| a < b);
            (keep, best.best_step, best.since_best, best.kept().map(|kept| kept.step))
        };
        assert_eq!(see(5, 3.0, true), (true, 5, 0, Some(5)));
        assert_eq!(see(7, 4.0, false), (false, 5, 0, Some(5)));
        assert_eq!(see(8, 1.0, false), (true, 5, 0, Some(8)));
        // Better than those that count, and not than the model that is kept.
        assert_eq!(see(10, 2.0, true), (false, 10, 0, Some(8)));
        assert_eq!(see(15, 2.5, true), (false, 10, 1, Some(8)));
        assert_eq!(see(20, 0.5, true), (true, 20, 0, Some(20)));
        assert!(!serde_json::to_string(&best).unwrap().contains("aside"));
    }
}
