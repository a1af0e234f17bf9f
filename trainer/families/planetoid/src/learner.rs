//! What a step trains, and the loss of a micro-step.

use std::sync::Arc;

use segue_configs::TrainConfig;
use segue_engine::{Learner, Loss, Turn};
use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use super::data::{Material, Part, numbers};
use super::losses::{PairCounts, disagreement, negative_contexts, softmax_contexts};
use super::model::{Network, Nodes};
use super::sections::TurnsConfig;
use super::turns::{Task, Turns};

/// The best accuracy so far, which is told beside that of the last step and decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Share of test nodes whose class was predicted.
    pub accuracy: f64,
    /// The step it was of.
    pub step: u64,
}

/// What a checkpoint holds beside the weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Seen {
    /// The step made last.
    step: u64,
    best: Option<Best>,
}

impl Seen {
    /// What a run has seen that stands where `stored` did: of evaluations, all that it made since, too.
    fn gone_back_to(self, stored: Self) -> Self {
        let better = |best: &Best| stored.best.is_none_or(|then| best.accuracy > then.accuracy);
        Self { best: self.best.filter(better).or(stored.best), ..stored }
    }
}

/// A model and what it learns from.
pub struct Classifier {
    /// The model.
    pub network: Network,
    material: Arc<Material>,
    turns: Turns,
    /// Parameters that supervised steps update, and those of contexts.
    reached: [Vec<bool>; 2],
    /// The weight of a micro-step whose objective is a sum: all of a step together weigh 1.
    part: f64,
    seen: Seen,
}

impl Classifier {
    /// Of a run that steps as `train` says.
    pub fn new(train: &TrainConfig, turns: &TurnsConfig, network: Network, material: Arc<Material>) -> Self {
        Self {
            turns: Turns::new(turns, network.config.variant, train.seed),
            reached: network.reached(),
            part: 1.0 / train.micro_steps() as f64,
            network,
            material,
            seen: Seen::default(),
        }
    }

    /// Takes note of an accuracy, and gives the best one so far.
    pub fn observe(&mut self, accuracy: f64) -> Best {
        let found = Best { accuracy, step: self.seen.step };
        let best = self.seen.best.filter(|best| best.accuracy >= accuracy).unwrap_or(found);
        self.seen.best = Some(best);
        best
    }

    /// Where it computes.
    fn device(&self) -> Device {
        self.network.parameters.options().1
    }

    fn nodes(&self, numbers: &[u32]) -> Nodes {
        self.material.nodes(&self.network, numbers)
    }

    fn like(&self, values: &[f32]) -> Tensor {
        Tensor::from_slice(values).to_kind(self.network.parameters.options().0)
    }

    fn supervised(&self, labelled: &[(u32, u32)]) -> Loss<()> {
        let (nodes, classes): (Vec<u32>, Vec<u32>) = labelled.iter().copied().unzip();
        let (own, of_layers) = self.network.supervised(&self.nodes(&nodes), &numbers(&classes));
        Loss::of(own, labelled.len() as f64, Some(of_layers), ())
    }

    /// Eq. 3.11 or 3.12 over pairs of nodes.
    fn contexts(&self, pairs: &[(u32, u32)], signs: &[f32]) -> Loss<()> {
        let (weight, bias) = self.network.contexts();
        if pairs.is_empty() {
            return self.weighed(self.network.context_rows(&numbers(&[])).sum(None::<Kind>), 0);
        }
        let counted = PairCounts::of(pairs);
        let own: Vec<u32> = counted.anchors.iter().map(|number| *number as u32).collect();
        let anchors = self.network.anchors(&self.nodes(&own)); // [anchors, d_embed]
        let kernels = self.network.parameters.kernels();
        let sum = match bias {
            Some(bias) => softmax_contexts(kernels, &anchors, &weight, &bias, &counted),
            None => {
                let place = |anchor: u32| own.partition_point(|number| *number < anchor) as u32;
                let places: Vec<u32> = pairs.iter().map(|pair| place(pair.0)).collect();
                let contexts: Vec<u32> = pairs.iter().map(|pair| pair.1).collect();
                let anchors = anchors.index_select(0, &numbers(&places));
                let contexts = self.network.context_rows(&numbers(&contexts));
                negative_contexts(&anchors, &contexts, &self.like(signs))
            }
        };
        self.weighed(sum, pairs.len())
    }

