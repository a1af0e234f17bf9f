//! Runs that meet what ends runs: numbers that are not finite, a full disk, a signal in an evaluation, other keys.

mod guard;
mod kept;
mod longer;
mod overflow;
mod patience;
mod spoiled;
mod stages;
mod walk;

use std::cell::{Cell, RefCell};
use std::path::Path;

use segue_collectives::Communicator;
use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_configs::Config;
use segue_engine::Event;
use segue_kernels::TrainError;
use serde_json::{Value, json};
use walk::{STEPS, config, end, folder, rewrite, state, tensors, walk};

#[test]
fn a_run_that_stops_leaves_its_last_good_state_and_goes_on_without_the_step() {
    let (without, stopped) = (folder(), folder());
    let expected = end(without.path(), &[r#"recovery.skip_steps=["7"]"#], &[7], 1);
    for ranks in [1, 2] {
        let config = config(stopped.path(), &[]);
        let codes = simulated::run(ranks, |comm| {
            walk(&config, &[7], comm, &|| false, &mut |_| {}).unwrap_err().exit_code()
        });
        assert!(codes.iter().all(|code| *code == 80), "{codes:?}");
        assert!(stopped.path().join("checkpoints/step-00000006").is_dir());
    }
    assert!(end(stopped.path(), &[r#"recovery.skip_steps=["7"]"#], &[7], 2) == expected);
    assert_eq!(state(stopped.path(), STEPS)["left_out"], json!([[7, 7]]));
    // The step made a difference.
    let all = folder();
    assert!(end(all.path(), &[], &[], 1) != expected);
}

#[test]
fn steps_are_left_out_or_taken_back_alike_at_any_number_of_ranks() {
    let policies = [
        ("recovery.non_finite=skip", r#"recovery.skip_steps=["7", "13"]"#, json!([[7, 7], [13, 13]])),
        (
            "recovery.non_finite=roll_back",
            r#"recovery.skip_steps=["6-7", "11-13"]"#,
            json!([[6, 7], [11, 13]]),
        ),
    ];
    for (policy, by_hand, left_out) in policies {
        let by_hand = end(folder().path(), &[by_hand], &[], 1);
        for ranks in [1, 2, 4] {
            let run = folder();
            assert!(end(run.path(), &[policy], &[7, 13], ranks) == by_hand, "{policy}, {ranks} ranks");
            let state = state(run.path(), STEPS);
            assert_eq!((&state["left_out"], &state["recoveries"]), (&left_out, &json!(2)), "{policy}");
        }
        // The one number of this model is one rank's, and the others update nothing.
        for shard in ["train.shard=optimizer", "train.shard=gradients"] {
            assert!(end(folder().path(), &[policy, shard], &[7, 13], 4) == by_hand, "{policy}, {shard}");
        }
    }
}

#[test]
fn a_run_stopped_after_a_way_back_ends_as_one_that_was_not() {
    let undisturbed = end(folder().path(), &["recovery.non_finite=roll_back"], &[7], 1);
    // Before the first checkpoint that is due, on the way back, and thrice, with as few checkpoints as there may be.
    let stops = (1..STEPS).map(|at| vec![at]).chain((1..STEPS - 2).map(|at| vec![at, at + 1, at + 2]));
    for stops in stops {
        let run = folder();
        let keys = ["recovery.non_finite=roll_back", "checkpoint.keep=2"];
        for at in &stops {
            let part = config(run.path(), &[&keys[..], &[&format!("train.stop_at={at}")]].concat());
            walk(&part, &[7], &Local, &|| false, &mut |_| {}).unwrap();
        }
        assert!(end(run.path(), &keys, &[7], 2) == undisturbed, "{stops:?}");
    }
    // Where nothing is due before the step, it alone is left out, however often the run was stopped.
    let keys = ["recovery.non_finite=roll_back", "checkpoint.every=10"];
    let alone = end(folder().path(), &keys, &[7], 1);
    let run = folder();
    let part = config(run.path(), &[&keys[..], &["train.stop_at=5"]].concat());
    walk(&part, &[7], &Local, &|| false, &mut |_| {}).unwrap();
    assert!(end(run.path(), &keys, &[7], 1) == alone);
}

#[test]
fn a_first_step_that_fails_leaves_nothing_to_go_on_from() {
    let run = folder();
    let error = walk(&config(run.path(), &[]), &[1], &Local, &|| false, &mut |_| {}).unwrap_err();
    assert_eq!(error.exit_code(), 80);
    // With other keys it begins anew.
    walk(&config(run.path(), &["optim.lr=0.05"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
}

#[test]
fn a_run_whose_keys_were_changed_goes_back_all_the_same() {
    let run = folder();
    walk(&config(run.path(), &["train.stop_at=11"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
    let allowed = ["optim.lr=0.05", r#"recovery.allow_change=["optim.lr"]"#, "train.stop_at=12"];
    walk(&config(run.path(), &allowed), &[], &Local, &|| false, &mut |_| {}).unwrap();
    let back = ["optim.lr=0.05", "recovery.non_finite=roll_back"];
    walk(&config(run.path(), &back), &[14], &Local, &|| false, &mut |_| {}).unwrap();
    let state = state(run.path(), STEPS);
    assert_eq!(state["left_out"], json!([[11, 14]]));
    assert_eq!(state["changed"], json!(["after step 11: optim.lr: 0.1 then, 0.05 now"]));
    assert!(run.path().join("checkpoints/abandoned-step-00000012").is_dir());
}

#[test]
fn a_run_recovers_so_often_and_no_more() {
    let run = folder();
    let config = config(run.path(), &["recovery.non_finite=skip", "recovery.at_most=2"]);
    let mut skipped = Vec::new();
    let error = walk(&config, &[4, 8, 9, 10], &Local, &|| false, &mut |event| {
        if let Event::Skipped { step } = event {
            skipped.push(step);
        }
    });
    assert_eq!((error.unwrap_err().exit_code(), skipped), (80, vec![4, 8]));
    // What it has done is not forgotten where the run is started again.
    assert_eq!(state(run.path(), 8)["recoveries"], 2);
}

#[test]
fn a_signal_in_an_evaluation_is_answered_in_it_and_nothing_is_lost() {
    let keys = ["eval.every=4"];
    let undisturbed = end(folder().path(), &keys, &[], 1);
    for (ranks, stopped_in) in [(1, 8), (2, 8), (4, STEPS)] {
        let run = folder();
        let config = config(run.path(), &keys);
        let outcomes = simulated::run(ranks, |comm| {
            let (step, units) = (Cell::new(0), Cell::new(0));
            // Rank 0 alone gets the signal, in the middle of its share.
            let stop = || comm.rank() == 0 && step.get() == stopped_in && units.get() >= 6;
            let mut on_event = |event: Event| match event {
                Event::Step { report, .. } => {
                    step.set(report.step);
                    units.set(0);
                }
                Event::Evaluating { done, .. } => units.set(done),
                _ => {}
            };
            let outcome = walk(&config, &[], comm, &stop, &mut on_event).unwrap();
            (outcome.preempted, outcome.step, units.get())
        });
        assert!(
            outcomes.iter().all(|(preempted, step, units)| *preempted && *step == stopped_in && *units <= 8)
        );
        assert!(state(run.path(), stopped_in)["evaluated"] != stopped_in);
        // The evaluation is made up for.
        let evaluated = RefCell::new(Vec::new());
        walk(&config, &[], &Local, &|| false, &mut |event| {
            if let Event::Evaluated { step, .. } = event {
                evaluated.borrow_mut().push(step);
            }
        })
        .unwrap();
        let expected: Vec<u64> = (stopped_in..=STEPS).step_by(4).collect();
        assert_eq!(evaluated.into_inner(), expected);
        assert!(end(run.path(), &keys, &[], 1) == undisturbed);
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_ends_no_run() {
    let run = folder();
    let config = config(run.path(), &[]);
    let checkpoints = run.path().join("checkpoints");
    let mut warnings = Vec::new();
    let outcome = walk(&config, &[], &Local, &|| false, &mut |event| match event {
        // A file where the folder should be, until the first checkpoint fails on it.
        Event::Step { report, .. } if report.step == 1 => std::fs::write(&checkpoints, "").unwrap(),
        Event::Warning { what } => {
            std::fs::remove_file(&checkpoints).unwrap();
            warnings.push(what);
        }
        _ => {}
    });
    assert_eq!(outcome.unwrap().step, STEPS);
    assert!(warnings.len() == 1 && warnings[0].contains("training goes on"), "{warnings:?}");
    assert!(checkpoints.join(format!("step-{STEPS:08}")).is_dir());
    // Of the last one there is no other try: the run fails, and loses nothing but that.
    let run = folder();
    let config = config_of_last(run.path());
    let checkpoints = run.path().join("checkpoints");
    let error = walk(&config, &[], &Local, &|| false, &mut |event| {
        if let Event::Step { report, .. } = event
            && report.step == 1
        {
            std::fs::write(&checkpoints, "").unwrap();
        }
    });
    assert!(matches!(error, Err(TrainError::Write { .. })), "{error:?}");
}

fn config_of_last(dir: &Path) -> Config {
    config(dir, &["checkpoint.every=0"])
}

#[test]
fn keys_may_change_where_the_run_says_so_and_it_is_written_down() {
    let run = folder();
    walk(&config(run.path(), &["train.stop_at=6"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
    let other = config(run.path(), &["optim.lr=0.05"]);
    let refused = walk(&other, &[], &Local, &|| false, &mut |_| {}).unwrap_err();
    assert!(
        refused.exit_code() == 78 && refused.hint().unwrap().contains("recovery.allow_change"),
        "{refused}"
    );
    let mut told = Vec::new();
    let allowed = config(run.path(), &["optim.lr=0.05", r#"recovery.allow_change=["optim.lr"]"#]);
    walk(&allowed, &[], &Local, &|| false, &mut |event| {
        if let Event::Started(started) = event {
            told = started.changed;
        }
    })
    .unwrap();
    assert_eq!(told, ["optim.lr: 0.1 then, 0.05 now"]);
    assert_eq!(state(run.path(), STEPS)["changed"], json!(["after step 6: optim.lr: 0.1 then, 0.05 now"]));
    // From there on it is the configuration of the run.
    walk(&config(run.path(), &["optim.lr=0.05"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
}

/// Versions before took `schedule.steps` beside a schedule that has none. The same command is refused, and the key is no part of the run.
#[test]
fn a_run_goes_on_without_a_key_that_has_no_effect_and_says_so() {
    let (run, undisturbed) = (folder(), folder());
    let keys = ["schedule.kind=inverse_sqrt", "schedule.warmup=2"];
    let expected = end(undisturbed.path(), &keys, &[], 1);
    let stopped = config(run.path(), &[&keys[..], &["train.stop_at=10"]].concat());
    walk(&stopped, &[], &Local, &|| false, &mut |_| {}).unwrap();
    rewrite(run.path(), 10, |folder| {
        let file = folder.join("trainer_state.json");
        let mut state: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        state["config"]["schedule"]["steps"] = json!(1000);
        std::fs::write(&file, state.to_string()).unwrap();
    });
    let mut warnings = Vec::new();
    walk(&config(run.path(), &keys), &[], &Local, &|| false, &mut |event| {
        if let Event::Warning { what } = event {
            warnings.push(what);
        }
    })
    .unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("`schedule.steps` = 1000"), "{warnings:?}");
    assert!(tensors(run.path(), STEPS) == expected);
    // Its next checkpoints do not hold it.
    assert_eq!(state(run.path(), STEPS)["config"]["schedule"]["steps"], 0);
}

/// What the average was of is left behind: one of another kind begins with the trained weights of that step.
#[test]
fn an_average_may_become_one_of_another_kind() {
    let kinds: [&[&str]; 5] = [
        &["average.start=0"],
        &["average.start=3"],
        &["average.start=0", "average.kind=exponential", "average.beta=0.5"],
        &["average.start=0", "average.kind=polyak"],
        &["average.start=0", "average.kind=two_tailed"],
    ];
    let with =
        |dir: &Path, kind: &[&str], more: &[&str]| config(dir, &[kind, &["eval.every=5"], more].concat());
    let numbers = |dir: &Path, step: u64, file: &str| {
        let path = dir.join(format!("checkpoints/step-{step:08}/{file}.safetensors"));
        let tensors = segue_engine::checkpoint::read_tensors(&path).ok()?.tensors;
        Some(tensors["w"].double_value(&[0]))
    };
    let trained = |dir: &Path, step: u64| {
        numbers(dir, step, "training_weights").or_else(|| numbers(dir, step, "model")).unwrap()
    };
    let whole = folder();
    walk(&with(whole.path(), kinds[1], &["checkpoint.every=1"]), &[], &Local, &|| false, &mut |_| {})
        .unwrap();
    for (before, then) in kinds.iter().enumerate() {
        for (after, now) in kinds.iter().enumerate() {
            let run = folder();
            walk(&with(run.path(), then, &["train.stop_at=11"]), &[], &Local, &|| false, &mut |_| {})
                .unwrap();
            let allowed = r#"recovery.allow_change=["average"]"#;
            walk(&with(run.path(), now, &[allowed]), &[], &Local, &|| false, &mut |_| {})
                .unwrap_or_else(|error| panic!("{then:?}, {now:?}: {error}"));
            // Training does not see averages.
            assert_eq!(trained(run.path(), STEPS), trained(whole.path(), STEPS), "{then:?}, {now:?}");
            if after == 3 && before != after {
                assert_eq!(state(run.path(), STEPS)["average"]["count"], STEPS - 11 + 1, "{then:?}");
                let steps = (11..=STEPS).map(|step| trained(whole.path(), step));
                let mean = steps.sum::<f64>() / (STEPS - 11 + 1) as f64;
                let found = numbers(run.path(), STEPS, "model").unwrap();
                assert!((found - mean).abs() < 1e-6, "{then:?}: {found}, {mean}");
            }
        }
    }
}
