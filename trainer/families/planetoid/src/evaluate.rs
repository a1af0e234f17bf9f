//! Accuracy on test nodes, class by class.

use segue_engine::{Better, Measures};
use segue_graph::{NodeData, Recall, rank_nodes};
use segue_kernels::TrainError;
use segue_measure::{accuracy, binary_scores};
use serde_json::{Value, json};
use tch::Tensor;

use super::data::Material;
use super::learner::Classifier;
use super::model::Network;

/// Nodes of one forward pass.
pub const GROUP: usize = 1024;

/// A node and what is predicted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The node's number.
    pub node: u32,
    /// The class of the highest probability; of several such, the first.
    pub class: u32,
    /// Probabilities of all classes.
    pub probabilities: Vec<f32>,
}

impl Prediction {
    /// Of node `node` with these probabilities.
    pub fn of(node: u32, probabilities: Vec<f32>) -> Self {
        let higher =
            |best: usize, class: usize| if probabilities[class] > probabilities[best] { class } else { best };
        let class = (0..probabilities.len()).fold(0, higher) as u32;
        Self { node, class, probabilities }
    }
}

/// Rows of a table, `[rows, width]`.
pub fn rows(table: &Tensor) -> Result<Vec<Vec<f32>>, TrainError> {
    let width = table.size()[1].max(1) as usize;
    let values: Vec<f32> = Vec::try_from(table.detach().reshape([-1]))?;
    Ok(values.chunks(width).map(<[f32]>::to_vec).collect())
}

/// Predicts the classes of nodes of the graph.
pub fn predict(network: &Network, material: &Material, nodes: &[u32]) -> Result<Vec<Prediction>, TrainError> {
    let prior = material.prior();
    let mut predictions = Vec::with_capacity(nodes.len());
    for group in nodes.chunks(GROUP) {
        let probabilities = network.probabilities(&material.nodes(network, group), &prior);
        let found = group.iter().zip(rows(&probabilities)?);
        predictions.extend(found.map(|(node, probabilities)| Prediction::of(*node, probabilities)));
    }
    Ok(predictions)
}

/// How well classes of test nodes are predicted, and with `k` > 0 how many of each class are among the `k` nodes of its highest probability
/// of those in `ranked` (Yang 2019, §3.3.4: DIEL).
pub fn measure(data: &NodeData, tested: &[Prediction], ranked: &[Prediction], k: usize) -> (f64, Value) {
    let label = |node: u32| data.labels.get(node as usize).copied().flatten();
    let known: Vec<(u32, &Prediction)> =
        tested.iter().filter_map(|prediction| Some((label(prediction.node)?, prediction))).collect();
    let gold: Vec<u32> = known.iter().map(|(class, _)| *class).collect();
    let predicted: Vec<u32> = known.iter().map(|(_, prediction)| prediction.class).collect();
    let of_class = |class: u32| -> Vec<u32> {
        known.iter().filter(|(gold, _)| *gold == class).map(|(_, found)| found.node).collect()
    };
    let of_classes =
        || (0..data.classes as u32).map(|class| recall_of(class, &of_class(class), ranked, k)).collect();
    let recalls: Option<Vec<Recall>> = (k > 0).then(of_classes);
    let class = |class: u32| {
        let scores = binary_scores(&gold, &predicted, class);
        let count = gold.iter().filter(|gold| **gold == class).count();
        let mut row = json!({
            "class": class, "nodes": count, "precision": scores.precision, "recall": scores.recall, "f1": scores.f1,
        });
        if let Some(recalls) = &recalls {
            row["recall_at_k"] = json!(recalls[class as usize].recall);
        }
        row
    };
    let accuracy = accuracy(&gold, &predicted);
    let mut row = json!({
        "accuracy": accuracy,
        "majority": data.majority_rate(),
        "nodes": gold.len(),
        "classes": (0..data.classes as u32).map(class).collect::<Vec<_>>(),
    });
    if let Some(Recall { recall, ceiling }) = recalls.as_deref().and_then(Recall::mean) {
        row["k"] = json!(k);
        row["candidates"] = json!(ranked.len());
        row["recall_at_k"] = json!(recall);
        row["ceiling_at_k"] = json!(ceiling);
    }
    (accuracy, row)
}

/// Recall of the nodes `relevant` of a class among the `k` nodes of its highest probability.
fn recall_of(class: u32, relevant: &[u32], ranked: &[Prediction], k: usize) -> Recall {
    let probability = |found: &Prediction| found.probabilities.get(class as usize).copied().unwrap_or(0.0);
    Recall::at(k, &rank_nodes(ranked.iter().map(|found| (found.node, probability(found)))), relevant)
}

/// The measures of an evaluation, with the best accuracy so far.
pub fn measures(classifier: &mut Classifier, accuracy: f64, mut row: Value) -> Measures {
    let best = classifier.observe(accuracy);
    row["best"] = json!(best);
    let majority = row["majority"].as_f64().unwrap_or(f64::NAN);
    let mut scalars = vec![("valid/accuracy".to_string(), accuracy)];
    let mut lines = vec![format!(
        "accuracy {accuracy:.4} on test nodes; best {:.4} at step {}, the most frequent class {majority:.4}",
        best.accuracy, best.step
    )];
    if let Some(recall) = row["recall_at_k"].as_f64() {
        scalars.push(("valid/recall_at_k".into(), recall));
        lines.push(format!(
            "mean recall {recall:.4} among the {} nodes of the highest probability of {}, at most {:.4}",
            row["k"],
            row["candidates"],
            row["ceiling_at_k"].as_f64().unwrap_or(1.0)
        ));
    }
    Measures { lead: accuracy, better: Better::Higher, decide: None, tie: None, row, scalars, lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of class 1 the nodes 0, 1 and 3 are tested; by its probability come 3, 2, 0, 1. Nobody knows of which class node 2 is, and it takes a place.
    /// Row P16.
    #[test]
    fn recall_counts_a_class_among_its_most_probable_nodes() {
        let predictions: Vec<Prediction> = [0.4f32, 0.1, 0.6, 0.9]
            .iter()
            .enumerate()
            .map(|(node, p)| Prediction::of(node as u32, vec![1.0 - p, *p]))
            .collect();
        assert_eq!(predictions.iter().map(|p| p.class).collect::<Vec<_>>(), [0, 0, 1, 1]);
        let of = |relevant: &[u32], k| recall_of(1, relevant, &predictions, k);
        let recalls: Vec<f64> = [1, 2, 3, 4, 9].iter().map(|k| of(&[0, 1, 3], *k).recall).collect();
        let third = 1.0 / 3.0;
        assert_eq!(recalls, [third, third, 2.0 * third, 1.0, 1.0]);
        assert_eq!(of(&[0, 1, 3], 2).ceiling, 2.0 * third);
        // Node 7 is not ranked, so that two of three is the most.
        assert_eq!(of(&[0, 3, 7], 9), Recall { recall: 2.0 * third, ceiling: 2.0 * third });
        assert_eq!(recall_of(2, &[], &predictions, 2).recall, 0.0);
    }
}
