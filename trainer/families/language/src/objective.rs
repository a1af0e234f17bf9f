//! Objectives: what turns a batch and memory into a loss. They return sums, never means, so that the
//! engine can divide once by the weight of the whole global batch.

use segue_dataloader::sections::TextEvalConfig;
use segue_engine::{Learner, Turn};
use segue_kernels::Parameters;
use segue_kernels::libtorch::stream::put;
use segue_kernels::noise::Noise;
use segue_layers::adversarial::Nll;
use segue_layers::{Ids, Memory};
use tch::{Device, Kind, Tensor};

/// One micro-batch.
#[derive(Debug)]
pub struct Batch {
    /// Token ids, `[micro_batch, context + segment]`.
    pub inputs: Tensor,
    /// The token after each of the last `segment` inputs, `[micro_batch, segment]`; with `pairs`, the tokens
    /// at their positions, `[micro_batch, targets]`.
    pub targets: Tensor,
    /// What else a sequence of pairs comes with.
    pub pairs: Option<Pairs>,
    /// The document of each input, where documents must not see each other.
    pub documents: Option<Tensor>,
    /// Per lane: how many targets, from the left, are real, where not all are.
    pub counts: Option<Vec<usize>>,
    /// Last inputs that come again as context of the next segment.
    pub overlap: i64,
    /// What the host keeps of it, where the batch has gone from there to a card.
    pub of_host: Option<OfHost>,
}

/// What the host knows of a batch on a card without waiting for that.
#[derive(Debug)]
pub struct OfHost {
    /// Inputs and targets in the host's memory.
    pub ids: [Tensor; 2],
    /// Targets that count, with `pairs`.
    pub weight: Option<f64>,
}

impl Batch {
    /// A plain segment and its targets, `[micro_batch, segment]` both.
    pub fn new(inputs: Tensor, targets: Tensor) -> Self {
        Self { inputs, targets, pairs: None, documents: None, counts: None, overlap: 0, of_host: None }
    }

    /// −ln P of its targets, `[micro_batch, segment]`, with nothing for those that are not real, and the number of those that are.
    pub fn counted(&self, nll: Nll) -> (Nll, f64) {
        let Some(counts) = &self.counts else {
            let all = nll.trained.numel() as f64;
            return (nll, all);
        };
        let (segment, device) = (self.targets.size()[1], nll.trained.device());
        let of_lane: Vec<i64> = counts.iter().map(|&count| count as i64).collect();
        let of_lane = put(Tensor::from_slice(&of_lane).view([-1, 1]), device);
        let real = Tensor::arange(segment, (Kind::Int64, device)).lt_tensor(&of_lane);
        let masked = nll.map(|nll| nll * real.to_kind(nll.kind()));
        (masked, counts.iter().sum::<usize>() as f64)
    }

    /// Its targets, as ids that the host may know.
    pub fn ids_of_targets(&self) -> Ids {
        Ids::new(&self.targets, self.of_host.as_ref().map(|kept| &kept.ids[1]))
    }

    /// Sum of the weights of its targets, with `pairs`.
    pub fn weight(&self) -> Option<f64> {
        let sum = || self.pairs.as_ref().map(|pairs| pairs.weights.sum(Kind::Double).double_value(&[]));
        self.of_host.as_ref().map_or_else(sum, |kept| kept.weight)
    }

    /// The same on `device`.
    pub fn to(self, device: Device) -> Self {
        let moved = |tensor: Tensor| put(tensor, device);
        let of_host = self.stays_behind(device);
        let pairs = self.pairs.map(|pairs| Pairs {
            segments: moved(pairs.segments),
            ranks: moved(pairs.ranks),
            positions: moved(pairs.positions),
            weights: moved(pairs.weights),
            follows: moved(pairs.follows),
            reversed: pairs.reversed,
        });
        let (inputs, targets, documents) =
            (moved(self.inputs), moved(self.targets), self.documents.map(moved));
        Self { inputs, targets, pairs, documents, counts: self.counts, overlap: self.overlap, of_host }
    }

    /// What the host keeps of a batch that goes to `device`.
    fn stays_behind(&self, device: Device) -> Option<OfHost> {
        let goes = device.is_cuda() && !self.inputs.device().is_cuda();
        let ids = || [&self.inputs, &self.targets].map(Tensor::shallow_clone);
        goes.then(|| OfHost { ids: ids(), weight: self.weight() })
    }

    /// Its tensors for a file: `PREFIX.input_ids`, `PREFIX.targets` and, of sequences of pairs, the fields of [`Pairs`].
    pub fn named(&self, prefix: &str) -> Vec<(String, Tensor)> {
        let mut fields =
            vec![("input_ids", self.inputs.shallow_clone()), ("targets", self.targets.shallow_clone())];
        if let Some(pairs) = &self.pairs {
            fields.extend([
                ("segments", pairs.segments.shallow_clone()),
                ("ranks", pairs.ranks.shallow_clone()),
                ("positions", pairs.positions.shallow_clone()),
                ("weights", pairs.weights.shallow_clone()),
                ("follows", pairs.follows.shallow_clone()),
                ("reversed", Tensor::from_slice(&[pairs.reversed])),
            ]);
        }
        fields.into_iter().map(|(name, tensor)| (format!("{prefix}.{name}"), tensor)).collect()
    }
}

/// Sequences of pairs, as [`segue_dataloader::Pairs`] describes them.
#[derive(Debug)]
pub struct Pairs {
    /// Segment of each input, `[micro_batch, segment]`.
    pub segments: Tensor,
    /// Rank of each input, `[micro_batch, segment]`.
    pub ranks: Tensor,
    /// Places of the targets, `[micro_batch, targets]`.
    pub positions: Tensor,
    /// 1 for targets, 0 for what fills up a row, `[micro_batch, targets]`.
    pub weights: Tensor,
    /// 1 where B continues A, else 0, `[micro_batch]`.
    pub follows: Tensor,
    /// Lanes at the end of the micro-batch that read backwards.
    pub reversed: i64,
}

