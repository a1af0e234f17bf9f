//! What the training of a run says of its evaluations: the value it is compared by, and the measures beside it.

use std::collections::BTreeMap;

use segue_configs::sweep::OF_PASSES;
use segue_task::SplitScores;
use serde::Deserialize;
use serde_json::Value;

use super::super::measure::Measure;

/// What a run is compared by, of the result of its training: perplexity of its last evaluation, or its accuracy. A run whose weights are averaged in stages ends
/// where nothing better came: its best evaluation counts, as of one on a task, by its metric.
pub fn value_of(train: &Value, measure: &Measure) -> Option<f64> {
    if measure.of_task().is_some() {
        return train["best"].as_f64();
    }
    let found = &train["evaluation"];
    let ppl = best_loss(found).map(f64::exp).or(found["ppl"].as_f64());
    ppl.or_else(|| found["accuracy"].as_f64())
}

/// Measures of the evaluation that a run is compared by. Of a task: its metric, and all scores of the best model, by the names of their splits where these are
/// several.
pub fn measures_of(train: &Value, measure: &Measure) -> BTreeMap<String, f64> {
    let Some(metric) = measure.of_task() else {
        let mut found = measures_of_evaluation(&train["evaluation"]);
        let at_best = train["best_metrics"]["accuracy"].as_f64();
        found.extend(at_best.map(|accuracy| ("accuracy at best".to_string(), accuracy)));
        return found;
    };
    let splits: Vec<SplitScores> = Vec::deserialize(&train["scores"]).unwrap_or_default();
    let mut found = BTreeMap::new();
    for split in &splits {
        let name = |metric: &str| match splits.len() {
            1 => metric.to_string(),
            _ if splits.iter().all(|other| other.task == split.task) => format!("{} {metric}", split.split),
            _ => format!("{} {} {metric}", split.task, split.split),
        };
        let metrics = split.metrics.iter().map(|metric| (name(&metric.name), metric.value));
        found.extend(metrics.chain(split.loss.map(|loss| (name("loss"), loss))));
    }
    found.extend(train["best"].as_f64().map(|best| (metric.name.clone(), best)));
    found.retain(|_, value| value.is_finite());
    found
}

/// Names of those measures that are fractions of one.
pub fn fractions<'a>(measures: impl Iterator<Item = &'a String>, measure: &Measure) -> Vec<String> {
    let Some(lead) = measure.of_task() else { return Vec::new() };
    let metric = |name: &str| name.rsplit(' ').next().unwrap_or_default().to_string();
    let is_fraction = |name: &&String| metric(name) != "loss" && lead.is_fraction(&metric(name));
    measures.filter(is_fraction).cloned().collect()
}

/// Nats at a place of a protocol's result, or after the last of its passes.
pub fn loss_at(result: &Value, place: &str) -> Option<f64> {
    let found = result.pointer(place)?;
    if place == OF_PASSES { found.as_array()?.last()?["loss"].as_f64() } else { found.as_f64() }
}

/// Measures of an evaluation that the table shows.
const MEASURES: [&str; 5] = ["loss", "ppl", "accuracy", "string_accuracy", "recall_at_k"];
/// The same evaluation without the memory.
const WITHOUT_MEMORY: &str = "without_memory";

/// The loss of the best evaluation of a run whose weights are averaged in stages, where its evaluations have perplexities.
fn best_loss(evaluation: &Value) -> Option<f64> {
    evaluation["ppl"].as_f64()?;
    evaluation["stage"]["best"].as_f64()
}

/// Measures of the evaluation that a run is compared by; of the best of a run whose weights are averaged in stages, its loss alone is known.
fn measures_of_evaluation(evaluation: &Value) -> BTreeMap<String, f64> {
    if let Some(loss) = best_loss(evaluation) {
        return [("loss".into(), loss), ("ppl".into(), loss.exp())].into();
    }
    let mut found = BTreeMap::new();
    collect_numbers("", evaluation, &mut found);
    found
}

/// Measures of an evaluation; those without a memory have that in their names. The best accuracy of any step is shown where the run tells it,
/// as published figures may be such.
fn collect_numbers(suffix: &str, evaluation: &Value, found: &mut BTreeMap<String, f64>) {
    for name in MEASURES {
        if let Some(value) = evaluation[name].as_f64() {
            found.insert(format!("{name}{suffix}"), value);
        }
    }
    if let Some(best) = evaluation["best"]["accuracy"].as_f64() {
        found.insert(format!("accuracy at best{suffix}"), best);
    }
    if evaluation[WITHOUT_MEMORY].is_object() {
        collect_numbers(" without memory", &evaluation[WITHOUT_MEMORY], found);
    }
}

