//! Batches that grow, and what the noise of gradients says of their size.

use segue_collectives::local::Local;
use segue_collectives::{Communicator, simulated};
use segue_configs::Config;
use segue_language::Batch;
use tch::{Kind, Tensor};

use super::{Running, batch, batches, config, start, train};

/// Four micro-steps of eight, then eight.
const GROWING: [&str; 2] = ["train.batch_warmup=4", "train.batch_warmup_from=2"];

#[test]
fn a_growing_batch_gives_the_same_bits_at_any_number_of_ranks() {
    let config = config(&GROWING);
    let alone = train(&config, &Local, 6).unwrap();
    for ranks in [2, 4] {
        for result in simulated::run(ranks, |comm| train(&config, comm, 6).unwrap()) {
            assert!(result == alone, "{ranks} ranks");
        }
    }
    let whole = self::config(&[]);
    assert!(train(&whole, &Local, 6).unwrap() != alone);
    // One micro-step each: none of them could be half.
    let refused = simulated::run(8, |comm| train(&config, comm, 1).unwrap_err());
    assert!(refused.iter().all(|e| e.exit_code() == 78 && e.to_string().contains("batch_warmup_from")));
}

/// Half of the micro-steps train as a job does that has only those, and leave the memory of the others as it is.
#[test]
fn a_step_of_a_growing_batch_is_one_of_the_lanes_that_take_part() {
    // Without dropout, whose masks depend on the number of a micro-step in its job.
    let growing = config(&[&GROWING[..], &["model.dropout=0"]].concat());
    let half = config(&["train.lanes=4", "model.dropout=0"]);
    let (mut growing_engine, mut half_engine) = (start(&growing, &Local), start(&half, &Local));
    // Step 1 is that of the micro-steps 1, 3, 5 and 7.
    let batches: Vec<Batch> = (0..8).map(|m| batch(&growing, 1, m)).collect();
    let own: Vec<Batch> = [1, 3, 5, 7].map(|m| batch(&growing, 1, m)).into();
    let (a, b) = (growing_engine.step(1, &batches).unwrap(), half_engine.step(1, &own).unwrap());
    assert_eq!(
        (a.loss.to_bits(), a.targets, a.grad_norm.to_bits()),
        (b.loss.to_bits(), 20.0, b.grad_norm.to_bits())
    );
    let weights = |engine: &Running| -> Vec<Tensor> {
        engine.learner.parameters().tensors().iter().map(|t| t.detach().copy()).collect()
    };
    assert_eq!(weights(&growing_engine), weights(&half_engine));
    let memory = |engine: &Running, place: usize| -> f64 {
        let tables = &engine.carry_tables()[place].1;
        tables.iter().map(|(_, table)| table.to_kind(Kind::Double).abs().sum(None).double_value(&[])).sum()
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
        let mut engine = start(config, comm);
        let estimate = |step| {
            let found = engine.step(step, &batches(config, &engine, step)).unwrap().noise;
            found.map(|found| (found.square.to_bits(), found.trace.to_bits()))
        };
        (1..=4).map(estimate).collect::<Vec<_>>()
    };
    let (silent, config) = (config(&[]), config(&["log.noise_scale_every=2"]));
    let alone = noise(&config, &Local);
    let measured: Vec<bool> = alone.iter().map(Option::is_some).collect();
    assert_eq!(measured, [false, true, false, true]);
    for ranks in [2, 8] {
        assert!(simulated::run(ranks, |comm| noise(&config, comm)).iter().all(|found| *found == alone));
    }
    assert!(train(&config, &Local, 4).unwrap() == train(&silent, &Local, 4).unwrap());
}
