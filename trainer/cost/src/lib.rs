//! What a configuration costs, before a byte of it is made: parameters, memory of a rank, operations.
//!
//! Everything here is arithmetic on the configuration. Parameters are exact. Operations count the matrix
//! products and nothing else, two to a multiply-add; the backward pass is taken as two products for
//! each of the forward pass, also where a gradient is not needed (sinusoids, memory), and a third for
//! each in a layer that it makes again. Memory is exact for weights, gradients, optimizer and segment memory, and an estimate for activations.
//!
//! What a run costs on a given machine, in seconds and money, is a [`Plan`]: `links.rs` and `overlap.rs` compute the time of sums over
//! ranks, `step_time.rs` the parts of a step, `held.rs` memory, `failures.rs` checkpoints and restarts.

mod choices;
mod failures;
mod held;
mod links;
mod overlap;
mod parts;
mod plan;
mod role;
mod step_time;
mod work;

use segue_configs::{AverageConfig, Config, OptimConfig, Shard, TrainConfig};
use segue_engine::check_ranks;
use segue_kernels::{ParameterSpec, TrainError};
use serde::Serialize;

pub use choices::Choices;
pub use failures::{Failures, Recovery, daly, young};
pub use held::{Held, largest_micro_batch};
pub use links::{Algorithm, Links};
pub use overlap::{Bucket, Overlap, buckets, hidden_behind};
pub use parts::{
    DROPPED_SCORE_PASSES, LAYER_OPERATIONS, LINEAR_PASSES, LOGIT_PASSES, ONE_PASS_SCORE_PASSES, Parts,
    SCORE_PASSES, STATE_PASSES, TABLE_PASSES, share_of_words,
};
pub use plan::Plan;
pub use role::{ParameterParts, Role};
pub use step_time::{StepTime, steps_between_checkpoints};
pub use work::{Beside, NetworkCost, TurnWork, Work};

/// Bytes of a value: training is in single precision.
pub const VALUE_BYTES: u64 = 4;
/// A multiply and an add.
pub const PER_MULTIPLY_ADD: u128 = 2;
/// Of a count that may be beyond all that 64 bits have room for, the most of that.
pub fn saturated(count: u128) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

/// The product of these counts, or the most there is.
fn product(counts: &[u64]) -> u64 {
    counts.iter().fold(1, |product, count| count.saturating_mul(product))
}

/// Products of a training step to those of its forward pass.
const TRAINING_TO_FORWARD: f64 = 3.0;

/// What depends on how frequent words are, between two bounds. Both are the same without an adaptive
/// softmax.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bounds {
    /// Every token is of the first cluster.
    pub least: f64,
    /// Every token is of the cluster that costs most.
    pub most: f64,
}

impl Bounds {
    /// Both plus `value`.
    pub fn plus(self, value: f64) -> Self {
        Self { least: self.least + value, most: self.most + value }
    }

    /// Both times `factor`.
    pub fn times(self, factor: f64) -> Self {
        Self { least: self.least * factor, most: self.most * factor }
    }
}

/// Bytes that one rank holds while it trains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankMemory {
    /// Weights.
    pub weights: u64,
    /// Gradients: one copy for each level of the sum over this rank's micro-steps. Where ranks divide them and have one micro-step each:
    /// this rank's part, and the largest bucket; cards hold one more of these, which is not counted, as the next sum is queued before the one before is over.
    pub gradients: u64,
    /// Adam's two moments, or this rank's part of them.
    pub optimizer: u64,
    /// The averages of the weights, where the recipe keeps any, or this rank's part of them.
    pub average: u64,
    /// Segment memory of this rank's lanes, before and after a step: a step that is left out restores the memory before it.
    pub segment_memory: u64,
    /// Estimate of what one micro-step keeps for its backward pass.
    pub activations: Bounds,
}

impl RankMemory {
    /// What training of these parameters holds where lanes carry nothing from step to step, without activations. Fails where the ranks cannot
    /// share the micro-steps, as training would.
    pub fn without_carry(
        train: &TrainConfig,
        average: &AverageConfig,
        optim: &OptimConfig,
        trained: &[ParameterSpec],
        ranks: usize,
    ) -> Result<Self, TrainError> {
        let micro_steps = check_ranks(train, ranks)?;
        let work = Work::new(trained.to_vec(), MicroStep::of_products(0, 0, 0.0, 0.0), |_| Role::Other);
        let parameters = ParameterParts::of(&work.specs, &work.roles).total();
        let moments = work.moments(&[], optim);
        Ok(memory(train, average, &work, parameters, moments, micro_steps).divided(train, trained, ranks))
    }

