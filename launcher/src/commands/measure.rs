//! What the runs of a sweep or a study are judged by, and the data they come to it with.

use segue_configs::Config;
use segue_engine::Better;
use segue_task::LeadMetric;
use serde_json::{Value, json};

use super::finetune::{LEARNT_AND_SCORED, TaskRun};
use super::pretrain::refuse_nameless_task;
use crate::failure::Failure;

/// Data and measure of runs that read the same.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Names the data.
    pub fingerprint: String,
    /// What is measured on them.
    pub measure: Measure,
}

impl Inputs {
    /// Those of the runs of a configuration: of a task, its files and the model it begins with.
    pub fn of(mut config: Config) -> Result<Self, Failure> {
        if config.task.name.is_empty() {
            refuse_nameless_task(&config.task, &config.own.get())?;
            let fingerprint = (segue_family::of(&config.model).open)(&mut config)?.data();
            return Ok(Self { fingerprint, measure: Measure::Loss });
        }
        let run = TaskRun::open(config, None, LEARNT_AND_SCORED, &|_| ())?;
        Ok(Self { fingerprint: run.fingerprint()?, measure: Measure::Task(run.lead_metric()?) })
    }
}

/// What runs are judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measure {
    /// The validation loss, in nats a target.
    Loss,
    /// The metric of a task.
    Task(LeadMetric),
}

impl Measure {
    /// The metric, where it is that of a task.
    pub fn of_task(&self) -> Option<&LeadMetric> {
        match self {
            Measure::Loss => None,
            Measure::Task(metric) => Some(metric),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.of_task().map_or("loss", |metric| &metric.name)
    }

    /// Which of two values is the better one.
    pub fn better(&self) -> Better {
        self.of_task().map_or(Better::Lower, |metric| metric.better)
    }

    /// `lower` or `higher`, whichever is better.
    pub fn side(&self) -> &'static str {
        match self.better() {
            Better::Lower => "lower",
            Better::Higher => "higher",
        }
    }

    /// The value of an evaluation, a row of `metrics.jsonl`; NaN where it is none.
    pub fn of_row(&self, row: &Value) -> Option<f64> {
        let key = if self.of_task().is_some() { "value" } else { "loss" };
        row.get(key).map(|value| value.as_f64().unwrap_or(f64::NAN))
    }

    /// What a search makes small: the value, or where higher is better its negative. Its own inverse.
    pub fn cost(&self, value: f64) -> f64 {
        match self.better() {
            Better::Lower => value,
            Better::Higher => -value,
        }
    }

    /// A value in words.
    pub fn words(&self, value: f64) -> String {
        match self {
            Measure::Loss => format!("{value:.4} nats"),
            Measure::Task(metric) => format!("{} {value:.4}", metric.name),
        }
    }

    /// Label of an axis.
    pub fn axis(&self) -> String {
        match self {
            Measure::Loss => "loss, nats a target".into(),
            Measure::Task(metric) => metric.name.clone(),
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name(), "better": self.side() })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A task that is judged by `name`.
    pub fn task(name: &str, better: Better) -> Measure {
        Measure::Task(LeadMetric { name: name.into(), better, fractions: true })
    }

    #[test]
    fn what_is_better_costs_less_in_either_direction() {
        let (accuracy, error) = (task("accuracy", Better::Higher), task("mean_squared_error", Better::Lower));
        assert!(accuracy.cost(0.9) < accuracy.cost(0.8) && error.cost(0.8) < error.cost(0.9));
        assert!(Measure::Loss.cost(2.0) < Measure::Loss.cost(3.0));
        for measure in [&accuracy, &error, &Measure::Loss] {
            assert_eq!(measure.cost(measure.cost(0.25)), 0.25);
        }
        assert_eq!(["higher", "lower", "lower"], [&accuracy, &error, &Measure::Loss].map(Measure::side));
        assert_eq!(
            (accuracy.words(0.5), Measure::Loss.words(0.5)),
            ("accuracy 0.5000".into(), "0.5000 nats".into())
        );
    }

    #[test]
    fn a_row_has_the_value_of_its_kind() {
        let row = json!({ "loss": 2.0, "value": 0.5 });
        assert_eq!(
            (Measure::Loss.of_row(&row), task("f1", Better::Higher).of_row(&row)),
            (Some(2.0), Some(0.5))
        );
        let undefined = json!({ "value": null });
        assert!(task("pearson", Better::Higher).of_row(&undefined).unwrap().is_nan());
        assert_eq!(Measure::Loss.of_row(&undefined), None);
    }
}
