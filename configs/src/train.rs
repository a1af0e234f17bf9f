//! `[train]`: how a run steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::products::{Precision, Products};
use crate::range::Range;

/// More than any host has cores.
const MOST_THREADS: usize = 1 << 12;

/// Where a rank computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A card where one can be used, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// NVIDIA's card.
    Cuda,
}

/// How ranks add up what lies on their cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CollectivesKind {
    /// From card to card where NCCL is there and every rank has a card of its own, else in the memory of hosts.
    #[default]
    Auto,
    /// From card to card.
    Nccl,
    /// In the memory of hosts, over MPI.
    Host,
}

/// What messages carry of gradients that ranks add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReducePrecision {
    /// All of them.
    #[default]
    F32,
    /// The nearest numbers of 16 bits.
    Bf16,
}

impl ReducePrecision {
    /// Bytes of a value in a message.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// What of the state of training is divided among ranks instead of being held by each (Rajbhandari et al. 2020, ZeRO).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// Nothing.
    #[default]
    None,
    /// The optimizer's moments and averages of the weights: each rank updates its part of the weights and gives it to the others.
    Optimizer,
    /// These, and the summed gradients.
    Gradients,
}

/// `[train]`: how a run steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Global steps of the whole run.
    #[schemars(transform = Range::at_least(1))]
    pub steps: u64,
    /// Model folder, checkpoint or run whose weights the first step begins with, a model of the same type and sizes;
    /// empty for fresh weights. A run that goes on does not look at it.
    pub init_from: String,
    /// Stop after this step with a checkpoint and exit code 0, the schedule untouched; 0 for never.
    pub stop_at: u64,
    /// Seconds of training, by the clock of rank 0: the run ends after the step in which they are over, with an evaluation and a checkpoint; 0 for no
    /// limit. Steps count over all attempts, and evaluations and checkpoints do not. Models that step at different speeds compare at equal
    /// time so; how many steps are made is no longer the same twice.
    #[schemars(transform = Range::at_least(0.0).in_double())]
    pub time_limit: f64,
    /// Seed of initial weights, dropout and data choices.
    #[schemars(transform = Range::at_least(0).at_most(i64::MAX).or_too_large("a seed has at most 63 bits"))]
    pub seed: u64,
    /// Parallel token streams of the global batch, over all ranks: a multiple of `micro_batch`.
    #[schemars(transform = Range::read(1))]
    pub lanes: usize,
    /// Lanes of one forward and backward pass.
    #[schemars(transform = Range::read(1))]
    pub micro_batch: usize,
    /// Examples over which a loss acts that is no sum over them, such as one of their mean: a part of a micro-step that divides `micro_batch`, so that it
    /// does not depend on the number of ranks; 0 for all of a micro-step.
    #[schemars(transform = Range::read(0))]
    pub group: usize,
    /// The same bits whatever the number of ranks. With more than one rank, `lanes / micro_batch / ranks` must then
    /// be a power of two; else it only has to be whole.
    pub exact: bool,
    /// Threads of libtorch in each rank. Part of exactness: sums split over threads round differently.
    #[schemars(transform = Range::at_least(1).at_most(MOST_THREADS))]
    pub threads: usize,
    /// Steps over which the batch grows to all lanes: at first one of `batch_warmup_from` micro-steps takes part, then one
    /// of half as many, in stages of one length. Micro-steps take turns, and the lanes of the others wait. A multiple of
    /// `batch_warmup_from` times the number of stages, log2 of it; 0 for all lanes from the first step on.
    pub batch_warmup: u64,
    /// Of so many micro-steps one takes part in the first stage of `batch_warmup`: a power of two that divides the
    /// micro-steps of each rank.
    #[schemars(transform = Range::read(1))]
    pub batch_warmup_from: usize,
    /// Gradient bytes that are reduced at a time; does not change the result where `exact`.
    #[schemars(transform = Range::at_least(1))]
    pub bucket_bytes: usize,
    /// What products are computed in: `f32`, or 16 bits of them. Weights, moments, sums of gradients, norms, softmaxes and losses stay in
    /// single precision; evaluations are all in it.
    pub precision: Precision,
    /// Round the factors of products in single precision to TF32 on a card, with 10 bits of mantissa; a processor has no such products.
    pub tf32: bool,
    /// Keep only the inputs of layers for backward, which makes each layer again: less memory for activations, a third more time. Does not
    /// change the result.
    pub recompute: bool,
    /// Every so many steps all ranks compare a hash of their weights and, unless `shard` divides these, of averages and optimizer; 0 for at
    /// the start alone.
    pub check_replicas_every: u64,
    /// Every so many steps each rank makes one of its micro-steps twice and compares loss, carry and gradients bit by bit, which finds
    /// processors that compute wrongly now and then; 0 for never.
    pub check_repeats_every: u64,
    /// Where ranks compute. `auto` takes a card where one can be used; of several, ranks on a host take one after the other.
    pub device: DeviceKind,
    /// How ranks add up gradients that lie on cards: from card to card by `nccl`, or in the memory of the `host`. `auto` takes NCCL where it is there
    /// and every rank has a card of its own. Does not change the result where `exact`.
    pub collectives: CollectivesKind,
    /// What messages carry of gradients that ranks add up: all of `f32`, or half of the bytes, `bf16`. Sums are made in single precision, and rounded
    /// where they cross ranks, so that they depend on the number of ranks: only where not `exact`.
    pub reduce_precision: ReducePrecision,
    /// What ranks divide among themselves: `none`, the `optimizer`'s moments and averages of the weights (ZeRO-1), or these and the summed
    /// `gradients` (ZeRO-2). Saves memory; does not change the result.
    pub shard: Shard,
    /// Seconds that a rank waits for others in one call before the job ends with exit code 82; 0 for as long as it takes. A checkpoint that is written
    /// more slowly, and gets on, ends nothing.
    #[schemars(transform = Range::at_least(0))]
    pub deadline: u64,
}

impl TrainConfig {
    /// Micro-steps of one global step, over all ranks.
    pub fn micro_steps(&self) -> usize {
        self.lanes / self.micro_batch
    }

    /// Examples of a group: `group`, or a whole micro-step.
    pub fn group_size(&self) -> usize {
        if self.group == 0 { self.micro_batch } else { self.group }
    }

    /// Whether groups are whole inside micro-steps.
    pub fn holds_whole_groups(&self) -> bool {
        self.micro_batch.is_multiple_of(self.group_size())
    }

    /// How its products are made.
    pub fn products(&self) -> Products {
        Products { precision: self.precision, tf32: self.tf32 }
    }

    /// Whether gradients of ranks are added in the order of the tree, and not as a library likes.
    pub fn sums_by_tree(&self) -> bool {
        self.exact || self.reduce_precision != ReducePrecision::F32 || self.shard == Shard::Gradients
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 1000,
            init_from: String::new(),
            stop_at: 0,
            time_limit: 0.0,
            seed: 1,
            lanes: 8,
            micro_batch: 4,
            group: 0,
            exact: true,
            threads: 1,
            batch_warmup: 0,
            batch_warmup_from: 1,
            bucket_bytes: 4 << 20,
            precision: Precision::F32,
            tf32: false,
            recompute: false,
            check_replicas_every: 100,
            check_repeats_every: 0,
            device: DeviceKind::Auto,
            collectives: CollectivesKind::Auto,
            reduce_precision: ReducePrecision::F32,
            shard: Shard::None,
            deadline: 1800,
        }
    }
}
