//! The step engine over simulated ranks in one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_collectives::simulated::{self, Faults};
use segue_collectives::{Communicator, Watched};
use segue_configs::{Config, Shard};
use segue_trainer::engine::{Better, Engine, Learner, Loss, Measures, StepReport, Turn};
use segue_trainer::families::language_model::{self as objective, Batch};
use segue_trainer::noise::Noise;
use segue_trainer::{Init, ParameterSpec, Parameters, TrainError, libtorch};
use serde_json::json;
use tch::{Device, Kind, Tensor};

fn load(base: &[&str], overrides: &[&str]) -> Config {
    let all: Vec<String> = base.iter().chain(overrides).map(|s| s.to_string()).collect();
    segue_trainer::families::MODELS.load(None, &all).unwrap().config
}

fn config(overrides: &[&str]) -> Config {
    let base = [
        "model.vocab_size=50",
        "model.d_model=16",
        "model.n_head=2",
        "model.d_inner=24",
        "model.n_layer=2",
        "model.mem_len=6",
        "model.dropout=0.2",
        "train.lanes=8",
        "train.micro_batch=1",
        "train.segment=5",
        "train.bucket_bytes=2048",
        "optim.lr=0.01",
        "schedule.kind=constant",
    ];
    load(&base, overrides)
}

fn batch(config: &Config, step: u64, micro_step: usize) -> Batch {
    let size = (config.train.micro_batch * config.train.segment) as u64;
    let ids = |shift: u64| {
        let values: Vec<i64> =
            (0..size).map(|i| ((i + shift) * (7 + step) + 13 * micro_step as u64) as i64 % 50).collect();
        Tensor::from_slice(&values).view([config.train.micro_batch as i64, config.train.segment as i64])
    };
    Batch::new(ids(0), ids(1))
}

/// Bits of all weights and of the last loss after `steps` steps.
fn train(config: &Config, comm: &dyn Communicator, steps: u64) -> Result<(Vec<u32>, u64), TrainError> {
    libtorch::set_threads(1);
    let mut engine = Engine::new(config, objective::build(config, segue_trainer::Compute::CPU)?, comm)?;
    let mut last: Option<StepReport> = None;
    for step in 1..=steps {
        let batches: Vec<Batch> = engine.layout.micro_steps.clone().map(|m| batch(config, step, m)).collect();
        last = Some(engine.step(step, &batches)?);
    }
    let weights = engine.learner.parameters().tensors().iter();
    let bits =
        weights.flat_map(|t| Vec::<f32>::try_from(t.detach().reshape([-1])).unwrap()).map(f32::to_bits);
    Ok((bits.collect(), last.unwrap().loss.to_bits()))
}

#[test]
fn weights_and_losses_have_the_same_bits_at_any_number_of_ranks() {
    for overrides in [&[][..], &["model.cutoffs=[10,30]", "model.div_val=2"][..]] {
        let config = config(overrides);
        let alone = train(&config, &segue_collectives::local::Local, 4).unwrap();
        for ranks in [1, 2, 4, 8] {
            for result in simulated::run(ranks, |comm| train(&config, comm, 4).unwrap()) {
                assert!(result == alone, "{ranks} ranks");
            }
        }
    }
}

/// With LAMB, a length is of a whole parameter: however gradients are cut into buckets, and on whatever rank.
#[test]
fn lamb_gives_the_same_bits_at_any_number_of_ranks_and_bucket_size() {
    let keys =
        ["optim.kind=lamb", "optim.trust_limit=10.0", "optim.weight_decay=0.01", "model.cutoffs=[10,30]"];
    let alone = train(&config(&keys), &segue_collectives::local::Local, 4).unwrap();
    let adam = train(&config(&keys[2..]), &segue_collectives::local::Local, 4).unwrap();
    assert!(adam != alone);
    for bucket_bytes in ["train.bucket_bytes=1", "train.bucket_bytes=1000000"] {
        let config = config(&[&keys[..], &[bucket_bytes]].concat());
        for ranks in [2, 4, 8] {
            for result in simulated::run(ranks, |comm| train(&config, comm, 4).unwrap()) {
                assert!(result == alone, "{ranks} ranks, {bucket_bytes}");
            }
        }
    }
}

