//! T18, T19 and T27: variational dropout and averaged weights, the schedule and clipping, and going on with memory.

use segue_collectives::local::Local;
use segue_configs::Config;
use segue_engine::Engine;
use segue_engine::optim::{Schedule, clip_factor};
use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_language as objective;
use segue_language::{Batch, Objective};
use segue_tests::{Workplace, alone, mpirun, succeed};
use segue_transfo_xl::{TransfoXl, TransfoXlConfig};
use tch::{Kind, Tensor};

use crate::tiny::{difference, tiny, tokens};

/// Which of the final states `[4, 9, 8]` dropout has made zero.
fn zeros(variational: bool, seed: u64) -> Tensor {
    let config = TransfoXlConfig { variational, dropout: 0.5, ..tiny() };
    let parameters = Parameters::initialise(TransfoXl::specs(&config), 5, Kind::Float);
    let model = TransfoXl::new(&config, &parameters);
    let ids = tokens(36).view([4, 9]);
    let noise = Noise::new(seed);
    tch::no_grad(|| model.forward(&ids, &model.memory_start(4), Some(&noise))).hidden.eq(0.0)
}

/// Row T18.
#[test]
fn variational_dropout_has_one_mask_for_all_positions_of_a_segment() {
    let same_everywhere = |zeros: &Tensor| zeros == &zeros.narrow(1, 0, 1).expand([4, 9, 8], false);
    let locked = zeros(true, 7);
    assert!(same_everywhere(&locked));
    // Every lane and every step has its own.
    assert_ne!(locked.get(0), locked.get(1));
    assert_ne!(locked, zeros(true, 8));
    assert!(!same_everywhere(&zeros(false, 7)));
}

fn config(overrides: &[&str]) -> Config {
    let base = [
        "model.vocab_size=50",
        "model.d_model=16",
        "model.n_head=2",
        "model.d_inner=24",
        "model.n_layer=2",
        "model.mem_len=5",
        "train.lanes=4",
        "train.micro_batch=4",
        "train.segment=5",
        "optim.lr=0.01",
        "schedule.kind=constant",
    ];
    let all: Vec<String> = base.iter().chain(overrides).map(|s| s.to_string()).collect();
    segue_families::MODELS.load(None, &all).unwrap().config
}

fn batch(step: u64) -> Batch {
    let ids = |shift: u64| {
        let values: Vec<i64> = (0..20).map(|i| ((i + shift) * (7 + step)) as i64 % 50).collect();
        Tensor::from_slice(&values).view([4, 5])
    };
    Batch::new(ids(0), ids(1))
}

/// Row T18.
#[test]
fn averaged_weights_are_the_running_mean() {
    let config = config(&["average.start=1"]);
    let mut engine =
        Engine::new(&config, objective::build(&config, segue_kernels::Compute::CPU).unwrap(), &Local)
            .unwrap();
    let weights = |engine: &Engine<Box<dyn Objective>>| -> Vec<Tensor> {
        engine.learner.parameters().tensors().iter().map(|t| t.detach().to_kind(Kind::Double)).collect()
    };
    engine.step(1, &vec![batch(1)]).unwrap();
    let mut seen = Vec::new();
    for step in 2..=6 {
        engine.step(step, &vec![batch(step)]).unwrap();
        seen.push(weights(&engine));
    }
    let last = weights(&engine);
    let mut mean: Vec<Tensor> = Vec::new();
    let found = engine.evaluate(6, true, |objective| {
        let tensors = objective.parameters().tensors();
        mean = tensors.iter().map(|t| t.detach().to_kind(Kind::Double)).collect();
        Ok(None)
    });
    assert!(found.unwrap().is_none());
    for (i, mean) in mean.iter().enumerate() {
        let by_hand =
            seen.iter().map(|weights| weights[i].shallow_clone()).reduce(|a, b| a + b).unwrap() / 5.0;
        assert!(difference(mean, &by_hand) < 1e-6);
    }
    // What was lent is given back.
    for (now, before) in weights(&engine).iter().zip(&last) {
        assert_eq!(now, before);
    }
}

/// Row T18.
#[test]
fn averaging_lowers_the_validation_perplexity_of_a_restless_run() {
    let place = Workplace::new();
    let restless = ["optim.lr=0.02", "schedule.kind=constant", "train.steps=120", "checkpoint.every=50"];
    let loss = |run: &str, more: &[&str]| {
        let result = succeed(alone(&place.pretrain(run, &[&restless[..], more].concat())));
        result["evaluation"]["loss"].as_f64().unwrap()
    };
    let (last, mean) = (loss("last", &[]), loss("mean", &["average.start=60"]));
    assert!(mean < last, "{mean} averaged, {last} last");
}

