use segue_kernels::Parameters;
use serde::{Deserialize, Serialize};
use tch::Tensor;

/// The name of the weights that training goes on from.
pub const TRAINED: &str = "trained";

/// Weights that an evaluation looks at.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// `trained`, or the name of the average: `tail`, `exponential`, `polyak`, `short`, `long`.
    pub name: &'static str,
    /// Steps whose weights are in it; 1 for the trained ones.
    pub length: u64,
    /// The average, in the order of the parameters; `None` for the trained weights.
    pub weights: Option<&'a [Tensor]>,
}

impl<'a> Candidate<'a> {
    pub(super) fn trained() -> Self {
        Self { name: TRAINED, length: 1, weights: None }
    }

    pub(super) fn average(name: &'static str, length: u64, weights: &'a [Tensor]) -> Self {
        Self { name, length, weights: Some(weights) }
    }
}

/// An average in the place of the trained weights. The trained ones come back, bit for bit, when it is dropped.
#[must_use = "the trained weights come back when it is dropped"]
pub struct StandIn {
    /// Leaves of the model, and a copy of what they held.
    replaced: Vec<(Tensor, Tensor)>,
}

impl StandIn {
    /// Puts `weights` in the place of `own`, which are `parameters` or share the memory of a part of them. What else `parameters` hold may be
    /// written to as well until the result is dropped.
    pub fn new(weights: Option<&[Tensor]>, own: &Parameters, parameters: &Parameters) -> Self {
        let Some(weights) = weights else { return Self { replaced: Vec::new() } };
        // A copy rather than an exchange: an average may be more precise than the leaf it stands in for.
        tch::no_grad(|| {
            let held = |leaf: &Tensor| (leaf.shallow_clone(), leaf.detach().copy());
            let replaced = parameters.tensors().iter().map(held).collect();
            for (leaf, weight) in own.tensors().iter().zip(weights) {
                leaf.shallow_clone().copy_(weight);
            }
            Self { replaced }
        })
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        tch::no_grad(|| {
            for (leaf, held) in &mut self.replaced {
                leaf.copy_(held);
            }
        });
    }
}

/// Losses of a candidate, lower is better. They are two where decisions follow another loss than the one that is
/// reported, such as the training loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CandidateLoss {
    /// The loss that decisions follow.
    pub decide: f64,
    /// The loss that is reported, and that the best weights are chosen by.
    pub report: f64,
    /// Whether weights hold a NaN or an infinity, where ranks have parts of them and each sees its own alone; looked for where `decide` is no
    /// finite number.
    pub broken: bool,
}

impl From<f64> for CandidateLoss {
    fn from(loss: f64) -> Self {
        Self { decide: loss, report: loss, broken: false }
    }
}

/// What an evaluation came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Place of the reported weights among the candidates.
    pub candidate: usize,
    /// Their name.
    pub name: &'static str,
    /// Steps whose weights are in them.
    pub length: u64,
    /// Their loss.
    pub loss: f64,
    /// What the losses led to, in order. Most evaluations lead to nothing.
    pub events: Vec<AveragingEvent>,
    /// The best evaluation so far, where the averaging keeps its weights.
    pub best: Option<Best>,
}

impl Choice {
    /// Candidate number `candidate` is reported, and nothing else happens.
    pub(super) fn plain(candidates: &[Candidate], losses: &[CandidateLoss], candidate: usize) -> Self {
        let Candidate { name, length, .. } = candidates[candidate];
        let loss = losses[candidate].report;
        Self { candidate, name, length, loss, events: Vec::new(), best: None }
    }
}

/// What an evaluation can lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AveragingEvent {
    /// The mean begins with the next step.
    Began,
    /// The mean brings nothing more, by the rule that it began by: a stage of the run ends.
    Stagnated,
    /// The short average is as good as the long one, and takes its place.
    Switched,
    /// The long average has stagnated: the short one takes its place, better or not.
    LongStagnated,
    /// The short average has stagnated, and begins anew.
    ShortStagnated,
    /// The trained weights are as good as the average, and are reported.
    TrainedReported,
    /// Averages have never helped: both begin anew.
    Restarted,
    /// An average that holds a NaN or an infinity was dropped.
    Dropped,
}

/// The evaluation with the lowest reported loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Its loss.
    pub loss: f64,
    /// The step it was made after.
    pub step: u64,
    /// Steps whose weights are in the reported average.
    pub length: u64,
    /// Evaluations since then, for early stopping: a loss that rises after an average was dropped is no divergence.
    pub since: u64,
}
