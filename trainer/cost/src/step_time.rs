//! The parts of a step, in seconds.

use segue_configs::{ByPrecision, CheckpointConfig, Machine, MachineKind, Products, Shard, TrainConfig};
use segue_engine::check_ranks;
use segue_kernels::TrainError;
use serde::Serialize;

use super::overlap::{buckets, hidden_behind, hidden_behind_forward};
use super::{
    Algorithm, Bucket, Choices, Cost, Links, MicroStep, ONE_PASS_SCORE_PASSES, Overlap, TRAINING_TO_FORWARD,
    TurnWork, VALUE_BYTES, Work,
};

/// Backward's products to those of the forward pass.
const BACKWARD_TO_FORWARD: f64 = TRAINING_TO_FORWARD - 1.0;
/// Times that a gradient's value is read or written in a micro-step: made by its product, read and written into its bucket, where
/// there may be another to add.
const GRADIENT_PASSES: f64 = 4.0;

/// Seconds of the parts of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StepTime {
    /// Products of linear layers.
    pub products: f64,
    /// Attention: its products, and its matrices where kernels keep them in memory.
    pub attention: f64,
    /// Norms, dropout, residuals, activation functions, and gradients on their way into their buckets.
    pub element_wise: f64,
    /// The output layer and its softmax.
    pub softmax: f64,
    /// Norm of the gradient, clipping, optimizer.
    pub update: f64,
    /// What is left to wait for where operations end sooner than others can be started.
    pub starts: f64,
    /// What ranks exchange and neither backward nor the next forward pass hides.
    pub communication: f64,
    /// What ranks exchange in all: not a part of the step.
    pub communication_total: f64,
    /// Batches that are not read as fast as they are used.
    pub data: f64,
    /// The training's share of checkpoints, spread over the steps between them.
    pub checkpoint: f64,
}

/// Where and how a step is made.
pub struct Setting<'a> {
    /// How the run steps.
    pub train: &'a TrainConfig,
    /// When its state is written.
    pub checkpoint: &'a CheckpointConfig,
    /// What it trains.
    pub work: &'a Work,
    /// On which machine.
    pub machine: &'a Machine,
    /// Its ranks.
    pub links: Links,
    /// How it is trained.
    pub choices: Choices,
}