    /// The same where `ranks` ranks divide what `train.shard` says.
    fn divided(self, train: &TrainConfig, specs: &[ParameterSpec], ranks: usize) -> Self {
        let part = |bytes: u64| bytes.div_ceil(ranks as u64);
        let largest =
            specs.iter().map(|spec| product(&[spec.numel() as u64, VALUE_BYTES])).max().unwrap_or(0);
        let bucket = largest.max(train.bucket_bytes as u64).min(self.weights);
        // While micro-steps add up, each rank has gradients of all parameters.
        let gradients = match train.shard {
            Shard::Gradients if ranks > 1 && self.gradients == self.weights => {
                part(self.weights).saturating_add(bucket).min(self.gradients)
            }
            _ => self.gradients,
        };
        if train.shard == Shard::None {
            return Self { gradients, ..self };
        }
        Self { gradients, optimizer: part(self.optimizer), average: part(self.average), ..self }
    }

    /// The same with weights beside those that are trained.
    pub fn with(self, beside: Beside) -> Self {
        Self { weights: self.weights.saturating_add(beside.bytes()), ..self }
    }

    /// The sum.
    pub fn total(&self) -> Bounds {
        let kinds = [self.weights, self.gradients, self.optimizer, self.average, self.segment_memory];
        let fixed = kinds.into_iter().fold(0, u64::saturating_add);
        Bounds { least: fixed as f64 + self.activations.least, most: fixed as f64 + self.activations.most }
    }
}

/// Bytes of a checkpoint: the values of its tensors. Names, documents and tokenizer come to little beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CheckpointCost {
    /// On disk, once averages of the weights have begun.
    pub disk: u64,
    /// Of them, what lanes carry.
    pub carry: u64,
    /// That rank 0 holds beside its training until it is written: copies of all but the carry, and the carry of its own lanes. Of moments and
    /// averages that ranks divide, its part.
    pub held_by_rank_0: u64,
    /// That each other rank holds: the carry of its own lanes, and its part of what ranks divide. Before that part is copied, its weights as they
    /// were trained, where rank 0 gathers an average that ranks divide: whichever is more.
    pub held_by_others: u64,
}

/// What a run costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// Ranks it is spread over.
    pub ranks: usize,
    /// Micro-steps of each rank in a step.
    pub micro_steps_per_rank: usize,
    /// Number of parameters.
    pub parameters: u64,
    /// The same by part.
    pub parameters_by_part: ParameterParts,
    /// The same by network, with what each comes to, where there are several that take turns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkCost>,
    /// Bytes on each rank.
    pub memory_per_rank: RankMemory,
    /// Bytes of a checkpoint.
    pub checkpoint: CheckpointCost,
    /// What is counted as tokens in this cost: `tokens`, or what the model reads for them.
    pub unit: &'static str,
    /// Operations of a forward pass for each token.
    pub forward_flops_per_token: Bounds,
    /// Operations of training for each token.
    pub training_flops_per_token: Bounds,
    /// Tokens read in a step of all lanes, over all ranks.
    pub tokens_per_step: u64,
    /// Of these, the ones that a loss is taken of.
    pub targets_per_step: u64,
    /// Steps.
    pub steps: u64,
    /// Tokens of the whole run.
    pub tokens: u64,
    /// Operations of the whole run.
    pub flops: Bounds,
}

impl Cost {
    /// Works out what a run costs on `ranks` ranks. Fails where the ranks cannot share the micro-steps, as training would.
    pub fn new(config: &Config, work: &Work, ranks: usize) -> Result<Self, TrainError> {
        let Config { train, average, optim, .. } = config;
        let Work { specs, roles, .. } = work;
        let micro_steps_per_rank = check_ranks(train, ranks)?;
        let parameters_by_part = ParameterParts::of(specs, roles);
        let parameters = parameters_by_part.total();
        let networks = work.by_network(train.steps, |name| config.of_network(name).optim.tables());
        let moments = work.moments(&networks, optim);
        let tokens = work.mean_of(|step| step.tokens);
        let forward = work.mean_bounds(|step| step.forward).times(1.0 / tokens as f64);
        let beside = work.mean(|step| step.recomputed - (TRAINING_TO_FORWARD - 1.0) * step.forward_only);
        let training = forward.times(TRAINING_TO_FORWARD).plus(beside / tokens as f64);
        let tokens_per_step = product(&[tokens, train.micro_steps() as u64]);
        let tokens = product(&[tokens, train.micro_steps_of_run()]);
        Ok(Self {
            ranks,
            micro_steps_per_rank,
            parameters,
            parameters_by_part,
            networks,
            memory_per_rank: memory(train, average, work, parameters, moments, micro_steps_per_rank)
                .divided(train, specs, ranks)
                .with(work.beside),
            checkpoint: checkpoint(train, average, work, parameters, moments, ranks),
            unit: work.unit,
            forward_flops_per_token: forward,
            training_flops_per_token: training,
            tokens_per_step,
            targets_per_step: product(&[train.lanes as u64, work.mean_of(|step| step.targets_per_lane)]),
            steps: train.steps,
            tokens,
            flops: training.times(tokens as f64),
        })
    }
}

