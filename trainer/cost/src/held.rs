//! What a rank holds while it trains, by kind, and the largest micro-batch that fits.

use segue_configs::TrainConfig;
use segue_engine::check_ranks;
use segue_kernels::TrainError;
use serde::Serialize;

use super::{Choices, Cost, Work};

/// Bytes of a weight's copy in 16 bits.
const HALF_BYTES: f64 = 2.0;
/// Bytes of a token's id and of its target, and batches that lie ready.
const ID_BYTES: f64 = 2.0 * 8.0;
const BATCHES: f64 = 3.0;

/// Bytes that one rank holds while it trains, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Held {
    /// Weights, and their copies in 16 bits where products read those.
    pub weights: f64,
    /// Sums of gradients.
    pub gradients: f64,
    /// Adam's two moments, or this rank's part of them.
    pub moments: f64,
    /// Averages of the weights.
    pub averages: f64,
    /// Estimate of what one micro-step keeps for its backward pass.
    pub activations: f64,
    /// Segment memory of this rank's lanes, before and after a step.
    pub segment_memory: f64,
    /// Tokens of batches that are read ahead.
    pub batch: f64,
}

impl Held {
    /// What each rank holds of a run of that cost, which is to divide what `choices.shard` says.
    pub fn new(cost: &Cost, work: &Work, choices: &Choices) -> Self {
        let memory = cost.memory_per_rank;
        let copies = if choices.products.is_half() {
            HALF_BYTES * (cost.parameters + work.beside.frozen) as f64
        } else {
            0.0
        };
        let tokens = work.most_of(|step| step.tokens) as f64 * cost.micro_steps_per_rank as f64;
        Self {
            weights: memory.weights as f64 + copies,
            gradients: memory.gradients as f64,
            moments: memory.optimizer as f64,
            averages: memory.average as f64,
            activations: work.most(|step| step.parts.activations(choices.recompute)) * choices.value_bytes,
            segment_memory: memory.segment_memory as f64,
            batch: BATCHES * ID_BYTES * tokens,
        }
    }

    /// Every kind with its name, in the order of a table.
    pub fn kinds(&self) -> [(&'static str, f64); 7] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("moments", self.moments),
            ("averages", self.averages),
            ("activations", self.activations),
            ("segment memory", self.segment_memory),
            ("batch", self.batch),
        ]
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        self.kinds().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// The largest micro-batch with which each of `ranks` ranks holds at most `bytes`, by `held`; none where none does. Only those are
/// tried that the ranks can share the lanes of `train` with. `held` gives `None` of one that the model does not take.
pub fn largest_micro_batch(
    train: &TrainConfig,
    ranks: usize,
    bytes: f64,
    held: impl Fn(usize) -> Result<Option<Held>, TrainError>,
) -> Result<Option<usize>, TrainError> {
    // More lanes to a micro-step are fewer micro-steps, which need fewer sums of gradients: bytes need not rise, so all are tried.
    for micro_batch in (1..=train.lanes / ranks.max(1)).rev() {
        if !train.lanes.is_multiple_of(micro_batch) {
            continue;
        }
        let tried = TrainConfig { micro_batch, ..train.clone() };
        let shared = check_ranks(&tried, ranks).is_ok() && tried.holds_whole_groups();
        if shared && held(micro_batch)?.is_some_and(|held| held.total() <= bytes) {
            return Ok(Some(micro_batch));
        }
    }
    Ok(None)
}
