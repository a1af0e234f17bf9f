//! The step engine over simulated ranks in one process.

use segue_collectives::Communicator;
use segue_collectives::simulated::{self, Faults};
use segue_configs::Config;
use segue_trainer::engine::{Better, Engine, Measures, StepReport};
use segue_trainer::families::language_model::{self as objective, Batch};
use segue_trainer::{TrainError, libtorch};
use serde_json::json;
use tch::Tensor;

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
    let all: Vec<String> = base.iter().chain(overrides).map(|s| s.to_string()).collect();
    segue_trainer::families::MODELS.load(None, &all).unwrap().config
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
    let mut engine = Engine::new(config, objective::build(config)?, comm)?;
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

#[test]
fn three_ranks_give_the_bits_of_one_where_blocks_are_subtrees() {
    let config = config(&["train.lanes=6"]);
    let alone = train(&config, &segue_collectives::local::Local, 3).unwrap();
    for result in simulated::run(3, |comm| train(&config, comm, 3).unwrap()) {
        assert!(result == alone);
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
    for call in [2, 9, 40] {
        let mut faults = vec![Faults::default(); 4];
        faults[2].dies_at_call = Some(call);
        for result in simulated::run_with(faults, |comm| train(&config, comm, 50)) {
            assert_eq!(result.unwrap_err().exit_code(), 69, "call {call}");
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
fn averages_of_all_ranks_follow_the_losses_of_the_first() {
    let config = config(&["average.kind=two_tailed", "eval.every=1"]);
    let states = simulated::run(2, |comm| {
        libtorch::set_threads(1);
        let mut engine = Engine::new(&config, objective::build(&config).unwrap(), comm).unwrap();
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
            let chosen = engine.evaluate(step, work).unwrap().unwrap();
            switched.push(chosen.choice.events);
        }
        (engine.networks[0].averaging.state(), format!("{switched:?}"))
    });
    assert_eq!(states[0], states[1]);
    assert!(states[0].1.contains("Switched"), "{}", states[0].1);
}

fn measures(loss: f64) -> Measures {
    Measures {
        lead: loss,
        better: Better::Lower,
        tie: None,
        row: json!({}),
        scalars: Vec::new(),
        lines: Vec::new(),
    }
}
