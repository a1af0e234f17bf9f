//! Runs that are made longer.

use std::cell::Cell;
use std::path::Path;

use segue_collectives::local::Local;
use segue_engine::checkpoint::read_tensors;
use segue_engine::{Event, KeepBest, Outcome, train};
use serde_json::json;

use super::walk::{STEPS, Walk, config, folder, scale, state};

/// Goes on to step `steps`, or to `stop_at` if that is not 0.
fn go(dir: &Path, variant: &str, steps: u64, stop_at: u64, lead: &dyn Fn(f64) -> f64) {
    let keys = ["average.kind=two_tailed", "average.start=0", "eval.every=5", variant];
    let mut config = config(dir, &keys);
    (config.train.steps, config.train.stop_at) = (steps, stop_at);
    train(&config, Walk { poisoned: &[], lead, keeps_best: None }, scale(), &Local, &|| false, &mut |_| {})
        .unwrap();
}

fn path(dir: &Path, step: u64, file: &str) -> std::path::PathBuf {
    dir.join(format!("checkpoints/step-{step:08}/{file}"))
}

/// The tensor files of the checkpoint of step `step`, by name.
fn files(dir: &Path, step: u64) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(path(dir, step, "")).unwrap().map(|entry| entry.unwrap());
    let files = entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()));
    let mut tensors: Vec<_> = files.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    tensors.sort();
    tensors
}

/// The last step of the shorter run is between two evaluations of the longer one, and is found better than anything before and after.
/// Row A5.
#[test]
fn a_two_tailed_run_made_longer_has_the_bytes_of_one_that_was_long() {
    let usual = |w: f64| (w - 1.0).abs();
    for (variant, best) in [("average.variant=extended", "trained"), ("average.variant=core", "short")] {
        let (long, grown) = (folder(), folder());
        go(long.path(), variant, STEPS, 0, &usual);
        let (dir, end) = (grown.path(), 13);
        go(dir, variant, end, end - 1, &usual);
        go(dir, variant, end, 0, &|_| -1.0);
        // What was found there is the model of the shorter run.
        let average = state(dir, end)["average"].clone();
        assert_eq!(
            average["passing"]["best"],
            json!({ "loss": -1.0, "step": end, "length": if best == "short" { 3 } else { 1 }, "since": 0 })
        );
        assert_eq!(average["passing"]["weights"], best);
        let number = |file: &str, name: &str| {
            read_tensors(&path(dir, end, file)).unwrap().tensors[name].double_value(&[0])
        };
        match best {
            "trained" => assert!(!path(dir, end, "training_weights.safetensors").exists()),
            _ => assert_eq!(number("model.safetensors", "w"), number("averages.safetensors", "short.w")),
        }
        assert_ne!(number("model.safetensors", "w"), number("averages.safetensors", "best.w"));
        go(dir, variant, STEPS, 0, &usual);
        for step in [15, STEPS] {
            assert!(files(dir, step) == files(long.path(), step), "{variant}, step {step}");
            assert_eq!(
                state(dir, step)["average"],
                state(long.path(), step)["average"],
                "{variant}, step {step}"
            );
        }
        assert!(state(dir, STEPS)["average"].get("passing").is_none());
    }
}

/// The last loss would begin an average if it counted twice.
#[test]
fn a_finished_run_that_is_started_again_counts_its_last_evaluation_once() {
    let run = folder();
    let config = config(run.path(), &["average.start=0", "average.patience=1", "eval.every=5"]);
    let mut made = [3.0, 2.0, 1.9, 1.95].into_iter();
    let evaluated = |loss: &mut dyn FnMut() -> f64| {
        let loss = std::cell::RefCell::new(loss);
        let lead = |_| (loss.borrow_mut())();
        let mut rows = Vec::new();
        let family = Walk { poisoned: &[], lead: &lead, keeps_best: None };
        train(&config, family, scale(), &Local, &|| false, &mut |event| {
            if let Event::Evaluated { measures, .. } = event {
                rows.push(measures.row);
            }
        })
        .unwrap();
        rows
    };
    let rows = evaluated(&mut || made.next().unwrap());
    assert_eq!(evaluated(&mut || 1.95), [rows.last().unwrap().clone()]);
}

/// Goes on to step `steps` of a run that ends after two evaluations without a better one.
fn go_with_patience(dir: &Path, steps: u64, lead: &dyn Fn(f64) -> f64) -> Outcome {
    let mut config = config(dir, &["eval.every=5", "eval.patience=2"]);
    config.train.steps = steps;
    let family = Walk { poisoned: &[], lead, keeps_best: Some(KeepBest { patience: 2, min_delta: 0.0 }) };
    train(&config, family, scale(), &Local, &|| false, &mut |_| {}).unwrap()
}

/// The evaluation at the end of the shorter run is none of the longer one: found better or worse, it neither uses up patience nor sets a bar.
#[test]
fn a_run_made_longer_has_as_much_patience_as_one_that_was_long() {
    // Evaluations after steps 5, 10, 15 and 20 of the longer run.
    let losses = [3.0, 4.0, 2.0, 2.5];
    let from = |made: usize| {
        let evaluated = Cell::new(made);
        move |_| {
            evaluated.set(evaluated.get() + 1);
            losses[evaluated.get() - 1]
        }
    };
    let long = folder();
    go_with_patience(long.path(), STEPS, &from(0));
    let task = json!({ "best": 2.0, "best_step": 15, "since_best": 1 });
    assert_eq!(state(long.path(), STEPS)["task"], task);
    for at_end in [9.0, 1.0] {
        let grown = folder();
        let (first, last) = (from(0), Cell::new(0));
        let lead = |w: f64| {
            last.set(last.get() + 1);
            if last.get() <= 2 { first(w) } else { at_end }
        };
        let outcome = go_with_patience(grown.path(), 13, &lead);
        assert_eq!(outcome.best, Some(if at_end == 9.0 { (5, 3.0) } else { (13, 1.0) }));
        let kept = || std::fs::read(grown.path().join("best/model.safetensors")).unwrap();
        let kept_then = kept();
        let outcome = go_with_patience(grown.path(), STEPS, &from(2));
        assert_eq!((outcome.step, outcome.stopped_early.is_some()), (STEPS, false));
        assert!(files(grown.path(), STEPS) == files(long.path(), STEPS));
        let mut found = state(grown.path(), STEPS)["task"].take();
        // A better model that was seen stays the one that is kept.
        assert_eq!(kept() == kept_then, at_end == 1.0);
        assert_eq!(outcome.best, Some(if at_end == 1.0 { (13, 1.0) } else { (15, 2.0) }));
        let aside = found.as_object_mut().unwrap().remove("aside");
        assert_eq!(aside, (at_end == 1.0).then(|| json!({ "value": 1.0, "step": 13 })));
        assert_eq!(found, task, "{at_end}");
    }
}
