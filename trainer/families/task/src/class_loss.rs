//! What an answer by a label costs in training: labels that are smoothed, classes that weigh more than others.

use segue_configs::{ConfigError, out_of_range};
use segue_kernels::libtorch::stream::put;
use segue_tasks::{Kind, Target, TaskConfig, TaskData};
use tch::{Device, Reduction, Tensor};

/// Label of positions that have none.
pub const NO_LABEL: i64 = -100;

/// Cross-entropy over the labels of a task, Σ over examples of w_y ((1 − ε) (−log P_y)) + ε/K Σ_c w_c (−log P_c): libtorch's.
#[derive(Debug, Default)]
pub struct ClassLoss {
    /// ε.
    smoothing: f64,
    /// w by label; empty where all are 1.
    weights: Vec<f64>,
    /// The same, `[labels]`, where the model lives.
    on_device: Option<Tensor>,
}

impl ClassLoss {
    /// That of a task as `[task]` says, for a model on `device`.
    pub fn of(task: &TaskConfig, data: &TaskData, device: Device) -> Self {
        let weights = match (data.kind, task.balance_classes) {
            (Kind::Classification | Kind::Tagging, true) => balanced(&label_counts(data)),
            (Kind::Classification | Kind::Tagging, false) => {
                of_mean_one(&task.class_weights, &label_counts(data))
            }
            _ => Vec::new(),
        };
        let single: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
        let on_device = Some(single).filter(|own| !own.is_empty());
        let on_device = on_device.map(|own| put(Tensor::from_slice(&own), device));
        Self { smoothing: task.label_smoothing, weights, on_device }
    }

    /// −log P of `labels`, smoothed and weighed, for `logits` `[positions, labels]`: of each position, or their sum. 0 where there is no label.
    pub fn of_labels(&self, logits: &Tensor, labels: &[i64], reduction: Reduction) -> Tensor {
        let labels = put(Tensor::from_slice(labels), logits.device());
        let weights = self.on_device.as_ref().map(|weights| weights.to_kind(logits.kind()));
        logits.cross_entropy_loss(&labels, weights.as_ref(), reduction, NO_LABEL, self.smoothing)
    }

    /// What `labels` weigh together: what their loss is divided by.
    pub fn weight_of(&self, labels: &[i64]) -> f64 {
        let told = labels.iter().filter(|label| **label != NO_LABEL);
        told.map(|label| self.weights.get(*label as usize).copied().unwrap_or(1.0)).sum()
    }
}

/// Refuses smoothing and weights where no task of the run has what they are of.
pub fn check(task: &TaskConfig, tasks: &[TaskData]) -> Result<(), ConfigError> {
    let has = |kinds: &[Kind]| tasks.iter().any(|data| kinds.contains(&data.kind));
    let labelled = [Kind::Classification, Kind::Tagging];
    if task.label_smoothing > 0.0 && !has(&[Kind::Classification, Kind::Tagging, Kind::Choice]) {
        let why = format!("the answers of {} are not labels", task_names(tasks));
        return Err(out_of_range("task.label_smoothing", task.label_smoothing, &why));
    }
    let weights = &task.class_weights;
    if (task.balance_classes || !weights.is_empty()) && !has(&labelled) {
        let why = format!("the answers of {} are not classes", task_names(tasks));
        return Err(match task.balance_classes {
            true => out_of_range("task.balance_classes", true, &why),
            false => out_of_range("task.class_weights", format!("{weights:?}"), &why),
        });
    }
    let other = tasks.iter().find(|data| labelled.contains(&data.kind) && data.labels.len() != weights.len());
    match other.filter(|_| !weights.is_empty()) {
        None => Ok(()),
        Some(data) => {
            let (count, names) = (data.labels.len(), data.labels.join(", "));
            let why = format!(
                "{} has {count} labels: {names}\nhint: give a weight for each, in this order",
                data.name
            );
            Err(out_of_range("task.class_weights", format!("{weights:?}"), &why))
        }
    }
}

