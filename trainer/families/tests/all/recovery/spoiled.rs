//! Runs whose weights come to hold what is no number, though every loss and gradient was one.

use std::fs;
use std::path::Path;

use segue_collectives::local::Local;
use segue_collectives::{Communicator, simulated};
use segue_configs::Config;
use segue_engine::checkpoint::{read_tensors, write_tensors};
use segue_engine::{Better, Event, KeepBest, Outcome, train};
use segue_kernels::TrainError;
use serde_json::json;

use super::walk::{LANES, STEPS, Scale, Walk, config, end, folder, rewrite, scale, state, tensors, walk};

/// Trains with updates of the steps `spoils` that leave a NaN.
fn go(
    config: &Config,
    spoils: &[u64],
    comm: &dyn Communicator,
    on_event: &mut dyn FnMut(Event),
) -> Result<Outcome, TrainError> {
    let family = Walk { poisoned: &[], lead: &|w| (w - 1.0).abs(), keeps_best: None };
    train(config, family, Scale(scale().0, spoils.to_vec(), scale().2), comm, &|| false, on_event)
}

/// Steps of the checkpoints of a run, and the names of what else lies there.
fn checkpoints(dir: &Path) -> (Vec<u64>, Vec<String>) {
    let mut names: Vec<String> = fs::read_dir(dir.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "latest")
        .collect();
    names.sort();
    let (whole, other): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.starts_with("step-"));
    (whole.iter().map(|name| name["step-".len()..].parse().unwrap()).collect(), other)
}

#[test]
fn a_spoiled_update_is_found_before_a_checkpoint_of_it_and_the_weights_are_blamed() {
    let expected = end(folder().path(), &[], &[], 1);
    // Where a checkpoint is due, a step and more before that, and at the last step.
    for (spoils, last, ranks) in [(10, 5, 1), (9, 5, 2), (6, 5, 1), (12, 10, 1), (STEPS, 15, 2)] {
        let run = folder();
        let config = config(run.path(), &[]);
        let errors = simulated::run(ranks, |comm| go(&config, &[spoils], comm, &mut |_| {}).unwrap_err());
        for error in errors {
            assert!(matches!(error, TrainError::Spoiled { step, .. } if step == spoils), "{error}");
            assert_eq!(error.exit_code(), 80);
            assert!(error.hint().unwrap().contains("the weights are not finite"), "{:?}", error.hint());
        }
        let (steps, others) = checkpoints(run.path());
        assert_eq!((steps.last(), others.len()), (Some(&last), 0), "{spoils}");
        // What spoiled it was no part of the run.
        assert!(end(run.path(), &[], &[], 1) == expected, "{spoils}");
    }
}

