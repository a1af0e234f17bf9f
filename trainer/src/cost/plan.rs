//! A run on a machine: how fast, how large, how long, how dear.

use segue_configs::{Config, Machine};
use serde::Serialize;

use super::step_time::{Setting, copying, steps_between_checkpoints, writing};
use super::{Choices, Cost, Failures, Held, Links, Recovery, StepTime, TRAINING_TO_FORWARD, Work};
use crate::TrainError;

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
        config: &Config,
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
        let mut config = config.clone();
        config.train.shard = choices.shard;
        let config = &config;
        let cost = Cost::new(config, work, ranks)?;
        let parts = StepTime::new(&Setting { config, work, machine, links, choices: *choices }, &cost)?;
        let step_s = parts.total();
        let tokens_per_s = cost.tokens_per_step as f64 / step_s;
        let flops = TRAINING_TO_FORWARD * work.micro_step.parts.forward() / work.micro_step.tokens as f64;
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
        let as_configured = failures.recovery(work_s, bare * steps_between_checkpoints(config, bare));
        let best = failures.best(work_s, bare);
        Ok(Self {
            nodes: links.nodes,
            ranks,
            lanes: config.train.lanes,
            micro_batch: config.train.micro_batch,
            micro_steps: cost.micro_steps_per_rank,
            step_s,
            parts,
            tokens_per_s,
            memory: Held::new(config, work, ranks, choices)?,
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

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use segue_configs::Shard;

    use super::*;
    use crate::families;
    use segue_configs::Products;

    const KEYS: [&str; 8] = [
        "model.vocab_size=32000",
        "model.n_layer=12",
        "model.d_model=512",
        "model.n_head=8",
        "model.d_inner=2048",
        "train.lanes=256",
        "train.micro_batch=8",
        "train.steps=100000",
    ];

    fn plan(machine: &Machine, ranks: usize, choices: &Choices) -> Plan {
        let config = config(&KEYS);
        Plan::new(&config, &families::work(&config).unwrap(), machine, ranks, choices).unwrap()
    }

    fn a100() -> Machine {
        Machine::load("dgx-a100").unwrap()
    }

    fn bf16() -> Choices {
        Choices::of(Products::BF16)
    }

    #[test]
    fn one_rank_has_no_communication() {
        let alone = plan(&a100(), 1, &bf16());
        assert_eq!((alone.parts.communication, alone.parts.communication_total), (0.0, 0.0));
        assert_eq!((alone.nodes, alone.micro_steps), (1, 32));
        assert_eq!(alone.efficiency_against(&alone), 1.0);
        let sum: f64 = alone.parts.parts().iter().map(|(_, seconds)| seconds).sum();
        assert_eq!(alone.step_s, sum);
    }

    #[test]
    fn more_ranks_share_the_work_and_pay_for_it_in_communication() {
        let (one, eight, two_nodes) =
            (plan(&a100(), 1, &bf16()), plan(&a100(), 8, &bf16()), plan(&a100(), 16, &bf16()));
        assert!((eight.parts.products - one.parts.products / 8.0).abs() < 1e-12);
        assert!(eight.parts.communication <= eight.parts.communication_total);
        assert!(two_nodes.parts.communication_total > eight.parts.communication_total);
        assert!(two_nodes.efficiency_against(&one) < eight.efficiency_against(&one));
        assert_eq!((two_nodes.nodes, two_nodes.price > 0.0), (2, true));
    }

    #[test]
    fn more_of_anything_is_never_slower() {
        let base = plan(&a100(), 16, &bf16());
        type Change = fn(&mut Machine);
        let changes: [Change; 6] = [
            |m| m.bandwidth.inside *= 2.0,
            |m| m.bandwidth.between *= 2.0,
            |m| m.bandwidth.memory *= 2.0,
            |m| m.bandwidth.host *= 2.0,
            |m| m.bandwidth.disk *= 2.0,
            |m| m.peak.bf16 = m.peak.bf16.map(|peak| peak * 2.0),
        ];
        for (nth, change) in changes.iter().enumerate() {
            let mut machine = a100();
            change(&mut machine);
            let better = plan(&machine, 16, &bf16());
            assert!(better.step_s <= base.step_s, "{nth}");
            assert!(better.best.expected <= base.best.expected, "{nth}");
        }
    }

    #[test]
    fn checkpoints_by_the_clock_count_as_those_of_the_step() {
        let keys = |more: &[&str]| config(&[&KEYS[..], more].concat());
        let steps = |more: &[&str]| steps_between_checkpoints(&keys(more), 2.0);
        assert_eq!(steps(&["checkpoint.every=0"]), 100_000.0);
        assert_eq!(steps(&["checkpoint.every=0", "checkpoint.minutes=10"]), 300.0);
        assert_eq!(steps(&["checkpoint.every=200", "checkpoint.minutes=10"]), 200.0);
        assert_eq!(steps(&["checkpoint.minutes=0.01"]), 1.0);
    }

    #[test]
    fn a_processor_hides_no_communication() {
        let host = Machine::load("two-core-xeon").unwrap();
        let two = plan(&host, 2, &Choices::default());
        assert_eq!(two.parts.communication, two.parts.communication_total);
        assert!(two.parts.communication > 0.0);
    }

    #[test]
    fn recomputation_takes_a_forward_pass_more_and_sharding_updates_a_part() {
        let plain = plan(&a100(), 8, &bf16());
        let again = plan(&a100(), 8, &Choices { recompute: true, ..bf16() });
        assert!((again.parts.products / plain.parts.products - 4.0 / 3.0).abs() < 1e-9);
        assert_eq!(again.parts.softmax, plain.parts.softmax);
        assert_eq!(again.mfu < plain.mfu, again.step_s > plain.step_s);
        // Attention's matrices in memory take longer, of all parts that of attention alone.
        let stored = plan(&a100(), 8, &Choices { one_pass: false, ..bf16() });
        assert!(stored.parts.attention > 1.5 * plain.parts.attention);
        assert_eq!(stored.parts.products, plain.parts.products);
        let shared = plan(&a100(), 8, &Choices { shard: Shard::Optimizer, ..bf16() });
        assert!((shared.parts.update - plain.parts.update / 8.0).abs() < 1e-12);
        // Sums as without, and weights that come back beside the forward pass, which is as long as they take many times over.
        let ratio = shared.parts.communication_total / plain.parts.communication_total;
        assert!((1.4..1.6).contains(&ratio), "{ratio}");
        assert!(shared.parts.communication >= plain.parts.communication);
        let weights = shared.parts.communication_total - plain.parts.communication_total;
        assert!(shared.parts.communication - plain.parts.communication < 0.5 * weights);
        // Half of a sum and half of it again.
        let divided = plan(&a100(), 8, &Choices { shard: Shard::Gradients, ..bf16() });
        let ratio = divided.parts.communication_total / plain.parts.communication_total;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_advice() {
        let config = config(&KEYS);
        let work = families::work(&config).unwrap();
        let refused = |machine: &str, ranks, choices: &Choices| {
            let machine = Machine::load(machine).unwrap();
            let error = Plan::new(&config, &work, &machine, ranks, choices).unwrap_err();
            assert_eq!(error.exit_code(), 78);
            format!("{error} {}", error.hint().unwrap_or_default())
        };
        let message = refused("dgx-1", 8, &bf16());
        assert!(message.contains("have no bf16") && message.contains("f32, fp16"), "{message}");
        assert!(refused("dgx-a100", 64, &bf16()).contains("64 ranks do not divide"));
        assert!(refused("dgx-a100", 9, &bf16()).contains("do not fill 2 nodes"));
    }

    #[test]
    fn small_models_wait_for_their_operations_to_start() {
        let keys = ["model.vocab_size=100", "model.d_model=16", "train.lanes=8", "train.micro_batch=1"];
        let config = config(&keys);
        let work = families::work(&config).unwrap();
        let plan = Plan::new(&config, &work, &a100(), 8, &bf16()).unwrap();
        assert!(plan.parts.starts > 0.8 * plan.step_s, "{:?}", plan.parts);
    }
}
