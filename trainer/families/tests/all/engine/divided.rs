//! Moments, averages and gradients that ranks divide among themselves.

use std::sync::Arc;
use std::time::Duration;

use segue_collectives::local::Local;
use segue_collectives::simulated::{self, Faults};
use segue_configs::Shard;

use super::{config, load, start, train};

/// What ranks divide among themselves. The clipped norm is summed over whole chunks; layers learn at rates of their own; sparse tables go
/// row by row; averages follow the weights; buckets hold many parameters or one.
#[test]
fn divided_state_gives_the_same_bits_at_any_number_of_ranks() {
    let decay = ["optim.kind=adamw", "optim.weight_decay=0.1", "optim.layer_decay=0.5", "optim.clip=0.05"];
    let variants: [(&[&str], &[usize]); 4] = [
        (&decay, &[1, 2, 4, 8]),
        (
            &["model.cutoffs=[10,30]", "model.div_val=2", "average.kind=exponential", "train.bucket_bytes=1"],
            &[4],
        ),
        (&["model.vocab_size=3000", "optim.kind=adam", "train.bucket_bytes=1000000"], &[2, 8]),
        (&["train.lanes=6"], &[3]),
    ];
    for (overrides, worlds) in variants {
        let alone = train(&config(overrides), &Local, 4).unwrap();
        for shard in ["train.shard=optimizer", "train.shard=gradients"] {
            let config = config(&[overrides, &[shard]].concat());
            for &ranks in worlds {
                for result in simulated::run(ranks, |comm| train(&config, comm, 4).unwrap()) {
                    assert!(result == alone, "{shard}, {ranks} ranks, {overrides:?}");
                }
            }
        }
    }
}

/// A forward pass begins while weights of other ranks are on their way, and reads none that are not there.
#[test]
fn weights_that_come_late_are_waited_for_where_they_are_read() {
    let late = Faults { link: Some(Arc::new(|_| Some(Duration::from_millis(2)))), dies_at_call: None };
    let lstm = ["model.model_type=lstm", "model.vocab_size=50", "model.d_model=16", "model.n_layer=2"];
    let dropping = [&lstm[..], &["model.weight_dropout=0.3", "model.tie_word_embeddings=false"]].concat();
    let xlnet = [
        "model.model_type=xlnet",
        "model.vocab_size=50",
        "model.d_model=16",
        "model.n_head=2",
        "model.d_inner=24",
        "model.n_layer=2",
        "model.mem_len=10",
        "model.reuse_len=6",
        "model.untie_r=false",
        "pairs.num_predict=4",
    ];
    let steps = ["train.lanes=4", "train.micro_batch=1", "train.segment=5", "schedule.kind=constant"];
    let configs = [
        config(&["model.cutoffs=[10,30]", "model.div_val=2", "train.lanes=4"]),
        config(&["model.untie_r=false", "train.recompute=true", "train.lanes=4"]),
        load(&lstm, &steps),
        load(&dropping, &steps),
        load(&xlnet, &["train.lanes=8", "train.micro_batch=2", "train.segment=12"]),
    ];
    for config in configs {
        let alone = train(&config, &Local, 3).unwrap();
        for shard in [Shard::Optimizer, Shard::Gradients] {
            let mut config = config.clone();
            (config.train.shard, config.train.bucket_bytes) = (shard, 1024);
            for result in simulated::run_with(vec![late.clone(); 2], |comm| train(&config, comm, 3).unwrap())
            {
                assert!(result == alone, "{shard:?}, {:?}", config.model);
            }
        }
    }
}

/// Without the tree's order sums differ in roundings; what ranks divide makes no difference beyond that, and replicas stay alike.
#[test]
fn divided_state_needs_no_exactness() {
    let exact = train(&config(&[]), &Local, 3).unwrap();
    for shard in ["train.shard=optimizer", "train.shard=gradients"] {
        let config = config(&["train.exact=false", shard]);
        let found = simulated::run(4, |comm| train(&config, comm, 3).unwrap());
        assert!(found.iter().all(|(bits, _)| *bits == found[0].0));
        for (a, b) in found[0].0.iter().zip(&exact.0) {
            assert!((f32::from_bits(*a) - f32::from_bits(*b)).abs() < 1e-3);
        }
    }
}

/// Also where one table, of 3000 words, is most of the model. What a bucket has beyond equal parts is a few values.
#[test]
fn each_rank_holds_an_equal_part_of_the_moments() {
    let bytes = |shard: &str, ranks: usize| {
        let config = config(&["model.vocab_size=3000", "train.bucket_bytes=100000", shard]);
        simulated::run(ranks, |comm| start(&config, comm).optimizer_bytes())
    };
    let whole = bytes("train.shard=none", 4);
    assert!(whole.iter().all(|bytes| *bytes == whole[0]));
    for shard in ["train.shard=optimizer", "train.shard=gradients"] {
        for ranks in [2, 4, 8] {
            let parts = bytes(shard, ranks);
            assert_eq!(parts.iter().sum::<u64>(), whole[0]);
            for part in parts {
                assert!(part.abs_diff(whole[0] / ranks as u64) * 100 < whole[0] / ranks as u64, "{part}");
            }
        }
    }
}