/// The rules of recurrent models, with their penalty in the gradient that is clipped.
#[test]
fn m10_other_rules_give_the_same_bits_at_any_number_of_ranks_and_division() {
    for kind in ["sgd", "rmsprop", "radam"] {
        let rule = format!("optim.kind={kind}");
        let keys = [rule.as_str(), "optim.l2=0.01", "optim.clip=0.05", "optim.weight_decay=0.1"];
        let alone = train(&config(&keys), &segue_collectives::local::Local, 7).unwrap();
        assert!(train(&config(&keys[..1]), &segue_collectives::local::Local, 7).unwrap() != alone);
        for shard in ["train.shard=none", "train.shard=optimizer"] {
            let config = config(&[&keys[..], &[shard]].concat());
            for ranks in [2, 8] {
                for result in simulated::run(ranks, |comm| train(&config, comm, 7).unwrap()) {
                    assert!(result == alone, "{kind}, {ranks} ranks, {shard}");
                }
            }
        }
    }
}

/// With a rate this small, w ← w − η · clip(g + λ w): a strength so large that g is nothing beside it leaves the direction of the weights.
#[test]
fn m10_the_penalty_is_of_all_weights_and_clipped_with_the_gradient() {
    libtorch::set_threads(1);
    let (strength, clip) = (1e6, 10.0);
    let keys = ["optim.kind=sgd", "optim.lr=0.01", "optim.clip=10", "optim.l2=1e6", "model.dropout=0"];
    let config = config(&keys);
    let learner = objective::build(&config, segue_trainer::Compute::CPU).unwrap();
    let mut engine = Engine::new(&config, learner, &segue_collectives::local::Local).unwrap();
    let values = |engine: &Engine<Box<dyn objective::Objective>>| -> Vec<Tensor> {
        let learner: &dyn objective::Objective = &*engine.learner;
        learner.parameters().tensors().iter().map(|t| t.detach().copy()).collect()
    };
    let before = values(&engine);
    let length = before.iter().map(|t| t.norm().double_value(&[]).powi(2)).sum::<f64>().sqrt();
    let batches: Vec<Batch> = engine.layout.micro_steps.clone().map(|m| batch(&config, 1, m)).collect();
    let report = engine.step(1, &batches).unwrap();
    assert!((report.grad_norm / (strength * length) - 1.0).abs() < 1e-4, "{}", report.grad_norm);
    for (before, after) in before.iter().zip(values(&engine)) {
        let expected = before * (1.0 - 0.01 * clip / length);
        let off = (after - expected).abs().max().double_value(&[]);
        assert!(off < 1e-6, "{off}");
    }
}

/// Four micro-steps of eight, then eight.
const GROWING: [&str; 2] = ["train.batch_warmup=4", "train.batch_warmup_from=2"];

#[test]
fn a_growing_batch_gives_the_same_bits_at_any_number_of_ranks() {
    let config = config(&GROWING);
    let alone = train(&config, &segue_collectives::local::Local, 6).unwrap();
    for ranks in [2, 4] {
        for result in simulated::run(ranks, |comm| train(&config, comm, 6).unwrap()) {
            assert!(result == alone, "{ranks} ranks");
        }
    }
    let whole = self::config(&[]);
    assert!(train(&whole, &segue_collectives::local::Local, 6).unwrap() != alone);
    // One micro-step each: none of them could be half.
    let refused = simulated::run(8, |comm| train(&config, comm, 1).unwrap_err());
    assert!(refused.iter().all(|e| e.exit_code() == 78 && e.to_string().contains("batch_warmup_from")));
}

