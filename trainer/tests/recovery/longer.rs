//! Runs that are made longer.

use std::path::Path;

use segue_collectives::local::Local;
use segue_trainer::checkpoint::read_tensors;
use segue_trainer::engine::train;
use serde_json::json;

use super::walk::{STEPS, Walk, config, folder, scale, state};

/// Goes on to step `steps`, or to `stop_at` if that is not 0.
fn go(dir: &Path, variant: &str, steps: u64, stop_at: u64, lead: &dyn Fn(f64) -> f64) {
    let keys = ["average.kind=two_tailed", "average.start=0", "eval.every=5", variant];
    let mut config = config(dir, &keys);
    (config.train.steps, config.train.stop_at) = (steps, stop_at);
    train(&config, Walk { poisoned: &[], lead }, scale(), &Local, &|| false, &mut |_| {}).unwrap();
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
#[test]
fn a05_a_two_tailed_run_made_longer_has_the_bytes_of_one_that_was_long() {
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
