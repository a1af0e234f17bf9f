//! Strings written backwards: solved where that is easy, with the same bytes at any number of ranks and over stops.

use std::path::Path;

use segue_collectives::simulated;
use segue_configs::Config;
use segue_trainer::engine::Outcome;
use segue_trainer::families::{self, MODELS};
use segue_trainer::{Compute, libtorch};

fn config(folder: &Path, overrides: &[&str]) -> Config {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/recipes/reverse-copy-small.toml");
    let folder = format!("run.dir={}", folder.display());
    let all: Vec<String> = overrides.iter().map(|key| key.to_string()).chain([folder]).collect();
    MODELS.load(Some(&recipe), &all).unwrap().config
}

/// Trains on `ranks` ranks; `stop` after every step.
fn train(folder: &Path, overrides: &[&str], ranks: usize, stop: bool) -> Outcome {
    libtorch::set_threads(1);
    let mut config = config(folder, overrides);
    let open = |config: &mut Config| (families::of(&config.model).open)(config).unwrap();
    open(&mut config);
    let train = |comm: &dyn segue_collectives::Communicator| {
        open(&mut config.clone()).train(&config, Compute::CPU, comm, &|| stop, &mut |_| {}).unwrap()
    };
    simulated::run(ranks, |comm| train(comm)).remove(0)
}

fn measure(outcome: &Outcome, pointer: &str) -> f64 {
    outcome.evaluation.as_ref().and_then(|row| row.pointer(pointer)).and_then(|x| x.as_f64()).unwrap()
}

/// Strings of one token, of twenty: solved without a mistake within seconds.
#[test]
fn m17_strings_of_one_token_are_copied_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let keys =
        ["model.length=1", "model.tokens=20", "model.parameters=8000", "train.steps=400", "eval.every=0"];
    for rounds in ["model.mogrifier_rounds=0", "model.mogrifier_rounds=5"] {
        let folder = folder.path().join(rounds);
        let outcome = train(&folder, &[&keys[..], &[rounds]].concat(), 1, false);
        for pointer in ["/accuracy", "/string_accuracy", "/test/accuracy", "/test/string_accuracy"] {
            assert_eq!(measure(&outcome, pointer), 1.0, "{pointer}, {rounds}");
        }
        let loss = measure(&outcome, "/loss");
        assert!(loss < 0.05, "{loss}");
    }
}

const SHORT: [&str; 11] = [
    "model.tokens=10",
    "model.length=4",
    "model.parameters=6000",
    "model.mogrifier_rounds=3",
    "model.train_strings=40",
    "model.valid_strings=37",
    "model.test_strings=5",
    "train.steps=9",
    "train.lanes=16",
    "train.micro_batch=4",
    "eval.every=4",
];

const CHECKPOINTS: [&str; 3] = ["checkpoint.every=3", "average.start=6", "checkpoint.best=true"];

fn bytes(folder: &Path) -> Vec<Vec<u8>> {
    let checkpoint = folder.join("checkpoints/latest");
    let files = ["model.safetensors", "training_weights.safetensors", "optimizer.safetensors"];
    let files = files.iter().map(|file| checkpoint.join(file)).chain([folder.join("best/model.safetensors")]);
    files.map(|file| std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))).collect()
}

#[test]
fn m17_runs_end_with_the_same_bytes_at_any_number_of_ranks_and_over_stops() {
    for loss_over in ["objective.loss_over=targets", "objective.loss_over=lanes"] {
        let keys = [&SHORT[..], &CHECKPOINTS, &[loss_over]].concat();
        let run = |ranks| {
            let folder = tempfile::tempdir().unwrap();
            let outcome = train(folder.path(), &keys, ranks, false);
            (bytes(folder.path()), outcome.evaluation.unwrap())
        };
        let (alone, evaluation) = run(1);
        for ranks in [2, 4] {
            let (found, same) = run(ranks);
            assert!(found == alone && same == evaluation, "{ranks} ranks, {loss_over}");
        }
        let folder = tempfile::tempdir().unwrap();
        let mut ranks = [1, 2, 4].into_iter().cycle();
        let mut attempts = 0;
        while train(folder.path(), &keys, ranks.next().unwrap(), true).preempted {
            attempts += 1;
        }
        assert_eq!(attempts, 8);
        assert!(bytes(folder.path()) == alone, "stopped at every step, {loss_over}");
    }
}
