//! What the evaluations of a trial cost: what its study makes small.

use segue_configs::study::Stopping;
use segue_tuner::MedianRule;
use serde_json::Value;

use super::super::measure::Measure;

/// What a run's evaluations cost: losses, or the metric of a task, negative where higher is better.
pub struct Costs {
    /// By step; not a number where a loss was none.
    rows: Vec<(u64, f64)>,
}

impl Costs {
    /// Of the rows of a run's evaluations. A metric that is not defined, as a correlation with one number alone, is no sign of a run that diverged, and is left
    /// out.
    pub fn of(rows: &[Value], measure: &Measure) -> Self {
        let cost = |row: &Value| Some((row["step"].as_u64()?, measure.cost(measure.of_row(row)?)));
        let told = |(_, cost): &(u64, f64)| !cost.is_nan() || measure.of_task().is_none();
        Self { rows: rows.iter().filter_map(cost).filter(told).collect() }
    }

    /// The lowest; not a number where any is none, or where there is no evaluation.
    pub fn best(&self) -> f64 {
        let lower =
            |best: f64, (_, cost): &(u64, f64)| if cost.is_nan() { f64::NAN } else { best.min(*cost) };
        let first = self.rows.first().map_or(f64::NAN, |(_, cost)| *cost);
        self.rows.iter().fold(first, |best, row| if best.is_nan() { best } else { lower(best, row) })
    }

    /// The last cost of each turn of `turn` steps that is complete, the first one for turns before that.
    pub fn turns(&self, turn: u64) -> Vec<f64> {
        let last = self.rows.iter().map(|(step, _)| step / turn).max().unwrap_or(0);
        let of_turn = |k: u64| {
            let before = self.rows.iter().rev().find(|(step, _)| *step <= k * turn);
            before.or(self.rows.first()).map_or(f64::INFINITY, |(_, cost)| *cost)
        };
        (1..=last).map(of_turn).collect()
    }

    /// Whether a trial with these costs goes on no further: one is not a number, or even the lowest, be it within a turn, is above the median of
    /// `others` ([`Journal::curves`](segue_tuner::Journal::curves)).
    pub fn gives_up(&self, stop: &Stopping, others: &[Vec<f64>]) -> bool {
        let diverged = self.rows.iter().any(|(_, cost)| cost.is_nan());
        diverged || MedianRule(stop).stops(self.best(), self.turns(stop.turn).len(), others)
    }
}

#[cfg(test)]
mod tests {
    use segue_engine::Better;
    use serde_json::json;

    use super::super::super::measure::tests::task;
    use super::*;

    /// Row M16.
    #[test]
    fn the_lowest_loss_counts_and_none_where_one_is_not_a_number() {
        let losses = |values: &[(u64, f64)]| Costs { rows: values.to_vec() };
        let some = losses(&[(10, 3.0), (20, 2.0), (30, 2.5)]);
        assert_eq!((some.best(), some.turns(10), some.turns(20)), (2.0, vec![3.0, 2.0, 2.5], vec![2.0]));
        assert!(losses(&[(10, 1.0), (20, f64::NAN), (30, 2.0)]).best().is_nan());
        assert!(losses(&[]).best().is_nan());
    }

    /// Row M16.
    #[test]
    fn the_best_loss_within_a_turn_keeps_a_trial_from_being_given_up() {
        let (stop, others) = (Stopping { turn: 10, grace: 1, least: 1 }, [vec![5.0, 3.0]]);
        let given_up = |within: f64| {
            let rows = vec![(5, 9.0), (10, 9.0), (15, within), (20, 8.0)];
            Costs { rows }.gives_up(&stop, &others)
        };
        assert!(given_up(4.1) && given_up(f64::NAN));
        assert!(!given_up(4.0));
    }

    /// Accuracies of the others after two turns are 0.6 and 0.8, with the median 0.7; errors are the same numbers, of which less is better.
    #[test]
    fn a_trial_with_the_worse_metric_is_given_up_in_either_direction() {
        let stop = Stopping { turn: 10, grace: 1, least: 2 };
        let row = |step: u64, value: Value| json!({ "step": step, "value": value });
        let rows = |value: f64| [row(10, json!(value)), row(20, json!(value))];
        let (accuracy, error) = (task("accuracy", Better::Higher), task("mean_squared_error", Better::Lower));
        for (measure, given_up, kept) in [(&accuracy, 0.6, 0.8), (&error, 0.8, 0.6)] {
            let others = [0.6, 0.8].map(|value| Costs::of(&rows(value), measure).turns(10));
            let gives_up = |value: f64| Costs::of(&rows(value), measure).gives_up(&stop, &others);
            assert!(gives_up(given_up) && !gives_up(kept), "{measure:?}");
        }
        let costs = Costs::of(&[row(10, json!(0.25)), row(20, json!(0.75)), row(30, json!(0.5))], &accuracy);
        assert_eq!((costs.best(), costs.turns(10)), (-0.75, vec![-0.25, -0.75, -0.5]));
    }

    /// Pearson's correlation of answers that are all alike.
    #[test]
    fn a_metric_that_is_not_defined_yet_gives_no_trial_up() {
        let rows = [json!({ "step": 10, "value": null }), json!({ "step": 20, "value": 0.5 })];
        let measure = task("pearson", Better::Higher);
        let (none, costs) = (Costs::of(&rows[..1], &measure), Costs::of(&rows, &measure));
        assert!(
            none.best().is_nan() && !none.gives_up(&Stopping { turn: 10, grace: 1, least: 1 }, &[vec![-0.9]])
        );
        assert_eq!((costs.best(), costs.turns(10)), (-0.5, vec![-0.5, -0.5]));
    }
}
