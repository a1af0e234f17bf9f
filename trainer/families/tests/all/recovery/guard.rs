//! Runs that go back to their best evaluation.

use std::cell::Cell;
use std::path::Path;

use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_engine::{Event, Outcome, train};
use segue_kernels::TrainError;
use serde_json::json;

use super::walk::{STEPS, Walk, config, end, folder, scale, state, walk};

const KEYS: [&str; 2] = ["recovery.non_finite=restore_best", "eval.every=5"];

fn keys<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&KEYS[..], more].concat()
}

/// Bytes of a file of the checkpoint of step `step`.
fn file(dir: &Path, step: u64, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(format!("checkpoints/step-{step:08}/{name}"))).unwrap()
}

/// Weights that training goes on from, the optimizer's tables and its counts.
pub fn trained(dir: &Path, step: u64) -> (Vec<u8>, Vec<u8>, String) {
    let averaged = dir.join(format!("checkpoints/step-{step:08}/training_weights.safetensors")).is_file();
    let weights = if averaged { "training_weights.safetensors" } else { "model.safetensors" };
    let weights = segue_engine::checkpoint::read_tensors(
        &dir.join(format!("checkpoints/step-{step:08}")).join(weights),
    );
    let weight =
        weights.unwrap().tensors.values().map(|t| t.double_value(&[0]).to_bits()).collect::<Vec<_>>();
    let bytes = weight.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    (bytes, file(dir, step, "optimizer.safetensors"), state(dir, step)["networks"].to_string())
}

/// Row M11.
#[test]
fn a_run_goes_on_from_its_best_evaluation_at_a_lower_rate() {
    let run = folder();
    let rates = Cell::new([0.0; STEPS as usize + 1]);
    let mut on_event = |event: Event| {
        if let Event::Step { report, .. } = event {
            let mut known = rates.get();
            known[report.step as usize] = report.lr;
            rates.set(known);
        }
    };
    for (stop_at, best, rate) in [(7, 5, 0.9), (13, 10, 0.9 * 0.9)] {
        let part = config(run.path(), &keys(&[&format!("train.stop_at={stop_at}"), "checkpoint.keep=2"]));
        walk(&part, &[7, 13], &Local, &|| false, &mut on_event).unwrap();
        // Bit for bit, and where the data stands.
        assert!(trained(run.path(), stop_at) == trained(run.path(), best), "{stop_at}");
        let state = state(run.path(), stop_at);
        assert_eq!((&state["guard"]["step"], &state["guard"]["rate"]), (&json!(best), &json!(rate)));
        assert!(state["lanes"].as_array().unwrap().iter().all(|cursor| *cursor == stop_at));
        let carry = segue_engine::checkpoint::read_tensors(
            &run.path().join(format!("checkpoints/step-{stop_at:08}/carry-00000.safetensors")),
        );
        assert!(carry.unwrap().tensors.iter().all(|(_, sum)| sum.double_value(&[0]) == 0.0));
    }
    let outcome = walk(&config(run.path(), &keys(&[])), &[7, 13], &Local, &|| false, &mut on_event).unwrap();
    assert_eq!((outcome.step, &state(run.path(), STEPS)["recoveries"]), (STEPS, &json!(2)));
    assert_eq!(state(run.path(), STEPS)["left_out"], json!([[7, 7], [13, 13]]));
    let rates = rates.get();
    for (step, expected) in [(6, 0.1), (8, 0.1 * 0.9), (12, 0.1 * 0.9), (14, 0.1 * (0.9 * 0.9))] {
        assert_eq!(rates[step], expected, "step {step}");
    }
}

/// The best reported average is the model of the run before and after the way back, though averages begin anew.
/// Rows M11, A11.
#[test]
fn the_best_average_outlives_the_way_back() {
    let run = folder();
    let part = config(
        run.path(),
        &keys(&["average.kind=two_tailed", "average.variant=core", "average.start=0", "train.stop_at=7"]),
    );
    walk(&part, &[7], &Local, &|| false, &mut |_| {}).unwrap();
    let averages = |step: u64| state(run.path(), step)["average"].clone();
    assert_eq!(averages(7)["best"]["step"], 5, "{}", state(run.path(), 7));
    assert_eq!(averages(7)["long"]["count"], 0);
    let weight = |step: u64, name: &str| {
        let path = run.path().join(format!("checkpoints/step-{step:08}/{name}.safetensors"));
        segue_engine::checkpoint::read_tensors(&path)
            .unwrap()
            .tensors
            .values()
            .next()
            .unwrap()
            .double_value(&[0])
    };
    assert_eq!(weight(7, "model"), weight(5, "model"));
    assert_ne!(weight(7, "model"), weight(7, "training_weights"));
}

