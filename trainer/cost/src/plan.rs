//! A run on a machine: how fast, how large, how long, how dear.

use segue_configs::{Config, Machine};
use segue_kernels::TrainError;
use serde::Serialize;

use super::step_time::{Setting, copying, steps_between_checkpoints, writing};
use super::{Choices, Cost, Failures, Held, Links, MicroStep, Recovery, StepTime, TRAINING_TO_FORWARD, Work};

/// What is to be expected of a run on so many ranks of a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Nodes.
    pub nodes: usize,
    /// Ranks over all of them.
    pub ranks: usize,
    /// Lanes of the global batch.
    pub lanes: usize,
    /// Lanes of a micro-step.
    pub micro_batch: usize,
    /// Micro-steps of a rank in a step.
    pub micro_steps: usize,
    /// Seconds of a step.
    pub step_s: f64,
    /// Of its parts.
    pub parts: StepTime,
    /// Tokens a second over all ranks.
    pub tokens_per_s: f64,
    /// Bytes that a rank holds.
    pub memory: Held,
    /// Bytes it could hold.
    pub memory_limit: f64,
    /// Operations of training, a forward and a backward pass of each token, to what the ranks do at their peak.
    pub mfu: f64,
    /// Steps.
    pub steps: u64,
    /// Seconds of all steps, without failures.
    pub work_s: f64,
    /// With failures, and a checkpoint as often as the recipe says.
    pub as_configured: Recovery,
    /// With failures, and a checkpoint as often as is best.
    pub best: Recovery,
    /// Steps between checkpoints that are best.
    pub best_every: u64,
    /// Price of the run as it is configured.
    pub price: f64,
}

impl Plan {
    /// Of a run of `ranks` ranks, which fill nodes one after the other. Fails where they cannot share the micro-steps, as training
    /// would, and where the machine does not have the precision.
    pub fn new(
        mut config: Config,
        work: &Work,
        machine: &Machine,
        ranks: usize,
        choices: &Choices,
    ) -> Result<Self, TrainError> {
        let links = Links::new(machine, ranks);
        if links.ranks() != ranks {
            let why = format!("{ranks} ranks do not fill {} nodes alike", links.nodes);
            let hint = format!("choose a multiple of {}", machine.ranks);
            return Err(TrainError::Layout(format!("{why}\nhint: {hint}")));
        }
        // What is chosen here is what the recipe would say.
        config.train.shard = choices.shard;
        let Config { train, checkpoint, .. } = &config;
        let cost = Cost::new(&config, work, ranks)?;
        let setting = Setting { train, checkpoint, work, machine, links, choices: *choices };
        let parts = StepTime::new(&setting, &cost)?;
        let step_s = parts.total();
        let tokens_per_s = cost.tokens_per_step as f64 / step_s;
        let operations = |step: &MicroStep| {
            TRAINING_TO_FORWARD * step.parts.forward() - (TRAINING_TO_FORWARD - 1.0) * step.forward_only
        };
        let flops = work.mean(operations) / work.mean_of(|step| step.tokens) as f64;
        let peak = machine.peak.of(choices.products).unwrap_or(machine.peak.f32);
        let (stall, published_after) = (copying(machine, &cost), writing(machine, &cost));
        let failures = Failures {
            mtbf: machine.mtbf_hours * 3600.0 / links.nodes as f64,
            stall,
            published_after,
            // A checkpoint is read as fast as it is written.
            restart: machine.restart + published_after,
        };
        // Steps alone: the formulas add checkpoints.
        let bare = step_s - parts.checkpoint;
        let work_s = bare * cost.steps as f64;
        let every = steps_between_checkpoints(train.steps, checkpoint, bare);
        let as_configured = failures.recovery(work_s, bare * every);
        let best = failures.best(work_s, bare);
        Ok(Self {
            nodes: links.nodes,
            ranks,
            lanes: train.lanes,
            micro_batch: train.micro_batch,
            micro_steps: cost.micro_steps_per_rank,
            step_s,
            parts,
            tokens_per_s,
            memory: Held::new(&cost, work, choices),
            memory_limit: machine.memory,
            mfu: flops * tokens_per_s / (peak * ranks as f64),
            steps: cost.steps,
            work_s: step_s * cost.steps as f64,
            as_configured,
            best,
            best_every: (best.interval / bare).round().max(1.0) as u64,
            price: as_configured.expected / 3600.0 * machine.price * links.nodes as f64,
        })
    }

    /// Tokens a second of each rank to those of each rank of another plan, such as that of one rank.
    pub fn efficiency_against(&self, other: &Plan) -> f64 {
        (self.tokens_per_s / self.ranks as f64) / (other.tokens_per_s / other.ranks as f64)
    }

    /// Whether a rank's memory is enough.
    pub fn fits(&self) -> bool {
        self.memory.total() <= self.memory_limit
    }
}