impl Setting<'_> {
    /// Operations a second that products reach. Fails where the machine does not have the precision.
    fn product_rate(&self) -> Result<f64, TrainError> {
        let of = |figure: &ByPrecision| figure.of(self.choices.products);
        match (of(&self.machine.peak), of(&self.machine.achieved.products)) {
            (Some(peak), Some(reached)) => Ok(peak * reached),
            _ => {
                let has = |of: &Products| {
                    self.machine.peak.of(*of).is_some() && self.machine.achieved.products.of(*of).is_some()
                };
                let known: Vec<&str> = Products::ALL.into_iter().filter(has).map(Products::name).collect();
                Err(TrainError::Layout(format!(
                    "{} have no {}\nhint: choose one of {}",
                    self.machine.about,
                    self.choices.products.name(),
                    known.join(", ")
                )))
            }
        }
    }

    /// Bytes a second between a rank and its memory.
    fn memory_rate(&self) -> f64 {
        let own = self.machine.bandwidth.memory;
        let shared = self.machine.bandwidth.node_memory.map_or(own, |all| all / self.links.inside as f64);
        self.machine.achieved.memory * own.min(shared)
    }

    fn algorithm(&self) -> Algorithm {
        if self.train.sums_by_tree() { Algorithm::Tree } else { Algorithm::Any }
    }

    /// Forward and backward of one micro-step of a turn that updates `parameters` values: all but communication, data, update.
    fn micro_step(&self, turn: &TurnWork, parameters: f64) -> Result<StepTime, TrainError> {
        let MicroStep { parts, forward_only, .. } = turn.micro_step;
        let (rate, memory) = (self.product_rate()?, self.memory_rate());
        let bytes = self.choices.value_bytes;
        // A layer's activations once more are another forward pass, of a third of training's products and memory.
        let again = if self.choices.recompute { 1.0 } else { 0.0 };
        let layers = TRAINING_TO_FORWARD + again;
        let moved = 1.0 + again / TRAINING_TO_FORWARD;
        // Where attention goes tile by tile its matrices stay in the cache.
        let passes = match self.machine.kind {
            MachineKind::Cpu => 0.0,
            MachineKind::Cuda if self.choices.one_pass => ONE_PASS_SCORE_PASSES,
            MachineKind::Cuda => parts.score_passes,
        };
        let scores = parts.scores * passes;
        let gradients = GRADIENT_PASSES * parameters * VALUE_BYTES as f64;
        let mut time = StepTime {
            products: (layers * parts.products - (layers - 1.0) * forward_only) / rate
                + moved * parts.products_moved * bytes / memory,
            attention: layers * parts.attention / (rate * self.machine.achieved.attention)
                + moved * scores * bytes / memory,
            element_wise: (moved * parts.states_moved * bytes + gradients) / memory,
            softmax: TRAINING_TO_FORWARD * parts.softmax / rate + parts.logits_moved * bytes / memory,
            ..StepTime::default()
        };
        time.starts = (moved * parts.operations * self.machine.latency.kernel - time.total()).max(0.0);
        Ok(time)
    }

    /// A step of a turn, without data and checkpoints.
    fn step_of(&self, turn: &TurnWork, micro_steps: f64) -> Result<StepTime, TrainError> {
        let (specs, roles) = self.work.updated_in(turn);
        let parameters = specs.iter().map(|spec| spec.numel() as f64).sum();
        let one = self.micro_step(turn, parameters)?;
        let buckets = |output: f64| {
            buckets(&specs, &roles, self.train.bucket_bytes, output, turn.micro_step.parts.layers)
        };
        let overlap = self.communication(&one, buckets);
        Ok(StepTime {
            update: self.update(parameters),
            communication: overlap.exposed,
            communication_total: overlap.total,
            ..one.times(micro_steps)
        })
    }

    /// Sums over ranks, beside the backward of the last micro-step, and weights that come back beside the next forward.
    fn communication(&self, micro_step: &StepTime, buckets: impl Fn(f64) -> Vec<Bucket>) -> Overlap {
        if self.links.ranks() == 1 {
            return Overlap::default();
        }
        let again = if self.choices.recompute { 1.0 } else { 0.0 };
        let share = (BACKWARD_TO_FORWARD + again) / (TRAINING_TO_FORWARD + again);
        let backward = share * micro_step.total();
        let forward = micro_step.total() - backward;
        let output = (micro_step.softmax / micro_step.total()).min(1.0);
        let buckets = buckets(output);
        let bytes = |values: f64| values * self.choices.gradient_bytes;
        let whole = |values: f64| self.links.all_reduce(bytes(values), self.algorithm());
        let half = |values: f64| self.links.scatter(bytes(values), self.algorithm());
        let sums = match self.choices.shard {
            Shard::None | Shard::Optimizer => hidden_behind(backward, &buckets, whole),
            // To the rank that updates them.
            Shard::Gradients => hidden_behind(backward, &buckets, half),
        };
        // Weights come back to all, beside the forward pass of the next step.
        let weights = match self.choices.shard {
            Shard::None => Overlap::default(),
            Shard::Optimizer | Shard::Gradients => hidden_behind_forward(forward, &buckets, |values| {
                self.links.scatter(values * VALUE_BYTES as f64, self.algorithm())
            }),
        };
        let mut overlap =
            Overlap { total: sums.total + weights.total, exposed: sums.exposed + weights.exposed };
        if self.machine.kind == MachineKind::Cpu {
            overlap.exposed = overlap.total;
        }
        overlap
    }

    fn update(&self, parameters: f64) -> f64 {
        let shared = if self.choices.shard == Shard::None { 1.0 } else { self.links.ranks() as f64 };
        self.choices.update_passes * parameters * VALUE_BYTES as f64 / shared / self.memory_rate()
    }
}