/// Row M11.
#[test]
fn ranks_and_stops_change_no_byte_of_a_run_that_went_back() {
    let expected = end(folder().path(), &keys(&[]), &[7, 13], 1);
    assert!(end(folder().path(), &keys(&[]), &[], 1) != expected);
    for ranks in [2, 4] {
        assert!(end(folder().path(), &keys(&[]), &[7, 13], ranks) == expected, "{ranks} ranks");
        let divided = keys(&["train.shard=optimizer"]);
        assert!(end(folder().path(), &divided, &[7, 13], ranks) == expected, "{ranks} ranks, divided");
    }
    for at in 1..STEPS {
        let run = folder();
        let few = keys(&["checkpoint.keep=2", "checkpoint.every=3"]);
        let stop = format!("train.stop_at={at}");
        let part = config(run.path(), &[&few[..], &[&stop]].concat());
        simulated::run(2, |comm| walk(&part, &[7, 13], comm, &|| false, &mut |_| {}).unwrap());
        assert!(end(run.path(), &few, &[7, 13], 1) == expected, "stopped after {at}");
    }
}

/// Row M11.
#[test]
fn before_its_first_evaluation_a_run_goes_back_to_its_start() {
    let run = folder();
    let part = config(run.path(), &keys(&["train.stop_at=4"]));
    walk(&part, &[4], &Local, &|| false, &mut |_| {}).unwrap();
    assert!(trained(run.path(), 4) == trained(run.path(), 0));
    // A run that the policy is given later goes back to where it was given.
    let run = folder();
    walk(&config(run.path(), &["train.stop_at=3"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
    walk(&part_of(run.path(), "train.stop_at=4"), &[4], &Local, &|| false, &mut |_| {}).unwrap();
    assert!(trained(run.path(), 4) == trained(run.path(), 3));
}

fn part_of(dir: &Path, stop: &str) -> segue_configs::Config {
    config(dir, &keys(&[stop]))
}

/// Row M11.
#[test]
fn a_validation_loss_far_from_the_best_is_a_divergence() {
    // The third evaluation is 0.6 above the second, which is the best.
    let losses = [3.0, 2.0, 2.6, 2.5];
    let go = |dir: &Path, more: &[&str]| {
        let evaluations = Cell::new(0);
        let lead = |_| {
            evaluations.set(evaluations.get() + 1);
            losses[evaluations.get() - 1]
        };
        let config = config(dir, &keys(more));
        train(
            &config,
            Walk { poisoned: &[], lead: &lead, keeps_best: None },
            scale(),
            &Local,
            &|| false,
            &mut |_| {},
        )
    };
    for (more, diverges) in [
        (&["recovery.diverged_by=0.59"][..], true),
        (&["recovery.diverged_times=1.29"], true),
        (&["recovery.diverged_by=0.61", "recovery.diverged_times=1.31"], false),
    ] {
        let run = folder();
        go(run.path(), more).unwrap();
        assert_eq!(trained(run.path(), 15) == trained(run.path(), 10), diverges, "{more:?}");
        let guard = &state(run.path(), STEPS)["guard"];
        assert_eq!((&guard["best"], &guard["step"]), (&json!(2.0), &json!(10)));
        assert_eq!(guard["rate"], if diverges { 0.9 } else { 1.0 });
    }
    let run = folder();
    let error = go(run.path(), &["recovery.diverged_by=0.5", "recovery.at_most=0"]).unwrap_err();
    assert!(error.exit_code() == 80 && error.to_string().contains("2.6"), "{error}");
    // The same command comes to the same evaluation.
    let again = go(run.path(), &["recovery.diverged_by=0.5", "recovery.at_most=0"]).unwrap_err();
    assert!(error.to_string().contains("15") && again.to_string().contains("15"), "{error}, {again}");
}

/// The long average stagnates at the second evaluation, and a worse one takes its place.
/// Row M11.
#[test]
fn a_run_diverges_by_its_trained_weights_and_not_by_an_average_that_gives_way() {
    let go = |dir: &Path, trained: f64| {
        // The trained weights, then the short average where it is another than the long one.
        let losses = [3.0, 1.0, trained, 2.0, 1.0, 3.0, 2.0, 1.9, 3.0, 2.0, 1.9];
        let evaluated = Cell::new(0);
        let lead = |_| {
            evaluated.set(evaluated.get() + 1);
            losses[evaluated.get() - 1]
        };
        let kind = ["average.start=0", "average.kind=two_tailed", "average.stagnation=1", "train.stop_at=10"];
        let config = config(dir, &keys(&[&kind[..], &["recovery.diverged_by=0.5"]].concat()));
        let family = Walk { poisoned: &[], lead: &lead, keeps_best: None };
        let mut reported = Vec::new();
        train(&config, family, scale(), &Local, &|| false, &mut |event| {
            if let Event::Evaluated { measures, .. } = event {
                reported.push(measures.lead);
            }
        })
        .unwrap();
        (reported, state(dir, 10)["recoveries"].clone(), state(dir, 10)["guard"].clone())
    };
    let run = folder();
    let guard = json!({ "best": 1.0, "step": 5, "rate": 1.0, "trained": 2.9 });
    assert_eq!(go(run.path(), 2.9), (vec![1.0, 2.0], json!(0), guard));
    let run = folder();
    let guard = json!({ "best": 1.0, "step": 5, "rate": 0.9, "trained": 3.0 });
    assert_eq!(go(run.path(), 3.6), (vec![1.0, 2.0], json!(1), guard));
}

/// As on a disk that was full at that time. What stands in is kept as the best one would be.
/// Row M11.
#[test]
fn without_the_best_checkpoint_a_run_goes_on_from_the_one_before_or_as_it_is() {
    for (missing, from) in [(5..=5, 4), (0..=5, 6)] {
        let (run, intact) = (folder(), folder());
        for folder in [&run, &intact] {
            let part =
                config(folder.path(), &keys(&["train.stop_at=6", "checkpoint.every=1", "checkpoint.keep=9"]));
            walk(&part, &[], &Local, &|| false, &mut |_| {}).unwrap();
        }
        for step in missing {
            _ = std::fs::remove_dir_all(run.path().join(format!("checkpoints/step-{step:08}")));
        }
        let warned = Cell::new(false);
        let mut on_event = |event: Event| {
            if let Event::Warning { what } = event {
                warned.set(warned.get() || what.contains("step 5 is not there"));
            }
        };
        // Few are kept: steps 6 and 7, as the newest, and what stands in.
        let part = config(run.path(), &keys(&["train.stop_at=7", "checkpoint.every=1", "checkpoint.keep=2"]));
        walk(&part, &[7], &Local, &|| false, &mut on_event).unwrap();
        assert!(warned.get() && trained(run.path(), 7) == trained(intact.path(), from), "from {from}");
        assert_eq!(run.path().join("checkpoints/step-00000004").exists(), from == 4);
    }
}

/// Damage is no reason to end a run that would go on without that checkpoint.
/// Row M11.
#[test]
fn a_damaged_best_checkpoint_is_as_one_that_is_not_there_and_is_told_of() {
    for (damaged, from, ranks) in [(&[5][..], 4, 1), (&[5], 4, 2), (&[0, 1, 2, 3, 4, 5], 6, 2)] {
        let (run, intact) = (folder(), folder());
        for folder in [&run, &intact] {
            let part =
                config(folder.path(), &keys(&["train.stop_at=6", "checkpoint.every=1", "checkpoint.keep=9"]));
            walk(&part, &[], &Local, &|| false, &mut |_| {}).unwrap();
        }
        damaged.iter().for_each(|step| damage(run.path(), *step));
        let part = config(run.path(), &keys(&["train.stop_at=7", "checkpoint.every=1", "checkpoint.keep=9"]));
        let warnings =
            simulated::run(ranks, |comm| warnings(|on_event| walk(&part, &[7], comm, &|| false, on_event)));
        let said = warnings[0].join("\n");
        for word in ["step-00000005/model.safetensors is damaged", "the checkpoint of step 5 cannot be used"]
        {
            assert!(said.contains(word), "`{word}` is not in what it said:\n{said}");
        }
        assert!(trained(run.path(), 7) == trained(intact.path(), from), "from {from}");
        assert!(run.path().join("checkpoints/damaged-step-00000005").exists());
    }
}

/// So it is with the one that a run rolls back to: without any the step is left out alone.
#[test]
fn a_run_rolls_back_past_damaged_checkpoints() {
    for (damaged, left_out) in [(&[10][..], json!([[6, 13]])), (&[5, 10], json!([[13, 13]]))] {
        for ranks in [1, 2] {
            let run = folder();
            let with = |stop: &str| config(run.path(), &["recovery.non_finite=roll_back", stop]);
            walk(&with("train.stop_at=12"), &[], &Local, &|| false, &mut |_| {}).unwrap();
            damaged.iter().for_each(|step| damage(run.path(), *step));
            let rest = with("train.stop_at=0");
            let warnings = simulated::run(ranks, |comm| {
                warnings(|on_event| walk(&rest, &[13], comm, &|| false, on_event))
            });
            assert!(
                warnings[0].iter().any(|what| what.contains("step-00000010/model.safetensors is damaged"))
            );
            assert_eq!(state(run.path(), STEPS)["left_out"], left_out);
        }
    }
}

/// What a run that ends well warns of.
fn warnings(run: impl FnOnce(&mut dyn FnMut(Event)) -> Result<Outcome, TrainError>) -> Vec<String> {
    let mut warnings = Vec::new();
    let outcome = run(&mut |event| {
        if let Event::Warning { what } = event {
            warnings.push(what);
        }
    });
    outcome.unwrap();
    warnings
}

/// Overwrites a byte of the model of the checkpoint of step `step`.
pub fn damage(dir: &Path, step: u64) {
    let path = dir.join(format!("checkpoints/step-{step:08}/model.safetensors"));
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Row M11.
#[test]
fn a_best_evaluation_is_none_of_another_protocol() {
    let run = folder();
    walk(&part_of(run.path(), "train.stop_at=6"), &[], &Local, &|| false, &mut |_| {}).unwrap();
    let other = config(run.path(), &keys(&["eval.mem_len=3"]));
    let error = walk(&other, &[], &Local, &|| false, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("eval.mem_len"), "{error}");
}