/// What one micro-step costs, whatever the model.
pub struct MicroStep {
    /// Tokens it reads.
    pub tokens: u64,
    /// Targets of a lane that count.
    pub targets_per_lane: u64,
    /// Values of segment memory of a lane.
    pub memory_per_lane: u64,
    /// Operations of the forward pass, with a memory that is full.
    pub forward: Bounds,
    /// Of them, those that the backward pass makes again.
    pub recomputed: f64,
    /// Of them, those that no gradient goes back through: of a network that another one's turn only runs.
    pub forward_only: f64,
    /// Values that the backward pass needs.
    pub activations: Bounds,
    /// The same by kind of kernel, for words as frequent as in text.
    pub parts: Parts,
}

impl MicroStep {
    /// One without segment memory whose forward pass is products of `forward` operations, and keeps `activations` values.
    pub fn of_products(tokens: u64, targets_per_lane: u64, forward: f64, activations: f64) -> Self {
        let exactly = |value| Bounds { least: value, most: value };
        Self {
            tokens,
            targets_per_lane,
            memory_per_lane: 0,
            forward: exactly(forward),
            recomputed: 0.0,
            forward_only: 0.0,
            activations: exactly(activations),
            parts: Parts::of_products(forward, activations),
        }
    }

    /// The same where no gradient goes back through products of `forward_only` of these operations.
    pub fn with_forward_only(self, forward_only: f64) -> Self {
        Self { forward_only, ..self }
    }
}

/// `moments`: bytes of the optimizer's tables.
fn memory(
    train: &TrainConfig,
    average: &AverageConfig,
    work: &Work,
    parameters: u64,
    moments: u64,
    micro_steps: usize,
) -> RankMemory {
    let weights = product(&[parameters, VALUE_BYTES]);
    // The sum over micro-steps is a binary counter: one partial sum for each of its digits, and the
    // gradient that comes in.
    let copies = u64::from(micro_steps.ilog2()) + 1;
    let lanes = (micro_steps * train.micro_batch) as u64;
    RankMemory {
        weights,
        gradients: product(&[copies, weights]),
        optimizer: moments,
        average: product(&[average.copies(), weights]),
        segment_memory: product(&[2, lanes, work.most_of(|step| step.memory_per_lane), VALUE_BYTES]),
        activations: Bounds {
            least: work.most(|step| step.activations.least),
            most: work.most(|step| step.activations.most),
        }
        .times(VALUE_BYTES as f64),
    }
}

/// Weights are stored as the model and, where they are averaged, as what training goes on from.
fn checkpoint(
    train: &TrainConfig,
    average: &AverageConfig,
    work: &Work,
    parameters: u64,
    moments: u64,
    ranks: usize,
) -> CheckpointCost {
    let weights = product(&[parameters, VALUE_BYTES]);
    let alike = product(&[1 + average.copies(), weights]).saturating_add(moments);
    let memory_per_lane = work.most_of(|step| step.memory_per_lane);
    let carry = product(&[train.lanes as u64, memory_per_lane, VALUE_BYTES]);
    let own = carry / ranks as u64;
    // The average that is the model is whole on rank 0.
    let others = average.copies().saturating_sub(1);
    let divided = product(&[others, weights]).saturating_add(moments);
    let part = divided.div_ceil(ranks as u64);
    // While an average stands in for the weights. Rank 0 has let go of that copy before it makes its second one of the model's size.
    let held = if average.copies() > 0 { weights } else { 0 };
    // Copies of it that rank 0 has and the others have.
    let (first, others) = match train.shard {
        Shard::None => (divided, 0),
        _ => (part, if ranks > 1 { part.max(held) } else { 0 }),
    };
    let [frozen, computed] =
        [work.beside.frozen, work.beside.computed].map(|own| product(&[own, VALUE_BYTES]));
    CheckpointCost {
        disk: alike.saturating_add(carry).saturating_add(frozen),
        carry,
        held_by_rank_0: (alike - divided).saturating_add(first).saturating_add(own).saturating_add(computed),
        held_by_others: own.saturating_add(others),
    }
}