/// Steps of `step_s` seconds from one checkpoint to the next of a run of `steps` steps, whichever of the two intervals of a recipe is over
/// first; all where it has none.
pub fn steps_between_checkpoints(steps: u64, config: &CheckpointConfig, step_s: f64) -> f64 {
    let all = steps as f64;
    let by_count = if config.every == 0 { all } else { config.every as f64 };
    let by_clock = if config.minutes > 0.0 { 60.0 * config.minutes / step_s } else { all };
    by_count.min(by_clock.max(1.0)).min(all)
}

impl StepTime {
    /// All parts times `factor`.
    fn times(self, factor: f64) -> Self {
        Self {
            products: self.products * factor,
            attention: self.attention * factor,
            element_wise: self.element_wise * factor,
            softmax: self.softmax * factor,
            update: self.update * factor,
            starts: self.starts * factor,
            communication: self.communication * factor,
            communication_total: self.communication_total * factor,
            data: self.data * factor,
            checkpoint: self.checkpoint * factor,
        }
    }

    /// The parts of both.
    fn plus(self, other: Self) -> Self {
        Self {
            products: self.products + other.products,
            attention: self.attention + other.attention,
            element_wise: self.element_wise + other.element_wise,
            softmax: self.softmax + other.softmax,
            update: self.update + other.update,
            starts: self.starts + other.starts,
            communication: self.communication + other.communication,
            communication_total: self.communication_total + other.communication_total,
            data: self.data + other.data,
            checkpoint: self.checkpoint + other.checkpoint,
        }
    }

    /// The step of a setting.
    pub fn new(setting: &Setting, cost: &Cost) -> Result<Self, TrainError> {
        let micro_steps = check_ranks(setting.train, setting.links.ranks())? as f64;
        // The mean over the steps of a cycle.
        let cycle: u64 = setting.work.turns.iter().map(|turn| turn.steps).sum();
        let mut time = StepTime::default();
        for turn in &setting.work.turns {
            time = time.plus(setting.step_of(turn, micro_steps)?.times(turn.steps as f64 / cycle as f64));
        }
        // Read and copied ahead of time: only what takes longer than a step is seen.
        let tokens = cost.tokens_per_step as f64 / setting.links.nodes as f64;
        let read = tokens * ID_BYTES / setting.machine.bandwidth.disk.min(setting.machine.bandwidth.host);
        time.data = (read - time.total()).max(0.0);
        time.checkpoint = time.checkpoint_share(setting, cost);
        Ok(time)
    }

    /// A checkpoint is a copy of the state, which training waits for, and its writing, which it waits for where that takes longer
    /// than the steps to the next.
    fn checkpoint_share(&self, setting: &Setting, cost: &Cost) -> f64 {
        let every = steps_between_checkpoints(setting.train.steps, setting.checkpoint, self.total());
        let interval = self.total() * every;
        let late = (writing(setting.machine, cost) - interval).max(0.0);
        (copying(setting.machine, cost) + late) / every
    }

    /// Every part of the step with its name, in the order of a table.
    pub fn parts(&self) -> [(&'static str, f64); 9] {
        [
            ("products", self.products),
            ("attention", self.attention),
            ("element-wise", self.element_wise),
            ("softmax", self.softmax),
            ("update", self.update),
            ("starts", self.starts),
            ("communication", self.communication),
            ("data", self.data),
            ("checkpoint", self.checkpoint),
        ]
    }

    /// The whole step.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }
}

/// Bytes of a token's id and of its target.
const ID_BYTES: f64 = 16.0;

/// Seconds in which rank 0 copies the state that it writes.
pub fn copying(machine: &Machine, cost: &Cost) -> f64 {
    let bytes = cost.checkpoint.held_by_rank_0 as f64;
    match machine.kind {
        // Read and written.
        MachineKind::Cpu => 2.0 * bytes / (machine.achieved.memory * machine.bandwidth.memory),
        MachineKind::Cuda => bytes / machine.bandwidth.host,
    }
}

/// Seconds in which a checkpoint is written, or read.
pub fn writing(machine: &Machine, cost: &Cost) -> f64 {
    cost.checkpoint.disk as f64 / machine.bandwidth.disk
}
