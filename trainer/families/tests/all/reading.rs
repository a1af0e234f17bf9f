//! What steps make of how lanes read: lengths, padding, forgotten states.

use segue_collectives::local::Local;
use segue_configs::Config;
use segue_engine::Engine;
use segue_kernels::{Carry, Compute, libtorch};
use segue_language::Batch;
use segue_layers::Memory;
use tch::{Device, Kind, Tensor};

fn config(overrides: &[&str]) -> Config {
    let base = [
        "model.model_type=lstm",
        "model.vocab_size=11",
        "model.d_model=8",
        "train.lanes=2",
        "train.micro_batch=2",
        "train.segment=8",
        "optim.kind=sgd",
        "schedule.kind=constant",
    ];
    let all: Vec<String> = base.iter().chain(overrides).map(|s| s.to_string()).collect();
    segue_families::MODELS.load(None, &all).unwrap().config
}

/// Two lanes of `segment` tokens.
fn batch(segment: i64) -> Batch {
    let ids = |step: i64| {
        let values = Tensor::arange(2 * segment, (Kind::Int64, Device::Cpu)) * step + 3;
        values.remainder(11).view([2, segment])
    };
    Batch::new(ids(7), ids(4))
}

fn weights(engine: &Engine<Box<dyn segue_language::Objective>>) -> Vec<f32> {
    let tensors = engine.learner.parameters().tensors().iter();
    tensors.flat_map(|t| Vec::<f32>::try_from(t.detach().reshape([-1])).unwrap()).collect()
}

fn engine(config: &Config) -> Engine<'_, Box<dyn segue_language::Objective>> {
    libtorch::set_threads(1);
    Engine::new(config, segue_language::build(config, Compute::CPU).unwrap(), &Local).unwrap()
}

/// Merity et al. 2018, §5: a step of half as many tokens has half the rate.
/// Row S12.
#[test]
fn a_rate_is_multiplied_in_the_very_step() {
    let (whole, half) = (config(&["optim.lr=0.5"]), config(&["optim.lr=0.25"]));
    let (mut scaled, mut plain) = (engine(&whole), engine(&half));
    for (step, rate) in [(1, 0.5), (2, 0.5)] {
        let report = scaled.step_at_rate(step, rate, &vec![batch(4)]).unwrap();
        plain.step(step, &vec![batch(4)]).unwrap();
        assert_eq!(report.lr, 0.25);
    }
    assert_eq!(weights(&scaled), weights(&plain));
    // No step later.
    assert_eq!(scaled.step(3, &vec![batch(8)]).unwrap().lr, 0.5);
}

/// Padding changes neither loss nor gradient, whatever stands there.
#[test]
fn what_fills_a_segment_has_no_loss() {
    let config = config(&["data.order=episodes", "optim.lr=1", "optim.clip=0"]);
    let update = |filler: i64| {
        let mut batch = batch(8);
        for ids in [&mut batch.inputs, &mut batch.targets] {
            _ = ids.narrow(0, 1, 1).narrow(1, 5, 3).fill_(filler);
        }
        batch.counts = Some(vec![8, 5]);
        let mut engine = engine(&config);
        let report = engine.step(1, &vec![batch]).unwrap();
        (report.loss, report.targets, weights(&engine))
    };
    let (loss, targets, after) = update(0);
    assert_eq!(targets, 13.0);
    assert_eq!(update(9), (loss, targets, after.clone()));
    // Lane by lane without padding: the mean over targets is the same.
    let objective = segue_language::build(&config, Compute::CPU).unwrap();
    let of_lane = |lane: i64, count: i64| {
        let own = |ids: &Tensor| ids.narrow(0, lane, 1).narrow(1, 0, count);
        let batch = batch(8);
        let alone = Batch::new(own(&batch.inputs), own(&batch.targets));
        objective.loss(&alone, &objective.memory_start(1), None).sum.double_value(&[])
    };
    let expected = (of_lane(0, 8) + of_lane(1, 5)) / 13.0;
    assert!((loss - expected).abs() < 1e-6, "{loss} instead of {expected}");
}

/// Tables of two lanes with three samples each: entries are of samples, lane by lane.
/// Row M8.
#[test]
fn samples_forget_by_themselves() {
    let layer = || Tensor::arange(24, (Kind::Float, Device::Cpu)).view([2, 3, 4]) + 1.0;
    let start = || Memory::zeros(2, 2, 3, 4, (Kind::Float, Device::Cpu)).marked(-1);
    let mut memory = Memory { layers: vec![layer(), layer()], ..start().marked(5) };
    let dropped = [false, true, false, false, false, true];
    memory.forget(&dropped, start());
    for layer in &memory.layers {
        for (sample, dropped) in (0..6).zip(dropped) {
            let own = |x: &Tensor| Vec::<f32>::try_from(x.reshape([6, 4]).get(sample)).unwrap();
            let before = own(&(Tensor::arange(24, (Kind::Float, Device::Cpu)) + 1.0));
            assert_eq!(own(layer), if dropped { vec![0.0; 4] } else { before });
        }
    }
    // Whole lanes, as before.
    memory.forget(&[true, false], start());
    let sums: Vec<f64> =
        (0..2).map(|lane| memory.layers[0].get(lane).sum(Kind::Double).double_value(&[])).collect();
    assert!(sums[0] == 0.0 && sums[1] > 0.0);
}