/// Half of the micro-steps train as a job does that has only those, and leave the memory of the others as it is.
#[test]
fn a_step_of_a_growing_batch_is_one_of_the_lanes_that_take_part() {
    libtorch::set_threads(1);
    // Without dropout, whose masks depend on the number of a micro-step in its job.
    let growing = config(&[&GROWING[..], &["model.dropout=0"]].concat());
    let half = config(&["train.lanes=4", "model.dropout=0"]);
    let start = |config| {
        let objective = objective::build(config, segue_trainer::Compute::CPU).unwrap();
        Engine::new(config, objective, &segue_collectives::local::Local).unwrap()
    };
    let (mut growing_engine, mut half_engine) = (start(&growing), start(&half));
    // Step 1 is that of the micro-steps 1, 3, 5 and 7.
    let batches: Vec<Batch> = (0..8).map(|m| batch(&growing, 1, m)).collect();
    let own: Vec<Batch> = [1, 3, 5, 7].map(|m| batch(&growing, 1, m)).into();
    let (a, b) = (growing_engine.step(1, &batches).unwrap(), half_engine.step(1, &own).unwrap());
    assert_eq!(
        (a.loss.to_bits(), a.targets, a.grad_norm.to_bits()),
        (b.loss.to_bits(), 20.0, b.grad_norm.to_bits())
    );
    let weights = |engine: &Engine<Box<dyn objective::Objective>>| -> Vec<Tensor> {
        engine.learner.parameters().tensors().iter().map(|t| t.detach().copy()).collect()
    };
    assert_eq!(weights(&growing_engine), weights(&half_engine));
    let memory = |engine: &Engine<Box<dyn objective::Objective>>, place: usize| -> f64 {
        let tables = &engine.carry_tables()[place].1;
        tables
            .iter()
            .map(|(_, table)| table.to_kind(tch::Kind::Double).abs().sum(None).double_value(&[]))
            .sum()
    };
    for place in 0..8 {
        let expected = if place % 2 == 1 { memory(&half_engine, place / 2) } else { 0.0 };
        assert_eq!(memory(&growing_engine, place), expected, "micro-step {place}");
    }
}

/// Measured in every second step, with a norm for each micro-step.
#[test]
fn measuring_the_noise_changes_no_bit_and_is_the_same_at_any_number_of_ranks() {
    let noise = |config: &Config, comm: &dyn Communicator| {
        libtorch::set_threads(1);
        let objective = objective::build(config, segue_trainer::Compute::CPU).unwrap();
        let mut engine = Engine::new(config, objective, comm).unwrap();
        let estimate = |step| {
            let batches: Vec<Batch> =
                engine.layout.micro_steps.clone().map(|m| batch(config, step, m)).collect();
            let found = engine.step(step, &batches).unwrap().noise;
            found.map(|found| (found.square.to_bits(), found.trace.to_bits()))
        };
        (1..=4).map(estimate).collect::<Vec<_>>()
    };
    let (silent, config) = (config(&[]), config(&["log.noise_scale_every=2"]));
    let alone = noise(&config, &segue_collectives::local::Local);
    let measured: Vec<bool> = alone.iter().map(Option::is_some).collect();
    assert_eq!(measured, [false, true, false, true]);
    for ranks in [2, 8] {
        assert!(simulated::run(ranks, |comm| noise(&config, comm)).iter().all(|found| *found == alone));
    }
    let local = &segue_collectives::local::Local;
    assert!(train(&config, local, 4).unwrap() == train(&silent, local, 4).unwrap());
}