    /// A sum over so many pairs, to be lowered as it is or as their mean. What is reported is a mean over pairs in any case.
    fn weighed(&self, sum: Tensor, pairs: usize) -> Loss<()> {
        let lambda = self.network.config.lambda;
        // A step without a pair is one that changes nothing, and no division by zero: optimizers divide in single precision.
        let count = if pairs == 0 { f64::from(f32::MIN_POSITIVE) } else { pairs as f64 };
        let (weight, reported) = match self.network.config.context_mean {
            true => (count, sum.shallow_clone()),
            false => (self.part, &sum * (self.part / count.max(1.0))),
        };
        Loss { objectives: vec![sum * lambda], reported, weight, carry: (), statistics: Vec::new() }
    }

    /// Eq. 3.10 over edges, as a mean over them.
    fn penalty(&self, edges: &[(u32, u32, f32)]) -> Loss<()> {
        let ends = |end: &dyn Fn(&(u32, u32, f32)) -> u32| -> Vec<u32> { edges.iter().map(end).collect() };
        let [from, to] = [ends(&|edge| edge.0), ends(&|edge| edge.1)]
            .map(|nodes| self.network.agreeing(&self.nodes(&nodes)));
        let weights: Vec<f32> = edges.iter().map(|edge| edge.2).collect();
        let sum = disagreement(&from, &to, &self.like(&weights));
        let objectives = vec![&sum * self.network.config.lambda];
        Loss { objectives, reported: sum, weight: edges.len() as f64, carry: (), statistics: Vec::new() }
    }

    /// ½ Σ |F_i − F'_i|² for nodes i and the labels F' that spread to them from F. A step of gradient descent of length 1 puts F' in its place.
    fn spread(&self, nodes: std::ops::Range<usize>) -> Loss<()> {
        let labels = self.network.labels();
        let own = labels.narrow(0, nodes.start as i64, nodes.len() as i64); // [nodes, classes]
        let spread = tch::no_grad(|| self.material.spread(&labels, nodes));
        let half = (own - spread).square().sum(None::<Kind>) * 0.5;
        let objectives = vec![half.shallow_clone()];
        Loss { objectives, reported: half, weight: self.part, carry: (), statistics: Vec::new() }
    }
}

impl Learner for Classifier {
    /// One part for each of the rank's micro-steps.
    type Batch = Vec<Part>;
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.network.parameters)]
    }

    fn turn(&mut self, step: u64) -> Turn {
        self.seen.step = step;
        let (task, nth) = self.turns.at(step);
        Turn { networks: vec![0], source: task as usize, nth }
    }

    fn reached(&self, turn: &Turn, _: usize) -> Option<&[bool]> {
        let of_contexts = turn.source != Task::Supervised as usize;
        Some(&self.reached[usize::from(of_contexts)])
    }

    fn start(&self, _: i64) {}

    fn loss(&self, _: &Turn, batch: &Vec<Part>, micro_step: usize, (): &(), _: &Noise) -> Loss<()> {
        match &batch[micro_step] {
            Part::Labelled(labelled) if labelled.is_empty() => Loss::nothing(1, self.device(), ()),
            Part::Labelled(labelled) => self.supervised(labelled),
            Part::Pairs { pairs, signs } => self.contexts(pairs, signs),
            Part::Edges(edges) if edges.is_empty() => Loss::nothing(1, self.device(), ()),
            Part::Edges(edges) => self.penalty(edges),
            Part::Nodes(nodes) => self.spread(nodes.clone()),
        }
    }

    fn state(&self) -> Value {
        json!(self.seen)
    }

    fn restore(&mut self, state: &Value) -> bool {
        let Ok(stored) = Seen::deserialize(state) else { return false };
        self.seen = self.seen.gone_back_to(stored);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_back_remembers_its_best_accuracy() {
        let seen = |step, best: Option<(f64, u64)>| Seen {
            step,
            best: best.map(|(accuracy, step)| Best { accuracy, step }),
        };
        for (live, stored, best) in [
            // As a run that is started again.
            (None, Some((0.5, 4)), Some((0.5, 4))),
            (None, None, None),
            // The checkpoint of a best loss, say, was written before its evaluation, or before a better one.
            (Some((0.7, 8)), None, Some((0.7, 8))),
            (Some((0.7, 8)), Some((0.5, 4)), Some((0.7, 8))),
            (Some((0.5, 8)), Some((0.5, 4)), Some((0.5, 4))),
        ] {
            assert_eq!(seen(9, live).gone_back_to(seen(6, stored)), seen(6, best), "{live:?}, {stored:?}");
        }
    }
}