#[cfg(test)]
mod tests {
    use segue_engine::Better;
    use serde_json::json;

    use super::super::super::measure::tests::task;
    use super::*;

    #[test]
    fn a_run_in_stages_counts_by_its_best_evaluation() {
        let value = |evaluation: Value| value_of(&json!({ "evaluation": evaluation }), &Measure::Loss);
        assert_eq!(value(json!({ "ppl": 50.0 })), Some(50.0));
        assert_eq!(value(json!({ "ppl": 50.0, "stage": { "best": 3.0 } })), Some(3f64.exp()));
        assert_eq!(value(json!({ "accuracy": 0.5, "stage": { "best": 3.0 } })), Some(0.5));
    }

    /// The table shows what verdicts and charts go by.
    #[test]
    fn measures_of_a_run_in_stages_are_those_of_its_best_evaluation() {
        let evaluation =
            json!({ "loss": 4.0, "ppl": 50.0, "without_memory": { "ppl": 60.0 }, "stage": { "best": 3.0 } });
        let expected = [("loss".to_string(), 3.0), ("ppl".to_string(), 3f64.exp())];
        assert_eq!(measures_of_evaluation(&evaluation), expected.into());
        let percents = json!({ "loss": 4.0, "accuracy": 0.5, "stage": { "best": 3.0 } });
        assert_eq!(measures_of_evaluation(&percents)["loss"], 4.0);
    }

    /// Row M19.
    #[test]
    fn the_loss_after_passes_is_that_of_all_of_them() {
        let result = json!({ "fixed": { "loss": 3.0 }, "passes": [{ "loss": 2.5 }, { "loss": 2.0 }] });
        assert_eq!(loss_at(&result, "/fixed/loss"), Some(3.0));
        assert_eq!(loss_at(&result, OF_PASSES), Some(2.0));
        assert_eq!(loss_at(&json!({ "diverged_as_it_adapted": "weights" }), "/dynamic/loss"), None);
        assert_eq!(loss_at(&json!({ "passes": [{ "loss": 2.5 }, { "loss": f64::NAN }] }), OF_PASSES), None);
    }

    #[test]
    fn measures_of_an_evaluation_are_those_with_and_without_a_memory() {
        let evaluation = json!({
            "loss": 3.0, "ppl": 20.0, "accuracy": 0.25, "targets": 17, "seconds": 2.0,
            "best": { "accuracy": 0.5, "step": 2 }, "without_memory": { "loss": 4.0, "ppl": 50.0, "accuracy": null },
        });
        let mut found = BTreeMap::new();
        collect_numbers("", &evaluation, &mut found);
        let expected = [
            ("loss", 3.0),
            ("ppl", 20.0),
            ("accuracy", 0.25),
            ("accuracy at best", 0.5),
            ("loss without memory", 4.0),
            ("ppl without memory", 50.0),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_string(), value)).into());
    }

    #[test]
    fn a_run_on_a_task_counts_by_its_best_value_and_shows_the_scores_of_that_model() {
        let split = |name: &str, f1: f64| {
            let metrics = json!([{ "name": "f1", "value": f1 }, { "name": "accuracy", "value": null }]);
            json!({ "task": "mrpc", "split": name, "count": 2, "metrics": metrics, "loss": 0.5, "collapsed": null })
        };
        let measure = task("f1", Better::Higher);
        let one = json!({ "best": 0.75, "scores": [split("dev", 0.75)] });
        assert_eq!(value_of(&one, &measure), Some(0.75));
        assert_eq!(measures_of(&one, &measure), [("f1".to_string(), 0.75), ("loss".to_string(), 0.5)].into());
        // The mean of both is what counts.
        let two = json!({ "best": 0.5, "scores": [split("matched", 0.75), split("mismatched", 0.25)] });
        let found = measures_of(&two, &measure);
        assert_eq!((found.len(), found["f1"], found["matched f1"]), (5, 0.5, 0.75));
        assert_eq!(fractions(found.keys(), &measure), ["f1", "matched f1", "mismatched f1"]);
        assert_eq!(value_of(&json!({ "best": null, "loss": 1.0 }), &measure), None);
    }
}
