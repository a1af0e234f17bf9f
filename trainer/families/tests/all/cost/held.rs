//! Memory of a rank as `segue plan` estimates it, against the dry run.

use segue_configs::{Config, Products, Shard};
use segue_cost::*;
use segue_kernels::TrainError;

use super::config;

fn held(config: &Config, ranks: usize, choices: &Choices) -> Held {
    let (mut config, work) = (config.clone(), segue_family::work(config).unwrap());
    config.train.shard = choices.shard;
    Held::new(&Cost::new(&config, &work, ranks).unwrap(), &work, choices)
}

fn fitting(config: &Config, ranks: usize, bytes: f64) -> Result<Option<usize>, TrainError> {
    largest_micro_batch(&config.train, ranks, bytes, |micro_batch| {
        let mut tried = config.clone();
        tried.train.micro_batch = micro_batch;
        Ok(tried.check_run().is_ok().then(|| held(&tried, ranks, &Choices::default())))
    })
}

const KEYS: [&str; 3] = ["model.vocab_size=100", "train.lanes=32", "train.micro_batch=4"];

/// As a dry run of the recipe with that choice says, whatever the recipe at hand has. While micro-steps add up, gradients are whole.
#[test]
fn sharded_state_is_what_a_run_divides() {
    let shards = [(Shard::None, "none"), (Shard::Optimizer, "optimizer"), (Shard::Gradients, "gradients")];
    for (ranks, divides) in [(8, true), (4, false), (1, false)] {
        let [none, optimizer, gradients] = shards.map(|(shard, name)| {
            let own = config(&[&KEYS[..], &[&format!("train.shard={name}")]].concat());
            let dry = segue_family::cost(&own, ranks).unwrap().memory_per_rank;
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
    let dry = segue_family::cost(&config, 1).unwrap().memory_per_rank;
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
    let fits = |bytes| fitting(&config, 1, bytes).unwrap();
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
    let two = fitting(&config, 2, 1e12).unwrap();
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
    let all = (1..9).map(|ranks| fitting(&config, ranks, 1e12));
    let found: Vec<Option<usize>> = all.map(Result::unwrap).collect();
    // Pairs of lanes read in both directions: two at least.
    assert_eq!(found, [Some(8), Some(4), None, Some(2), None, None, None, None]);
}
