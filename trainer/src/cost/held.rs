//! What a rank holds while it trains, by kind, and the largest micro-batch that fits.

use segue_configs::Config;
use serde::Serialize;

use super::{Choices, Cost, Work};
use crate::TrainError;
use crate::engine::check_ranks;

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
    /// What each of `ranks` ranks holds. Fails where they cannot share the micro-steps.
    pub fn new(config: &Config, work: &Work, ranks: usize, choices: &Choices) -> Result<Self, TrainError> {
        // Who divides what is said in one place, for runs and plans.
        let mut config = config.clone();
        config.train.shard = choices.shard;
        let cost = Cost::new(&config, work, ranks)?;
        let memory = cost.memory_per_rank;
        let copies = if choices.products.is_half() { HALF_BYTES * cost.parameters as f64 } else { 0.0 };
        let tokens = work.micro_step.tokens as f64 * cost.micro_steps_per_rank as f64;
        Ok(Self {
            weights: memory.weights as f64 + copies,
            gradients: memory.gradients as f64,
            moments: memory.optimizer as f64,
            averages: memory.average as f64,
            activations: work.micro_step.parts.activations(choices.recompute) * choices.value_bytes,
            segment_memory: memory.segment_memory as f64,
            batch: BATCHES * ID_BYTES * tokens,
        })
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
/// tried that the ranks can share the lanes of `config` with, and that its model takes.
pub fn largest_micro_batch(
    config: &Config,
    ranks: usize,
    bytes: f64,
    held: impl Fn(&Config) -> Result<Held, TrainError>,
) -> Result<Option<usize>, TrainError> {
    // More lanes to a micro-step are fewer micro-steps, which need fewer sums of gradients: bytes need not rise, so all are tried.
    for micro_batch in (1..=config.train.lanes / ranks.max(1)).rev() {
        if !config.train.lanes.is_multiple_of(micro_batch) {
            continue;
        }
        let mut tried = config.clone();
        tried.train.micro_batch = micro_batch;
        let shared = check_ranks(&tried.train, ranks).is_ok();
        if shared && tried.model.check_run(&tried).is_ok() && held(&tried)?.total() <= bytes {
            return Ok(Some(micro_batch));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;
    use crate::families;
    use segue_configs::{Products, Shard};

    fn held(config: &Config, ranks: usize, choices: &Choices) -> Held {
        Held::new(config, &families::work(config).unwrap(), ranks, choices).unwrap()
    }

    const KEYS: [&str; 3] = ["model.vocab_size=100", "train.lanes=32", "train.micro_batch=4"];

    /// As a dry run of the recipe with that choice says, whatever the recipe at hand has. While micro-steps add up, gradients are whole.
    #[test]
    fn sharded_state_is_what_a_run_divides() {
        let shards =
            [(Shard::None, "none"), (Shard::Optimizer, "optimizer"), (Shard::Gradients, "gradients")];
        for (ranks, divides) in [(8, true), (4, false), (1, false)] {
            let [none, optimizer, gradients] = shards.map(|(shard, name)| {
                let own = config(&[&KEYS[..], &[&format!("train.shard={name}")]].concat());
                let dry = families::cost(&own, ranks).unwrap().memory_per_rank;
                for (_, other) in shards {
                    let recipe = config(&[&KEYS[..], &[&format!("train.shard={other}")]].concat());
                    let held = held(&recipe, ranks, &Choices { shard, ..Choices::default() });
                    assert_eq!((held.moments, held.gradients), (dry.optimizer as f64, dry.gradients as f64));
                }
                dry
            });
            assert_eq!(optimizer.optimizer, none.optimizer.div_ceil(ranks as u64));
            assert_eq!(optimizer.gradients, none.gradients);
            assert_eq!(gradients.optimizer, optimizer.optimizer);
            assert_eq!(gradients.gradients < none.gradients, divides, "{ranks}");
        }
    }

    #[test]
    fn halves_and_recomputation_change_their_kinds_alone() {
        let config = config(&KEYS);
        let plain = held(&config, 1, &Choices::default());
        let half = held(&config, 1, &Choices::of(Products::BF16));
        assert_eq!(half.weights, plain.weights * 1.5);
        assert_eq!(half.activations, plain.activations * 0.75);
        // Layers hand single precision on, and the memory is cut from that.
        assert_eq!(half.segment_memory, plain.segment_memory);
        assert_eq!(half.moments, plain.moments);
        let again = held(&config, 1, &Choices { recompute: true, ..Choices::default() });
        assert!(again.activations < plain.activations * 0.4, "{again:?}");
        assert_eq!(Held { activations: plain.activations, ..again }, plain);
        // As a dry run says.
        let dry = families::cost(&config, 1).unwrap().memory_per_rank;
        assert_eq!(plain.total() - plain.batch, dry.total().most);
    }

    #[test]
    fn the_largest_micro_batch_is_the_last_that_fits() {
        let config = config(&KEYS);
        let bytes = |micro_batch: usize| {
            let mut config = config.clone();
            config.train.micro_batch = micro_batch;
            held(&config, 1, &Choices::default()).total()
        };
        let fits = |bytes| families::fitting_micro_batch(&config, 1, &Choices::default(), bytes).unwrap();
        for micro_batch in [1, 2, 4, 8, 16, 32] {
            let found = fits(bytes(micro_batch)).unwrap();
            assert!(found >= micro_batch && bytes(found) <= bytes(micro_batch), "{found} for {micro_batch}");
            // Nothing larger would.
            let larger = (found + 1..=32).filter(|n| 32usize.is_multiple_of(*n));
            assert!(larger.into_iter().all(|n| bytes(n) > bytes(micro_batch)));
        }
        assert_eq!(fits(1e12), Some(32));
        assert_eq!(fits(1000.0), None);
        // Two ranks of 32 lanes: 16 each at most.
        let two = families::fitting_micro_batch(&config, 2, &Choices::default(), 1e12).unwrap();
        assert_eq!(two, Some(16));
    }

    #[test]
    fn a_model_may_refuse_a_micro_batch() {
        let keys = [
            "model.model_type=xlnet",
            "model.vocab_size=100",
            "train.segment=16",
            "model.reuse_len=8",
            "pairs.num_predict=4",
            "pairs.bidirectional=true",
        ];
        let mut config = config(&[&keys[..], &["train.lanes=8", "train.micro_batch=2"]].concat());
        config.train.exact = false;
        let all =
            (1..9).map(|ranks| families::fitting_micro_batch(&config, ranks, &Choices::default(), 1e12));
        let found: Vec<Option<usize>> = all.map(Result::unwrap).collect();
        // Pairs of lanes read in both directions: two at least.
        assert_eq!(found, [Some(8), Some(4), None, Some(2), None, None, None, None]);
    }
}