/// The mean and its trigger belong to the state of a run.
/// Row T18.
#[test]
fn averaging_goes_on_where_it_stopped() {
    let place = Workplace::new();
    for options in [&["average.start=20"][..], &["average.patience=1", "eval.every=5", "optim.lr=0.3"]] {
        let name = |part: &str| format!("{part}-{}", options.len());
        let with = |more: &[&'static str]| [options, more].concat();
        succeed(alone(&place.pretrain(&name("whole"), &with(&[]))));
        succeed(mpirun(2, &place.pretrain(&name("parts"), &with(&["train.stop_at=15"]))));
        succeed(alone(&place.pretrain(&name("parts"), &with(&["train.stop_at=33"]))));
        succeed(mpirun(4, &place.pretrain(&name("parts"), &with(&[]))));
        place.assert_same(&name("whole"), &name("parts"));
        let weights = |run: &str| {
            std::fs::read(place.path(run).join("checkpoints/latest/training_weights.safetensors"))
        };
        assert_eq!(weights(&name("whole")).unwrap(), weights(&name("parts")).unwrap());
    }
}

/// Rates at chosen steps, from the formulas of both reference programs: lr 2.5e-4, 1,000 steps of warm-up, 10,000 in all.
/// Row T19.
#[test]
fn the_learning_rate_is_that_of_both_references() {
    let schedule = |more: &[&str]| {
        let config = config(
            &[
                &["optim.lr=2.5e-4", "schedule.kind=cosine", "schedule.warmup=1000", "train.steps=10000"],
                more,
            ]
            .concat(),
        );
        Schedule::new(&config.schedule, config.peak_lr(), config.schedule_steps(), None)
    };
    let half_cosine = |share: f64| 0.5 * (1.0 + (std::f64::consts::PI * share).cos());
    let torch = schedule(&["schedule.decay_from=start"]);
    let tensorflow = schedule(&["schedule.decay_from=warmup", "schedule.floor=0.004"]);
    for step in [1, 250, 999] {
        let expected = 2.5e-4 * step as f64 / 1000.0;
        for schedule in [&torch, &tensorflow] {
            assert!((schedule.rate(step) - expected).abs() < 1e-12, "step {step}");
        }
    }
    for step in [1001, 2500, 5500, 9999, 10_000] {
        let expected = 2.5e-4 * half_cosine(step as f64 / 10_000.0);
        assert!((torch.rate(step) - expected).abs() < 1e-12, "torch, step {step}");
        let share = (step as f64 - 1000.0) / 9000.0;
        let expected = 2.5e-4 * (0.996 * half_cosine(share) + 0.004);
        assert!((tensorflow.rate(step) - expected).abs() < 1e-12, "tensorflow, step {step}");
    }
}

/// Row T19.
#[test]
fn the_clipped_norm_is_at_most_a_quarter() {
    for norm in [1e-9, 0.1, 0.25, 0.2500001, 3.0, 1e9] {
        let clipped = norm * clip_factor(norm, 0.25);
        assert!(clipped <= 0.25 * (1.0 + 1e-6), "{norm} becomes {clipped}");
        // The references add 1e-6 to the norm that they divide by.
        assert!(norm > 0.25 || (clipped - norm).abs() < 1e-5 * norm);
    }
}

/// Row T27.
#[test]
fn a_run_that_goes_on_has_the_losses_of_one_that_never_stopped() {
    let place = Workplace::new();
    let losses = |run: &str| -> Vec<(u64, u64)> {
        let text = std::fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        rows.filter(|row| row["kind"] == "train")
            .map(|row| (row["step"].as_u64().unwrap(), row["loss"].as_f64().unwrap().to_bits()))
            .collect()
    };
    succeed(alone(&place.pretrain("whole", &["log.every=1"])));
    succeed(alone(&place.pretrain("parts", &["log.every=1", "train.stop_at=17"])));
    succeed(alone(&place.pretrain("parts", &["log.every=1"])));
    assert_eq!(losses("whole").len(), 50);
    assert_eq!(losses("whole"), losses("parts"));
    place.assert_same("whole", "parts");
}