#[test]
fn three_ranks_give_the_bits_of_one_where_blocks_are_subtrees() {
    let config = config(&["train.lanes=6"]);
    let alone = train(&config, &segue_collectives::local::Local, 3).unwrap();
    for result in simulated::run(3, |comm| train(&config, comm, 3).unwrap()) {
        assert!(result == alone);
    }
}

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
        let alone = train(&config(overrides), &segue_collectives::local::Local, 4).unwrap();
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
    let steps = ["train.lanes=4", "train.micro_batch=1", "train.segment=5", "schedule.kind=constant"];
    let configs = [
        config(&["model.cutoffs=[10,30]", "model.div_val=2", "train.lanes=4"]),
        config(&["model.untie_r=false", "train.recompute=true", "train.lanes=4"]),
        load(&lstm, &steps),
        load(&dropping, &steps),
    ];
    for config in configs {
        let alone = train(&config, &segue_collectives::local::Local, 3).unwrap();
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

/// A margin is reckoned from what a rank has: ranks speak as often as without one, and train what one rank trains. With plain gradient
/// descent, equal weights after a step are equal gradients of states and words.
#[test]
fn s25_a_margin_adds_no_call_between_ranks() {
    let base = [
        "model.model_type=lstm",
        "model.vocab_size=50",
        "model.d_model=16",
        "model.n_layer=1",
        "model.cell=lstm",
        "train.lanes=8",
        "train.micro_batch=1",
        "train.segment=5",
        "train.bucket_bytes=2048",
        "optim.kind=sgd",
        "optim.lr=0.5",
        "schedule.kind=constant",
    ];
    // What is trained, and how often each call was made on a rank.
    let watched = |config: &Config, ranks: usize| {
        simulated::run(ranks, |comm| {
            let calls = Arc::new(Mutex::new(BTreeMap::<_, usize>::new()));
            let counts = calls.clone();
            let count = move |call, _| *counts.lock().unwrap().entry(call).or_default() += 1;
            let trained = train(config, &Watched::over(comm, count).unwrap(), 2).unwrap();
            let calls = calls.lock().unwrap().clone();
            (trained, calls)
        })
    };
    let local = segue_collectives::local::Local;
    for softmax in [&[][..], &["model.cutoffs=[30]"]] {
        let plain = load(&base, softmax);
        for gradient in ["scalar", "delta", "full"] {
            let gradient = format!("adversarial.gradient={gradient}");
            let moved = load(&base, &[softmax, &["adversarial.scale=0.05", &gradient]].concat());
            let alone = train(&moved, &local, 2).unwrap();
            assert!(alone != train(&plain, &local, 2).unwrap(), "{gradient}");
            for ranks in [2, 4] {
                let pairs = watched(&moved, ranks).into_iter().zip(watched(&plain, ranks));
                for ((trained, calls), (_, without)) in pairs {
                    assert!(trained == alone, "{ranks} ranks, {gradient}");
                    assert_eq!(calls, without, "{ranks} ranks, {gradient}");
                    assert!(calls["exchange"] > 0, "{calls:?}");
                }
            }
        }
    }
}

/// Without the tree's order sums differ in roundings; what ranks divide makes no difference beyond that, and replicas stay alike.
#[test]
fn divided_state_needs_no_exactness() {
    let exact = train(&config(&[]), &segue_collectives::local::Local, 3).unwrap();
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
        simulated::run(ranks, |comm| {
            let learner = objective::build(&config, segue_trainer::Compute::CPU).unwrap();
            Engine::new(&config, learner, comm).unwrap().optimizer_bytes()
        })
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

#[test]
fn any_order_is_close_and_need_not_be_equal() {
    let exact = train(&config(&[]), &segue_collectives::local::Local, 3).unwrap();
    let config = config(&["train.exact=false"]);
    for (bits, _) in simulated::run(4, |comm| train(&config, comm, 3).unwrap()) {
        for (a, b) in bits.iter().zip(&exact.0) {
            assert!((f32::from_bits(*a) - f32::from_bits(*b)).abs() < 1e-3);
        }
    }
}

#[test]
fn rank_that_dies_in_a_step_ends_the_others_with_69() {
    let config = config(&[]);
    // Early, in the middle of a step's reductions, late.
    for config in [config.clone(), self::config(&["train.shard=gradients"])] {
        for call in [2, 9, 40] {
            let mut faults = vec![Faults::default(); 4];
            faults[2].dies_at_call = Some(call);
            for result in simulated::run_with(faults, |comm| train(&config, comm, 50)) {
                assert_eq!(result.unwrap_err().exit_code(), 69, "call {call}");
            }
        }
    }
}

#[test]
fn loss_that_is_no_number_stops_before_the_update() {
    let config = config(&["optim.lr=1e30", "optim.clip=0"]);
    let error = train(&config, &segue_collectives::local::Local, 5).unwrap_err();
    assert_eq!(error.exit_code(), 80);
}

/// What ranks find may differ in the last bit, where processors do. Averages must not.
#[test]
fn a06_averages_of_all_ranks_follow_the_losses_of_the_first() {
    let config = config(&["average.kind=two_tailed", "eval.every=1"]);
    let states = simulated::run(2, |comm| {
        libtorch::set_threads(1);
        let mut engine =
            Engine::new(&config, objective::build(&config, segue_trainer::Compute::CPU).unwrap(), comm)
                .unwrap();
        let mut switched = Vec::new();
        for step in 1..=6 {
            let batches: Vec<Batch> =
                engine.layout.micro_steps.clone().map(|m| batch(&config, step, m)).collect();
            engine.step(step, &batches).unwrap();
            // Equal losses let the short average take the place of the long one, one that is worse does not.
            let mut loss = 1.0;
            let work = |_: &mut _| {
                loss += if comm.rank() == 0 { 0.0 } else { -f64::EPSILON };
                Ok(Some(measures(loss)))
            };
            let chosen = engine.evaluate(step, true, work).unwrap().unwrap();
            switched.push(chosen.choice.events);
        }
        (engine.networks[0].averaging.state(), format!("{switched:?}"))
    });
    assert_eq!(states[0], states[1]);
    assert!(states[0].1.contains("Switched"), "{}", states[0].1);
}

/// Row S27: the curve of the trained weights beside that of an average, of which nothing in the run depends.
#[test]
fn s27_the_trained_weights_are_told_beside_an_average() {
    libtorch::set_threads(1);
    let states = [false, true].map(|beside| {
        let beside = format!("average.beside_trained={beside}");
        let config = config(&["average.kind=exponential", "average.beta=0.5", "eval.every=1", &beside]);
        let objective = objective::build(&config, segue_trainer::Compute::CPU).unwrap();
        let mut engine = Engine::new(&config, objective, &segue_collectives::local::Local).unwrap();
        let batches: Vec<Batch> = engine.layout.micro_steps.clone().map(|m| batch(&config, 1, m)).collect();
        engine.step(1, &batches).unwrap();
        let sum = |parameters: &Parameters| {
            parameters.tensors().iter().map(|t| t.sum(Kind::Double).double_value(&[])).sum::<f64>()
        };
        let trained = sum(engine.learner.parameters());
        let chosen = engine.evaluate(1, true, |learner| Ok(Some(measures(sum(learner.parameters())))));
        let chosen = chosen.unwrap().unwrap();
        assert_ne!(chosen.candidates[0].1.lead, trained);
        assert_eq!(chosen.trained.map(|found| found.lead), config.average.beside_trained.then_some(trained));
        (engine.networks[0].averaging.state(), chosen.choice)
    });
    assert_eq!(states[0], states[1]);
}

/// A family may give another loss to decide by: the short average takes the long one's place where that says so, whatever is reported.
#[test]
fn a09_averages_decide_by_the_loss_that_is_given_for_it() {
    let config = config(&["average.kind=two_tailed", "average.variant=core", "eval.every=1"]);
    for switches in [false, true] {
        let events = simulated::run(2, |comm| {
            libtorch::set_threads(1);
            let objective = objective::build(&config, segue_trainer::Compute::CPU).unwrap();
            let mut engine = Engine::new(&config, objective, comm).unwrap();
            let mut last = Vec::new();
            for step in 1..=2 {
                let batches: Vec<Batch> =
                    engine.layout.micro_steps.clone().map(|m| batch(&config, step, m)).collect();
                engine.step(step, &batches).unwrap();
                // The short average first, then the long one; the other rank finds the opposite.
                let mut nth = 0.0;
                let work = |_: &mut _| {
                    nth += 1.0;
                    let decides = if switches == (comm.rank() == 0) { nth } else { -nth };
                    Ok(Some(Measures { decide: Some(decides), ..measures(-nth) }))
                };
                last = engine.evaluate(step, true, work).unwrap().unwrap().choice.events;
            }
            format!("{last:?}")
        });
        assert_eq!(events, [if switches { "[Switched]" } else { "[]" }; 2]);
    }
}

/// Row A7: each rank has its part of every average, and all together what one rank has.
#[test]
fn a07_each_rank_holds_an_equal_part_of_the_averages() {
    let values = |kind: &str, shard: &str, ranks: usize| {
        let kind = format!("average.kind={kind}");
        let config = config(&["model.vocab_size=3000", &kind, shard, "eval.every=2"]);
        simulated::run(ranks, |comm| {
            libtorch::set_threads(1);
            let learner = objective::build(&config, segue_trainer::Compute::CPU).unwrap();
            let mut engine = Engine::new(&config, learner, comm).unwrap();
            let batches: Vec<Batch> =
                engine.layout.micro_steps.clone().map(|m| batch(&config, 1, m)).collect();
            engine.step(1, &batches).unwrap();
            let candidates = engine.networks[0].averaging.candidates();
            let averages = candidates.iter().filter_map(|candidate| candidate.weights);
            averages.flatten().map(Tensor::numel).sum::<usize>()
        })
    };
    for kind in ["exponential", "polyak", "two_tailed"] {
        let whole = values(kind, "train.shard=none", 2);
        assert!(whole[0] > 3000 * 16 && whole[0] == whole[1]);
        for shard in ["train.shard=optimizer", "train.shard=gradients"] {
            for ranks in [2, 4] {
                let parts = values(kind, shard, ranks);
                assert_eq!(parts.iter().sum::<usize>(), whole[0]);
                assert!(parts.iter().all(|part| part.abs_diff(whole[0] / ranks) * 100 < whole[0] / ranks));
            }
        }
    }
}

/// Row A7: where an average has come to hold what is no number in the part of one rank, all ranks drop it.
#[test]
fn a07_all_ranks_drop_an_average_that_one_of_them_has_broken() {
    let config = config(&["average.kind=two_tailed", "eval.every=1", "train.shard=optimizer"]);
    for last in [false, true] {
        let told = simulated::run(4, |comm| {
            libtorch::set_threads(1);
            let learner = objective::build(&config, segue_trainer::Compute::CPU).unwrap();
            let mut engine = Engine::new(&config, learner, comm).unwrap();
            let tensors = engine.learner.parameters().tensors();
            let leaf = tensors[if last { tensors.len() - 1 } else { 0 }].detach().view([-1]);
            let place = if last { leaf.numel() as i64 - 1 } else { 0 };
            let _ = tch::no_grad(|| leaf.narrow(0, place, 1).fill_(f64::NAN));
            let Engine { networks, learner, .. } = &mut engine;
            networks[0].average(1, learner.parameters());
            let chosen = engine.evaluate(1, true, |_| Ok(Some(measures(f64::NAN)))).unwrap().unwrap();
            (format!("{:?}", chosen.choice.events), engine.networks[0].averaging.state())
        });
        assert!(told.iter().all(|found| *found == told[0]), "{told:?}");
        assert!(told[0].0.contains("Dropped"), "{told:?}");
    }
}

fn measures(loss: f64) -> Measures {
    Measures {
        lead: loss,
        better: Better::Lower,
        decide: None,
        tie: None,
        row: json!({}),
        scalars: Vec::new(),
        lines: Vec::new(),
    }
}

/// Three parameters, each a bucket of its own, used from the last to the first: backward is through with the first one first. A batch says which
/// micro-steps have an example.
struct Backwards(Parameters);

impl Learner for Backwards {
    type Batch = Vec<bool>;
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.0)]
    }

    fn start(&self, _: i64) {}

    fn loss(&self, _: &Turn, batch: &Vec<bool>, micro_step: usize, (): &(), _: &Noise) -> Loss<()> {
        if !batch[micro_step] {
            return Loss::nothing(1, Device::Cpu, ());
        }
        let used = self.0.tensors().iter().rev().map(|tensor| tensor.sin().sum(Kind::Float));
        Loss::of(used.reduce(|sum, next| sum.cos() + next).unwrap(), 1.0, None, ())
    }
}

