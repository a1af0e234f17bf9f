//! The best model of a run, beside checkpoints that are written at another time.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use segue_collectives::simulated;
use segue_engine::checkpoint::replace;
use segue_engine::{Event, KeepBest, Outcome, train};
use serde_json::{Value, json};

use super::walk::{STEPS, Walk, config, folder, scale, state};

/// Of the evaluations after steps 5, 10, 15 and 20.
const LOSSES: [f64; 4] = [3.0, 2.0, 2.5, 2.2];

/// Goes on after `made` evaluations, whose losses are `LOSSES` or, after step 10, `second`. Gives the warnings too.
fn go(dir: &Path, made: usize, stop_at: u64, second: f64, ranks: usize) -> (Outcome, Vec<String>) {
    let config = config(dir, &["average.start=0", "eval.every=5", &format!("train.stop_at={stop_at}")]);
    let mut ended = simulated::run(ranks, |comm| {
        let evaluated = Cell::new(made);
        let lead = |_| {
            evaluated.set(evaluated.get() + 1);
            if evaluated.get() == 2 { second } else { LOSSES[evaluated.get() - 1] }
        };
        let family =
            Walk { poisoned: &[], lead: &lead, keeps_best: Some(KeepBest { patience: 9, min_delta: 0.0 }) };
        let mut warnings = Vec::new();
        let outcome = train(&config, family, scale(), comm, &|| false, &mut |event| {
            if let Event::Warning { what } = event {
                warnings.push(what);
            }
        });
        (outcome.unwrap(), warnings)
    });
    ended.swap_remove(0)
}

/// What the best model says of itself: its step and value.
fn said(dir: &Path) -> (u64, f64) {
    let metrics: Value = serde_json::from_slice(&fs::read(dir.join("best/metrics.json")).unwrap()).unwrap();
    assert_eq!(metrics["lead"], metrics["value"]);
    (metrics["step"].as_u64().unwrap(), metrics["value"].as_f64().unwrap())
}

/// Has written the best model of step 10 and was killed before the checkpoint that knows of it: the newest is that of step 5.
fn killed(dir: &Path, ranks: usize) {
    go(dir, 0, 10, LOSSES[1], ranks);
    fs::remove_dir_all(dir.join("checkpoints/step-00000010")).unwrap();
    assert_eq!((said(dir), &state(dir, 5)["task"]["best_step"]), ((10, 2.0), &json!(5)));
}

#[test]
fn a_run_killed_between_its_best_model_and_the_checkpoint_goes_on_as_if_it_had_not_been() {
    let undisturbed = folder();
    go(undisturbed.path(), 0, 0, LOSSES[1], 1);
    let task = state(undisturbed.path(), STEPS)["task"].clone();
    assert_eq!(task, json!({ "best": 2.0, "best_step": 10, "since_best": 2 }));
    for ranks in [1, 2] {
        let run = folder();
        killed(run.path(), ranks);
        let (outcome, warnings) = go(run.path(), 1, 0, LOSSES[1], ranks);
        assert_eq!((outcome.best, warnings), (Some((10, 2.0)), Vec::new()));
        assert_eq!(
            (said(run.path()), &state(run.path(), STEPS)["task"]),
            ((10, 2.0), &task),
            "{ranks} ranks"
        );
    }
}

/// On another processor the evaluation that is made again may find another loss.
#[test]
fn what_a_run_says_of_its_best_model_is_true_of_the_model_that_lies_there() {
    for (again, best, aside) in [
        // The one that was written is the best that was seen.
        (2.75, (10, 2.0), json!({ "value": 2.0, "step": 10 })),
        (4.0, (10, 2.0), json!({ "value": 2.0, "step": 10 })),
        (1.5, (10, 1.5), Value::Null),
    ] {
        let run = folder();
        killed(run.path(), 1);
        let (outcome, _) = go(run.path(), 1, 0, again, 1);
        assert_eq!((outcome.best, said(run.path())), (Some(best), best));
        assert_eq!(state(run.path(), STEPS)["task"]["aside"], aside, "{again}");
    }
}

#[test]
fn a_best_model_that_is_lost_is_told_of_and_ends_no_run() {
    let intact = folder();
    go(intact.path(), 0, 0, LOSSES[1], 1);
    let task = state(intact.path(), STEPS)["task"].clone();
    let damage = |dir: &Path| {
        let path = dir.join("best/model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let remove = |dir: &Path| fs::remove_dir_all(dir.join("best")).unwrap();
    for (spoil, says) in
        [(&damage as &dyn Fn(&Path), "best/model.safetensors is damaged"), (&remove, "best is not there")]
    {
        for ranks in [1, 2] {
            let run = folder();
            go(run.path(), 0, 10, LOSSES[1], ranks);
            spoil(run.path());
            let (outcome, warnings) = go(run.path(), 2, 0, LOSSES[1], ranks);
            assert!(warnings.len() == 1 && warnings[0].contains(says), "{warnings:?}");
            assert!(warnings[0].contains("of step 10, is lost"), "{warnings:?}");
            assert_eq!((outcome.best, &state(run.path(), STEPS)["task"]), (Some((10, 2.0)), &task));
        }
    }
}

/// It does not say which step it is of; so the state is believed.
#[test]
fn a_best_model_of_an_earlier_version_stays_the_best() {
    let run = folder();
    go(run.path(), 0, 10, LOSSES[1], 1);
    let best = run.path().join("best");
    let model = fs::read(best.join("model.safetensors")).unwrap();
    let fill = |dir: &Path| {
        fs::write(dir.join("model.safetensors"), &model).unwrap();
        Ok(())
    };
    replace(&best, fill).unwrap();
    let (outcome, warnings) = go(run.path(), 2, 0, LOSSES[1], 1);
    assert_eq!((outcome.best, warnings), (Some((10, 2.0)), Vec::new()));
    assert!(
        fs::read(best.join("model.safetensors")).unwrap() == model && !best.join("metrics.json").exists()
    );
}