#[test]
fn a_run_goes_back_to_weights_that_are_finite_alike_at_any_number_of_ranks() {
    let by_hand = end(folder().path(), &[r#"recovery.skip_steps=["6-10", "16-18"]"#], &[], 1);
    let back = |dir: &Path, more: &[&str], ranks: usize| {
        let config = config(dir, &[&["recovery.non_finite=roll_back"], more].concat());
        simulated::run(ranks, |comm| go(&config, &[10, 17], comm, &mut |_| {}).unwrap());
        tensors(dir, STEPS)
    };
    for ranks in [1, 2, 4] {
        let run = folder();
        assert!(back(run.path(), &[], ranks) == by_hand, "{ranks} ranks");
        assert_eq!(state(run.path(), STEPS)["left_out"], json!([[6, 10], [16, 18]]));
        assert_eq!(checkpoints(run.path()).0, [5, 10, 15, 20]);
        for shard in ["train.shard=optimizer", "train.shard=gradients"] {
            assert!(back(folder().path(), &[shard], ranks) == by_hand, "{ranks} ranks, {shard}");
        }
    }
    let few = folder();
    assert!(back(few.path(), &["checkpoint.keep=2"], 1) == by_hand);
    assert_eq!(checkpoints(few.path()).0, [15, 20]);
}

#[test]
fn the_weights_of_one_rank_alone_are_looked_at_too() {
    let run = folder();
    let config = config(run.path(), &["recovery.non_finite=roll_back", "train.check_replicas_every=0"]);
    let warnings = simulated::run(4, |comm| {
        let (mut warnings, spoils) = (Vec::new(), [10]);
        let spoils = if comm.rank() == 2 { &spoils[..] } else { &[] };
        let outcome = go(&config, spoils, comm, &mut |event| {
            if let Event::Warning { what } = event {
                warnings.push(what);
            }
        });
        assert_eq!(outcome.unwrap().step, STEPS);
        warnings
    });
    for warnings in warnings {
        assert!(warnings.len() == 1 && warnings[0].contains("`w` of rank 2"), "{warnings:?}");
    }
}

#[test]
fn where_there_is_nothing_to_go_back_to_a_run_ends() {
    for (policy, spoils) in [("skip", 7), ("skip", STEPS), ("roll_back", 3)] {
        let run = folder();
        let keys = [&format!("recovery.non_finite={policy}"), "recovery.at_most=100"];
        let error = go(&config(run.path(), &keys), &[spoils], &Local, &mut |_| {}).unwrap_err();
        assert!(matches!(error, TrainError::Spoiled { .. }), "{policy}: {error}");
        let steps: Vec<u64> = [5, 10, 15].into_iter().filter(|step| *step < spoils).collect();
        assert!(!run.path().join("checkpoints").exists() || checkpoints(run.path()).0 == steps, "{policy}");
    }
}

#[test]
fn a_run_goes_back_to_its_best_evaluation_where_its_weights_are_spoiled() {
    let run = folder();
    let config =
        config(run.path(), &["recovery.non_finite=restore_best", "eval.every=5", "recovery.at_most=1"]);
    let outcome = go(&config, &[12], &Local, &mut |_| {}).unwrap();
    assert_eq!((outcome.step, state(run.path(), STEPS)["recoveries"].as_u64()), (STEPS, Some(1)));
    let error = go(
        &self::config(folder().path(), &["recovery.non_finite=restore_best", "recovery.at_most=1"]),
        &[3, 9],
        &Local,
        &mut |_| {},
    );
    assert!(matches!(error, Err(TrainError::Spoiled { .. })), "{error:?}");
}

/// Puts a NaN into a file of the checkpoint of step `step`, as a version has done that did not look for one.
fn poison(dir: &Path, step: u64, file: &str) {
    rewrite(dir, step, |folder| {
        let path = folder.join(file);
        let tensors: Vec<_> = read_tensors(&path).unwrap().tensors.into_iter().collect();
        let _ = tensors[0].1.view([-1]).get(0).fill_(f64::NAN);
        write_tensors(&path, &tensors).unwrap();
    });
}

#[test]
fn a_run_goes_on_from_the_newest_checkpoint_without_a_nan_and_sets_others_aside() {
    let whole = folder();
    let expected = end(whole.path(), &[], &[], 1);
    let carry = format!("carry-{:05}.safetensors", LANES - 1);
    let files = ["model.safetensors", "training_weights.safetensors", "optimizer.safetensors", &carry];
    for (file, ranks) in files.into_iter().zip([4, 1, 4, 4]) {
        let run = folder();
        end(run.path(), &[], &[], 1);
        [15, 20].into_iter().for_each(|step| poison(run.path(), step, file));
        let config = config(run.path(), &[]);
        let refused = simulated::run(ranks, |comm| {
            let mut refused = Vec::new();
            walk(&config, &[], comm, &|| false, &mut |event| {
                if let Event::Started(started) = event {
                    refused = started.refused;
                    assert_eq!(started.step, 10);
                }
            })
            .unwrap();
            refused
        });
        assert_eq!(refused[0].len(), 2, "{refused:?}");
        assert!(refused[0].iter().all(|why| why.contains("not finite") && why.contains(file)), "{refused:?}");
        let (steps, others) = checkpoints(run.path());
        assert_eq!(
            (steps, others),
            (vec![5, 10, 15, 20], vec!["damaged-step-00000015".into(), "damaged-step-00000020".into()])
        );
        assert!(tensors(run.path(), STEPS) == expected, "{file}");
    }
}

#[test]
fn a_run_that_goes_back_passes_over_a_checkpoint_with_a_nan() {
    let run = folder();
    walk(&config(run.path(), &["train.stop_at=11"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
    poison(run.path(), 10, "optimizer.safetensors");
    let keys = ["recovery.non_finite=roll_back"];
    walk(&config(run.path(), &keys), &[13], &Local, &|| false, &mut |_| {}).unwrap();
    assert_eq!(state(run.path(), STEPS)["left_out"], json!([[6, 13]]));
    // The good one stays, however few there are to be.
    let few = folder();
    walk(&config(few.path(), &["train.stop_at=15"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
    [10, 15].into_iter().for_each(|step| poison(few.path(), step, "model.safetensors"));
    let stopped = config(few.path(), &["checkpoint.keep=2", "train.stop_at=5"]);
    walk(&stopped, &[], &Local, &|| false, &mut |_| {}).unwrap();
    assert_eq!(checkpoints(few.path()).0, [5]);
}

/// An accuracy is a number whatever the weights are.
#[test]
fn the_best_model_is_not_one_that_holds_a_nan() {
    let run = folder();
    let config = config(run.path(), &["eval.every=4"]);
    let family =
        Walk { poisoned: &[], lead: &|_| 0.5, keeps_best: Some(KeepBest { patience: 0, min_delta: 0.0 }) };
    let spoiled = Scale(scale().0, vec![4], scale().2);
    let error = train(&config, family, spoiled, &Local, &|| false, &mut |_| {}).unwrap_err();
    assert!(matches!(error, TrainError::Spoiled { step: 4, .. }), "{error}");
    assert!(!run.path().join("best").exists());
}

#[test]
fn a_run_whose_last_evaluation_is_no_number_is_not_done_however_often_it_is_started() {
    for keys in [&[][..], &["eval.every=4"], &["eval.every=4", "train.stop_at=16"]] {
        let run = folder();
        let config = config(run.path(), keys);
        for _ in 0..2 {
            let family = Walk { poisoned: &[], lead: &|_| f64::INFINITY, keeps_best: None };
            let error = train(&config, family, scale(), &Local, &|| false, &mut |_| {}).unwrap_err();
            assert!(matches!(error, TrainError::Unmeasured { .. }) && error.exit_code() == 80, "{error}");
        }
        // The weights are numbers, and go on where others evaluate them.
        walk(&self::config(run.path(), &["eval.every=4"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
    }
}

#[test]
fn a_model_with_a_nan_begins_no_run() {
    let first = folder();
    end(first.path(), &[], &[], 1);
    poison(first.path(), STEPS, "model.safetensors");
    let from = format!("train.init_from={}/checkpoints/step-{STEPS:08}", first.path().display());
    let error = walk(&config(folder().path(), &[&from]), &[], &Local, &|| false, &mut |_| {}).unwrap_err();
    assert!(error.exit_code() == 65 && error.to_string().contains("`w` holds a value"), "{error}");
}

#[test]
fn a_measure_of_answers_counts_as_one_where_the_loss_is_a_number() {
    let measures = |lead, tie| segue_engine::Measures {
        lead,
        better: Better::Higher,
        decide: None,
        tie,
        row: json!({}),
        scalars: Vec::new(),
        lines: Vec::new(),
    };
    for (lead, tie, finite) in [
        (0.5, None, true),
        (f64::NAN, None, false),
        (f64::INFINITY, None, false),
        // A correlation of answers that are all alike.
        (f64::NAN, Some(0.7), true),
        // The answers of NaNs.
        (0.5, Some(f64::NAN), false),
    ] {
        assert_eq!(measures(lead, tie).is_finite(), finite, "{lead}, {tie:?}");
    }
}