/// What one micro-step gives.
pub struct Loss {
    /// Sum over targets, in nats; scalar, with its graph.
    pub sum: Tensor,
    /// Targets it is a sum of.
    pub weight: f64,
    /// The same sum as an adversary makes it, who moves words in training, where there is one; scalar, without a graph.
    pub against: Option<Tensor>,
    /// What is trained for beside it, divided like it and not reported; scalar, with its graph.
    pub auxiliary: Option<Tensor>,
    /// What the lanes carry to their next segment.
    pub memory: Memory,
}

impl Loss {
    /// Of −ln P of `weight` targets, `[micro_batch, targets]`: reported as they are, trained `times` as much, with `beside`.
    pub fn of((nll, weight): (&Nll, f64), times: f64, beside: Option<Tensor>, memory: Memory) -> Self {
        let trained = nll.trained.sum(None::<Kind>);
        if nll.plain.is_none() && times == 1.0 {
            return Self { sum: trained, weight, against: None, auxiliary: beside, memory };
        }
        let sum = nll.reported().detach().sum(None::<Kind>);
        let against = nll.plain.is_some().then(|| trained.detach());
        let rest = trained * times - &sum;
        let auxiliary = Some(beside.map_or_else(|| rest.shallow_clone(), |beside| &rest + beside));
        Self { sum, weight, against, auxiliary, memory }
    }
}

/// How well a micro-batch is predicted.
pub struct Scores {
    /// −log P of each target, `[micro_batch, targets]` in nats.
    pub nll: Tensor,
    /// Whether it is the most probable token, `[micro_batch, targets]`, where the objective tells.
    pub hits: Option<Tensor>,
    /// Whether it was told right that B continues A, or does not, `[micro_batch]`, where that is trained.
    pub follows: Option<Tensor>,
    /// What the lanes carry to their next segment.
    pub memory: Memory,
}

/// A trainable objective over one set of parameters.
pub trait Objective {
    /// What is trained.
    fn parameters(&self) -> &Parameters;

    /// What `lanes` carry before their first segment.
    fn memory_start(&self, lanes: i64) -> Memory;

    /// Told before training and evaluation whether lanes may have to forget part of their memory, or
    /// see one document at a time.
    fn keep_marks(&mut self);

    /// Loss of one micro-batch; dropout is on where there is noise.
    fn loss(&self, batch: &Batch, memory: &Memory, noise: Option<&Noise>) -> Loss;

    /// Told before each step, from 1, which it is.
    fn at_step(&mut self, step: u64) {
        let _ = step;
    }

    /// How far attention looks: as `[eval]` says, or with `None` as in training.
    fn look(&mut self, eval: Option<&TextEvalConfig>);

    /// Sets what scores are multiplied by before each softmax, in evaluation: the inverse of a temperature.
    fn set_inverse_temperature(&mut self, factor: f64);

    /// How well one micro-batch is predicted; no graph, no dropout.
    fn score(&self, batch: &Batch, memory: &Memory) -> Scores;
}

/// Name of the one network of a language model.
const NETWORK: &str = "model";

/// An objective is trained as one network by every step. A batch is one [`Batch`] for each of the rank's micro-steps.
impl Learner for Box<dyn Objective> {
    type Batch = Vec<Batch>;
    type Carry = Memory;

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![(NETWORK, self.parameters())]
    }

    fn turn(&mut self, step: u64) -> Turn {
        self.at_step(step);
        Turn::only(step)
    }

    fn start(&self, lanes: i64) -> Memory {
        self.memory_start(lanes)
    }

    fn loss(
        &self,
        _: &Turn,
        batch: &Vec<Batch>,
        micro_step: usize,
        memory: &Memory,
        noise: &Noise,
    ) -> segue_engine::Loss<Memory> {
        let loss = self.as_ref().loss(&batch[micro_step], memory, Some(noise));
        let statistics = loss.against.into_iter().collect();
        let loss = segue_engine::Loss::of(loss.sum, loss.weight, loss.auxiliary, loss.memory);
        segue_engine::Loss { statistics, ..loss }
    }

    fn against(&self, statistics: &[f64]) -> Option<f64> {
        statistics.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card is not needed: only where the batch goes counts.
    #[test]
    fn the_host_keeps_ids_and_weight_of_what_goes_to_a_card() {
        let ids = |first: i64| Tensor::from_slice(&[first, first + 1]).view([1, 2]);
        let weights = |of_last: f32| Tensor::from_slice(&[1f32, of_last]).view([1, 2]);
        let pairs = Pairs {
            segments: ids(0),
            ranks: ids(0),
            positions: ids(0),
            weights: weights(0.0),
            follows: ids(0),
            reversed: 0,
        };
        let mut batch = Batch { pairs: Some(pairs), ..Batch::new(ids(3), ids(4)) };
        assert_eq!((batch.weight(), Batch::new(ids(3), ids(4)).weight()), (Some(1.0), None));
        assert!(batch.stays_behind(Device::Cpu).is_none());
        batch.of_host = batch.stays_behind(Device::Cuda(0));
        // As if it took as long to read as on a card.
        batch.targets = ids(0);
        batch.pairs.as_mut().unwrap().weights = weights(1.0);
        assert_eq!((batch.ids_of_targets().numbers(), batch.weight()), (vec![4, 5], Some(1.0)));
        assert_eq!(batch.of_host.unwrap().ids[0], ids(3));
    }
}
