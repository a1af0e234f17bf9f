//! What the checkpoints of a run are chosen by, and runs are compared by: a metric, in its mean over the splits that are scored.

use segue_configs::{ConfigError, out_of_range};
use segue_engine::Better;
use segue_tasks::{Example, Kind, Records, Split, TaskConfig, TaskData};

use super::model::Scores;
use super::scoring::{SQUARED_ERROR, SplitScores, THRESHOLD, decide, score};

/// The metric that runs on tasks are compared by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadMetric {
    /// Its name; of several tasks without `task.metric`, those of all.
    pub name: String,
    /// Which of two values is the better one.
    pub better: Better,
    /// Whether metrics are fractions of one, as all are but SQuAD's, which are of 100.
    pub fractions: bool,
}

impl LeadMetric {
    /// What runs on `tasks` are compared by. `None` where no split is scored.
    ///
    /// # Errors
    ///
    /// `task.metric` that a split is not measured by.
    pub fn of(task: &TaskConfig, tasks: &[TaskData]) -> Result<Option<Self>, ConfigError> {
        check_measured(task, tasks)?;
        let scored = || tasks.iter().flat_map(|data| data.dev.iter().map(move |split| (data, split)));
        let mut names: Vec<String> = Vec::new();
        for (data, split) in scored() {
            let first = unanswered(data, split, task).metrics.into_iter().next();
            let name = first.map(|metric| metric.name).filter(|_| task.metric.is_empty());
            names.extend(name.or_else(|| Some(task.metric.clone())).filter(|name| !names.contains(name)));
        }
        let fractions = scored().all(|(_, split)| !matches!(split.records, Records::Questions(_)));
        let (name, better) = (names.join(" and "), better(&task.metric));
        Ok((!names.is_empty()).then_some(Self { name, better, fractions }))
    }

    /// Whether a metric of the same runs is a fraction of one.
    pub fn is_fraction(&self, metric: &str) -> bool {
        self.fractions && metric != SQUARED_ERROR && metric != THRESHOLD
    }
}

/// Which values of a metric are better; the first of a task where the name is empty.
pub fn better(metric: &str) -> Better {
    if metric == SQUARED_ERROR { Better::Lower } else { Better::Higher }
}

/// Whether the value `a` of a metric is better than `b`. What is no finite number is better than nothing.
pub fn beats(metric: &str, a: f64, b: f64) -> bool {
    let above = match better(metric) {
        Better::Lower => a < b,
        Better::Higher => a > b,
    };
    a.is_finite() && (above || !b.is_finite())
}

/// The mean over splits of the metric that checkpoints are chosen by.
pub fn chosen_by(scores: &[SplitScores], metric: &str) -> f64 {
    let values = scores.iter().map(|scores| scores.metric(metric).unwrap_or(f64::NAN));
    values.sum::<f64>() / scores.len() as f64
}

/// Refuses a metric for checkpoints to be chosen by that a split does not have, or that does not say how good its answers are.
pub fn check_measured(task: &TaskConfig, tasks: &[TaskData]) -> Result<(), ConfigError> {
    fn measures(split: &SplitScores) -> Vec<&str> {
        let names = split.metrics.iter().map(|metric| metric.name.as_str());
        names.filter(|name| *name != THRESHOLD).collect()
    }
    let splits = tasks.iter().flat_map(|data| data.dev.iter().map(move |split| (data, split)));
    let metric = task.metric.as_str();
    for split in splits.map(|(data, split)| unanswered(data, split, task)).filter(|split| split.count > 0) {
        if !metric.is_empty() && !measures(&split).contains(&metric) {
            let known = measures(&split).join(", ");
            let why =
                format!("{} {} is not measured by it\nhint: choose one of {known}", split.task, split.split);
            return Err(out_of_range("task.metric", metric, &why));
        }
    }
    Ok(())
}

/// The scores of a split of which nothing is answered: what it is measured by.
fn unanswered(data: &TaskData, split: &Split, task: &TaskConfig) -> SplitScores {
    let labels = data.labels.len().max(1);
    let nothing = |example: &Example| match data.kind {
        Kind::Span => Scores::new(),
        Kind::Tagging => vec![0.0; labels * example.width()],
        // As many as it has options, or labels.
        _ => vec![0.0; labels.max(example.sequences.len())],
    };
    let scores: Vec<Scores> = split.examples.iter().map(nothing).collect();
    score(data, split, &scores, &decide(data, split, &scores, task))
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use segue_tasks::{Row, Sequence, Skipped, Target};

    use super::*;

    /// A task of one dev example with the answer `gold`.
    fn task(name: &str, kind: Kind, labels: &[&str], gold: Target) -> TaskData {
        let sequence = Sequence { ids: vec![1], segments: vec![2], outside: Vec::new(), is_cut: false };
        let row = Row { index: "0".into(), example: 0, sequence: 0, gold: gold.clone(), group: None };
        let dev = Split {
            name: "dev".into(),
            examples: vec![Example { sequences: vec![sequence], target: gold }],
            records: Records::Rows(vec![row]),
            skipped: Skipped::default(),
            fingerprint: String::new(),
            submission: None,
        };
        let labels = labels.iter().map(|label| label.to_string()).collect();
        TaskData {
            name: name.into(),
            kind,
            labels,
            columns: None,
            train: None,
            dev: vec![dev],
            test: Vec::new(),
        }
    }

    #[test]
    fn runs_are_compared_by_the_first_metric_of_the_task_or_by_the_one_that_is_set() {
        let number = task("stsb", Kind::Regression, &[], Target::Number(1.0));
        let class = task("cola", Kind::Classification, &["0", "1"], Target::Class(1));
        let lead = |metric: &str, tasks: &[TaskData]| {
            let task = TaskConfig { metric: metric.into(), ..TaskConfig::default() };
            LeadMetric::of(&task, tasks).map(|lead| lead.map(|lead| (lead.name, lead.better)))
        };
        let named = |name: &str, better| Some((name.to_string(), better));
        assert_eq!(lead("", from_ref(&number)).unwrap(), named("pearson", Better::Higher));
        assert_eq!(lead("", from_ref(&class)).unwrap(), named("matthews", Better::Higher));
        assert_eq!(lead(SQUARED_ERROR, from_ref(&number)).unwrap(), named(SQUARED_ERROR, Better::Lower));
        let both = [class.clone(), number];
        assert_eq!(lead("", &both).unwrap(), named("matthews and pearson", Better::Higher));
        assert!(lead("accuracy", &both).is_err());
        assert_eq!(lead("", &[TaskData { dev: Vec::new(), ..class }]).unwrap(), None);
    }
}
