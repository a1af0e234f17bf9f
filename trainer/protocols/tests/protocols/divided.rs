//! Rows A6 and A7: averages on several ranks, each with all of them or with a part, in whole runs. What is evaluated, decided, stored and gone on
//! from is what one rank comes to.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::undisturbed::{LSTM, corpus, train_in};

/// Four micro-steps, so that there may be four ranks; every fifth step is evaluated, and checkpoints are of steps between evaluations too.
const KEYS: [&str; 5] =
    ["train.micro_batch=1", "train.steps=18", "eval.every=5", "checkpoint.every=6", "checkpoint.keep=100"];

/// Kinds of averages: begun at a step, or by losses and in rounds; handed over; of all weights; by losses of several sets.
const KINDS: [&[&str]; 6] = [
    &["average.start=7", "checkpoint.best=true"],
    &["average.patience=1", "average.fine_tuning=2", "eval.every=1", "optim.lr=0.3"],
    &["average.start=3", "average.repeat_every=4"],
    &["average.kind=exponential", "average.beta=0.9", "average.beside_trained=true"],
    &["average.kind=two_tailed", "checkpoint.best=true"],
    &["average.kind=two_tailed", "average.variant=core", "average.decide_by=training"],
];

/// Every tensor file of a run, by its place in the folder, and what checkpoints say of averages.
fn files(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![run.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(run).unwrap().display().to_string();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if name.ends_with(".safetensors") {
                found.insert(name, fs::read(path).unwrap());
            } else if name.ends_with("trainer_state.json") {
                let state: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
                let told = serde_json::json!([state["average"], state["fine_tuning"], state["guard"]]);
                found.insert(name, told.to_string().into_bytes());
            }
        }
    }
    found
}

/// Rows A6, A7.
#[test]
fn averages_have_the_same_bytes_at_any_number_of_ranks_divided_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    for kind in KINDS {
        let keys = [&LSTM[..], &KEYS, kind].concat();
        let whole = tempfile::tempdir().unwrap();
        let told = train_in(whole.path(), &corpus, &keys, 1);
        let expected = files(whole.path());
        assert!(expected.keys().any(|name| name.ends_with("training_weights.safetensors")), "{kind:?}");
        for (ranks, shard) in [(2, "none"), (2, "optimizer"), (4, "optimizer")] {
            let shard = format!("train.shard={shard}");
            let run = tempfile::tempdir().unwrap();
            let keys = [&keys[..], &[&shard]].concat();
            assert!(train_in(run.path(), &corpus, &keys, ranks) == told, "{kind:?}, {ranks} ranks, {shard}");
            assert!(files(run.path()) == expected, "{kind:?}, {ranks} ranks, {shard}");
        }
        // Divided among four, then the gradients too among two, then whole.
        let run = tempfile::tempdir().unwrap();
        for (ranks, more) in [
            (4, &["train.shard=optimizer", "train.stop_at=8"][..]),
            (2, &["train.shard=gradients", "train.stop_at=13"]),
            (1, &[]),
        ] {
            train_in(run.path(), &corpus, &[&keys[..], more].concat(), ranks);
        }
        let last = |files: BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
            let last = |(name, _): &(String, Vec<u8>)| name.contains("step-00000018/");
            files.into_iter().filter(last).collect()
        };
        assert!(last(files(run.path())) == last(expected), "{kind:?}");
    }
}