/// The second rank has no example in the first step, so that its buckets are complete in rising order there: it follows the first rank's.
#[test]
fn buckets_are_added_up_in_the_order_of_the_first_rank() {
    let config = config(&["train.lanes=2", "train.bucket_bytes=1"]);
    let train = |comm: &dyn Communicator| {
        libtorch::set_threads(1);
        let spec = |n: i64| ParameterSpec {
            name: format!("p{n}"),
            shape: vec![n],
            init: Init::Uniform { range: 1.0 },
        };
        let parameters = Parameters::initialise([5, 40, 3].map(spec).into(), 1, Kind::Float);
        let mut engine = Engine::new(&config, Backwards(parameters), comm).unwrap();
        let mut arrived = Vec::new();
        for step in 1..=3 {
            let examples = [true, step > 1][engine.layout.micro_steps.clone()].to_vec();
            engine.step(step, &examples).unwrap();
            arrived.push(engine.networks[0].buckets().arrived());
        }
        let weights = engine.learner.0.tensors().iter();
        let bits = weights
            .flat_map(|t| Vec::<f32>::try_from(t.detach()).unwrap())
            .map(f32::to_bits)
            .collect::<Vec<_>>();
        (bits, arrived)
    };
    let (alone, _) = train(&segue_collectives::local::Local);
    let found = simulated::run(2, |comm| train(comm));
    assert!(found.iter().all(|(bits, _)| *bits == alone));
    assert_eq!(found[0].1, [[2, 1, 0]; 3]);
    assert_eq!(found[1].1, [[0, 1, 2], [2, 1, 0], [2, 1, 0]]);
}