fn task_names(tasks: &[TaskData]) -> String {
    tasks.iter().map(|data| data.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// How often each label stands in the training examples.
fn label_counts(data: &TaskData) -> Vec<usize> {
    let mut counts = vec![0; data.labels.len()];
    for example in data.train.iter().flat_map(|split| &split.examples) {
        match &example.target {
            Target::Class(label) => counts[*label as usize] += 1,
            Target::Tags(tags) => tags.iter().flatten().for_each(|label| counts[*label as usize] += 1),
            _ => {}
        }
    }
    counts
}

/// `weights` that are 1 in their mean over training examples, of which `counts` have each label. A batch is divided by the sum of its weights, which then stands
/// for the number of its labels too.
fn of_mean_one(weights: &[f64], counts: &[usize]) -> Vec<f64> {
    let all = counts.iter().sum::<usize>().max(1) as f64;
    let mean = weights.iter().zip(counts).map(|(weight, &count)| weight * count as f64).sum::<f64>() / all;
    weights.iter().map(|weight| weight / mean).collect()
}

/// N / (K · n) for each of K labels, n of N of each. One that never occurs weighs as if all were as frequent.
fn balanced(counts: &[usize]) -> Vec<f64> {
    let (all, labels) = (counts.iter().sum::<usize>() as f64, counts.len() as f64);
    counts.iter().map(|&count| if count == 0 { 1.0 } else { all / (labels * count as f64) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(smoothing: f64, weights: &[f64]) -> ClassLoss {
        let on_device = (!weights.is_empty()).then(|| Tensor::from_slice(weights));
        ClassLoss { smoothing, weights: weights.to_vec(), on_device }
    }

    fn sum(loss: &ClassLoss, labels: &[i64]) -> (f64, f64) {
        let logits = Tensor::from_slice(&[1.0, 0.0, -0.5, 0.25, 2.0, 0.0]).view([2, 3]);
        let sum = loss.of_labels(&logits, labels, Reduction::Sum);
        assert_eq!(loss.of_labels(&logits, labels, Reduction::None).size(), [2]);
        (sum.double_value(&[]), loss.weight_of(labels))
    }

    /// −log P of both rows: 0.464 464 03, 1.464 464 03, 1.964 464 03 and 2.021 024 76, 0.271 024 76, 2.271 024 76.
    #[test]
    fn losses_are_those_computed_by_hand() {
        let first = [1f64, 0.0, -0.5].map(f64::exp).iter().sum::<f64>().ln();
        let second = [0.25f64, 2.0, 0.0].map(f64::exp).iter().sum::<f64>().ln();
        let rows = [[first - 1.0, first, first + 0.5], [second - 0.25, second - 2.0, second]];
        let near = |found: (f64, f64), sum: f64, weight: f64| {
            assert!((found.0 - sum).abs() < 1e-12 && found.1 == weight, "{found:?}, {sum}, {weight}");
        };
        near(sum(&loss(0.0, &[]), &[0, 2]), rows[0][0] + rows[1][2], 2.0);
        near(sum(&loss(0.0, &[]), &[NO_LABEL, 2]), rows[1][2], 1.0);
        near(sum(&loss(0.0, &[2.0, 1.0, 0.5]), &[0, 2]), 2.0 * rows[0][0] + 0.5 * rows[1][2], 2.5);
        // In the term that is spread each label has its own weight, as in libtorch.
        let weights = [2.0, 1.0, 0.5];
        let spread = |row: &[f64; 3]| row.iter().zip(weights).map(|(loss, w)| w * loss).sum::<f64>() / 3.0;
        let both = 0.9 * (2.0 * rows[0][0] + 0.5 * rows[1][2]) + 0.1 * (spread(&rows[0]) + spread(&rows[1]));
        near(sum(&loss(0.1, &weights), &[0, 2]), both, 2.5);
        let mean = |row: &[f64; 3]| row.iter().sum::<f64>() / 3.0;
        let smoothed = 0.9 * (rows[0][0] + rows[1][2]) + 0.1 * (mean(&rows[0]) + mean(&rows[1]));
        near(sum(&loss(0.1, &[]), &[0, 2]), smoothed, 2.0);
    }

    #[test]
    fn rare_labels_weigh_more() {
        assert_eq!(balanced(&[6, 2, 0]), [8.0 / 18.0, 8.0 / 6.0, 1.0]);
        assert_eq!(balanced(&[4, 4]), [1.0, 1.0]);
        let found = of_mean_one(&[0.05, 0.2], &[6, 2]);
        assert!(
            (6.0 * found[0] + 2.0 * found[1] - 8.0).abs() < 1e-12
                && (found[1] / found[0] - 4.0).abs() < 1e-12
        );
    }
}
