//! What comes after training, asked of models of any family: a family without the capability is refused, and those that have it are named.

use segue_tests::{ROOT, alone, fail, mpirun, succeed};
use tempfile::TempDir;

/// Trains a small model of a recipe in the folder `run` of a place.
fn trained(recipe: &str, settings: &[&str]) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let (recipe, run) = (format!("{ROOT}/configs/recipes/{recipe}.toml"), format!("run.dir={}", run(&place)));
    let args = ["pretrain", "--json", "--config", &recipe, &run];
    succeed(alone(&[&args[..], settings].concat()));
    place
}

fn run(place: &TempDir) -> String {
    place.path().join("run").display().to_string()
}

/// A command on the model in `run`.
fn on(place: &TempDir, before: &[&str], after: &[&str]) -> Vec<String> {
    let run = run(place);
    before.iter().copied().chain([run.as_str()]).chain(after.iter().copied()).map(String::from).collect()
}

/// Strings of three tokens out of four, which a small model learns in seconds.
fn copier() -> TempDir {
    let sizes = ["model.tokens=4", "model.length=3", "model.d_model=32", "model.parameters=0"];
    let counts = ["model.valid_strings=64", "model.test_strings=0", "model.train_strings=0"];
    let training =
        ["train.steps=400", "train.lanes=32", "train.micro_batch=32", "eval.every=0", "optim.lr=0.01"];
    trained("reverse-copy", &[&sizes[..], &counts, &training].concat())
}

#[test]
fn a_model_of_reverse_copy_is_evaluated_and_writes() {
    let place = copier();
    let strings = |more: &[&str]| on(&place, &["eval", "strings", "--json", "--model"], more);
    let found = succeed(alone(&strings(&["--strings", "200"])));
    let accuracy = found["copied"]["string_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.9, "{found}");
    assert_eq!((&found["length"], &found["copied"]["count"]), (&3.into(), &200.into()));
    let longer = strings(&["--strings", "200", "--length", "5", "--seed", "7"]);
    let alone_found = succeed(alone(&longer));
    assert_eq!(alone_found["length"], 5);
    assert_eq!(succeed(mpirun(2, &longer)), alone_found, "the same bits at any number of ranks");
    let write = |prompt: &str| {
        let greedy = ["--prompt", prompt, "--temperature", "0", "--json"];
        on(&place, &["generate", "--model"], &greedy)
    };
    let written = succeed(alone(&write("0 1 2")));
    assert_eq!(
        (&written["text"], &written["tokens"]),
        (&"2 1 0".into(), &vec![2, 1, 0, 4].into()),
        "{written}"
    );
    fail(alone(&write("0 4")), 64, &["`4` is not a token", "numbers from 0 to 3"]);
    fail(alone(&write("0 a")), 64, &["`a` is not a token"]);
    fail(
        alone(&[write("0"), vec!["--mem-len".into(), "4".into()]].concat()),
        64,
        &["--mem-len is of models with a memory"],
    );
}

/// Commands and what they lack.
#[test]
fn a_model_without_a_capability_is_refused_and_those_with_it_are_named() {
    let game = trained("moment-game", &["train.steps=2", "eval.every=0"]);
    let languages = "transfo-xl, xlnet, lstm";
    let cases: [(&[&str], &str); 6] = [
        (&["generate", "--prompt", "a", "--model"], "transfo-xl, xlnet, lstm, reverse-copy"),
        (&["predict"], "one of these types: transfo-xl, xlnet, lstm, planetoid, complement-gan"),
        (&["eval", "--corpus", "nowhere", "--model"], languages),
        (&["eval", "strings", "--model"], "a reverse-copy model"),
        (&["parity", "--cases", "none", "--model"], languages),
        (&["score", "--ids", "none", "--output", "none", "--model"], languages),
    ];
    for (before, named) in cases {
        fail(alone(&on(&game, before, &[])), 78, &["holds a moment-game model", named]);
    }
    let copy = trained(
        "reverse-copy-small",
        &["train.steps=1", "eval.every=0", "model.valid_strings=1", "model.test_strings=0"],
    );
    fail(alone(&on(&copy, &["eval", "--model"], &[])), 78, &["a language model", "run `segue eval strings`"]);
}
