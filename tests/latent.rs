//! Sentences with latent variables, from a file to likelihoods, information and new sentences.

use std::fs;

use segue_tests::{ROOT, Workplace, alone, fail, files_of, finish, mpirun, stderr, succeed};
use serde_json::Value;

/// Sentences of which the first word decides the others.
fn sentences(count: usize) -> String {
    let words = [["a", "dog", "runs"], ["the", "cat", "sleeps"], ["one", "bird", "sings"]];
    let sentence = |n: usize| {
        let [first, second, third] = words[n % 3];
        let again = format!(" {third}").repeat(n / 3 % 4);
        format!("{first} {second}{again}\n")
    };
    (0..count).map(sentence).collect()
}

/// A corpus of such sentences, `captions`.
fn place() -> Workplace {
    let place = Workplace::new();
    fs::write(place.path("train.txt"), sentences(60)).expect("a file");
    fs::write(place.path("valid.txt"), sentences(24)).expect("a file");
    let build = ["data", "build", "--json", "--preset", "sentences", "--tokenizer-kind", "word"];
    let [train, valid, output] = ["train.txt", "valid.txt", "captions"].map(|name| place.text(name));
    succeed(alone(&[&build[..], &["--train", &train, "--valid", &valid, "--output", &output]].concat()));
    place
}

/// Arguments that train in the run folder `run`.
fn train(place: &Workplace, run: &str, more: &[&str]) -> Vec<String> {
    let own = [format!("run.dir={}", place.text(run)), format!("data.corpus={}", place.text("captions"))];
    let short = [
        "model.d_embed=8",
        "model.d_encoder=8",
        "model.d_model=8",
        "model.latent_count=3",
        "objective.samples=4",
        "train.lanes=16",
        "train.micro_batch=4",
        "train.steps=8",
        "eval.every=4",
        "eval.samples=5",
        "checkpoint.every=2",
    ];
    let recipe = format!("{ROOT}/configs/recipes/latent-small.toml");
    let before = ["pretrain", "--json", "--config", &recipe].map(String::from);
    let overrides = short.iter().chain(more).map(|word| word.to_string());
    before.into_iter().chain(own).chain(overrides).collect()
}

/// Files of tensors of the last checkpoint.
fn tensors(place: &Workplace, run: &str) -> Vec<(String, Vec<u8>)> {
    let all = files_of(&place.path(run).join("checkpoints/latest")).into_iter();
    let found: Vec<_> = all.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    assert!(found.len() >= 2, "{run}");
    found
}

/// Texts of a result of `segue generate`.
fn texts(result: &Value) -> Vec<&str> {
    result["texts"]
        .as_array()
        .expect("texts")
        .iter()
        .map(|text| text["text"].as_str().expect("a text"))
        .collect()
}

/// A run ends with the same bytes on 1, 2 and 4 ranks, after a stop and after a kill; the trained model is evaluated and generates text.
#[test]
fn sentences_go_from_a_file_to_information_and_new_sentences() {
    let place = place();
    let one = succeed(alone(&train(&place, "one", &[])));
    let expected = tensors(&place, "one");
    for ranks in [2, 4] {
        let run = ranks.to_string();
        let found = succeed(mpirun(ranks, &train(&place, &run, &[])));
        assert_eq!(found["evaluation"], one["evaluation"], "{ranks} ranks");
        assert!(tensors(&place, &run) == expected, "{ranks} ranks");
    }
    succeed(mpirun(2, &train(&place, "parts", &["train.stop_at=3"])));
    let mut killed = alone(&train(&place, "parts", &[]));
    killed.env("SEGUE_FAULTS", "kill@step.update:hit=4");
    let killed = finish(killed);
    assert_eq!(killed.status.code(), None, "{}", stderr(&killed));
    succeed(mpirun(4, &train(&place, "parts", &[])));
    assert!(tensors(&place, "parts") == expected);

    let model = place.text("one");
    let eval = ["eval", "latent", "--json", "--model", &model];
    let found = succeed(alone(&eval));
    for key in ["nll", "evidence_nll", "information", "sentences", "tokens"] {
        assert_eq!(found[key], one["evaluation"][key], "{key}");
    }
    let more = succeed(alone(&[&eval[..], &["--samples", "200"]].concat()));
    // More samples tighten the bound.
    let of = |value: &Value, key: &str| value[key].as_f64().expect("a number");
    assert!(of(&more, "nll") < of(&found, "nll") && of(&more, "nll") < of(&more, "evidence_nll"), "{more}");
    assert_eq!(more, succeed(mpirun(2, &[&eval[..], &["--samples", "200"]].concat())));

    let write = |more: &[&str]| {
        succeed(alone(&[&["generate", "--json", "--model", &model, "--tokens", "12"], more].concat()))
    };
    let drawn = write(&["--prompt", "", "--texts", "20"]);
    assert_eq!(texts(&drawn).len(), 20);
    assert_eq!(drawn, write(&["--prompt", "", "--texts", "20"]));
    // The first texts do not depend on how many more there are.
    assert_eq!(texts(&drawn)[..5], texts(&write(&["--prompt", "", "--texts", "5"])));
    let between = write(&["--prompt", "a dog runs", "--to", "the cat", "--texts", "4", "--temperature", "0"]);
    assert_eq!(texts(&between).len(), 4);
}

/// Row V16: a study shows its front; a value that no evaluation tells is named.
#[test]
fn a_study_shows_what_likelihood_costs_information() {
    let place = Workplace::new();
    let file = fs::read_to_string(format!("{ROOT}/configs/studies/latent-front.toml")).expect("the study");
    let recipe = format!("recipe = \"{ROOT}/configs/recipes/latent-symbols.toml\"");
    let file = file
        .replace("recipe = \"../recipes/latent-symbols.toml\"", &recipe)
        .replace("trials = 12", "trials = 3");
    let study = |name: &str, text: &str| {
        fs::write(place.path(name), text).expect("a study");
        let output = place.text(&format!("{name}-out"));
        let short = ["data.symbols=10", "train.steps=4", "eval.every=4", "checkpoint.every=4"];
        alone(&[&["tune", &place.text(name), "--json", "--output", &output][..], &short].concat())
    };
    succeed(study("front.toml", &file));
    let read = |name: &str| fs::read_to_string(place.path("front.toml-out").join(name)).expect("a file");
    let found: Value = serde_json::from_str(&read("results.json")).expect("the results");
    let on = found["front"]["trials"].as_array().expect("the front");
    assert!((1..=3).contains(&on.len()), "{found}");
    assert_eq!(read("front.csv").lines().count(), 4);
    assert_eq!(read("front.csv").matches(",true,").count(), on.len());
    assert!(read("front.svg").starts_with("<svg") && read("report.md").contains("## Front"));
    let other = file.replace("information_per_token", "knowledge");
    fail(study("other.toml", &other), 78, &["front is `knowledge`", "information_per_token"]);
}

/// Symbols need no corpus.
#[test]
fn symbols_are_trained_without_a_corpus() {
    let place = Workplace::new();
    let recipe = format!("{ROOT}/configs/recipes/latent-codebook.toml");
    let run = format!("run.dir={}", place.text("run"));
    let short = ["data.symbols=20", "train.steps=4", "eval.every=4", "checkpoint.every=4"];
    let found = succeed(alone(&[&["pretrain", "--json", "--config", &recipe, &run][..], &short].concat()));
    assert_eq!(found["evaluation"]["sentences"], 20.0);
    let model = place.text("run");
    let scored = succeed(alone(&["eval", "latent", "--json", "--model", &model]));
    assert_eq!(scored["nll"], found["evaluation"]["nll"]);
    fail(alone(&["generate", "--model", &model, "--prompt", ""]), 64, &["symbols, which are no text"]);
}

#[test]
fn what_a_model_with_latent_variables_cannot_do_is_named() {
    let place = place();
    let refused =
        |more: &[&str], code: i32, words: &[&str]| fail(alone(&train(&place, "no", more)), code, words);
    refused(&["objective.samples=0"], 78, &["objective.samples"]);
    refused(&["eval.samples=0"], 78, &["eval.samples"]);
    refused(&["train.device=cuda"], 78, &["train.device", "processor"]);
    refused(&["data.corpus="], 78, &["data.corpus is not set"]);
    succeed(alone(&train(&place, "run", &["train.steps=2", "eval.every=0"])));
    let model = place.text("run");
    let of_model = |words: &[&str]| alone(&[&words[..2], &["--model", &model], &words[2..]].concat());
    fail(of_model(&["eval", "latent", "--samples", "0"]), 64, &["--samples"]);
    fail(of_model(&["eval", "latent", "--split", "test"]), 65, &["has no test text"]);
    let generate = |words: &[&str]| alone(&[&["generate", "--model", &model], words].concat());
    fail(generate(&["--prompt", "a dog", "--to", ""]), 64, &["--to", "empty"]);
    fail(generate(&["--prompt", "", "--to", "a dog"]), 64, &["--prompt", "empty"]);

    // A folder, of no checkpoint that is verified, whose configuration tells other sizes than its weights have.
    let folder = place.path("other");
    fs::create_dir(&folder).expect("a folder");
    for (name, bytes) in files_of(&place.path("run/checkpoints/latest")) {
        let text = String::from_utf8(bytes.clone()).unwrap_or_default();
        let bytes = match name.as_str() {
            "config.json" => text.replace("\"d_encoder\": 8", "\"d_encoder\": 9").into_bytes(),
            "MANIFEST.json" => continue,
            _ => bytes,
        };
        fs::write(folder.join(name), bytes).expect("a file");
    }
    let eval = ["eval", "latent", "--model", &place.text("other"), "--corpus", &place.text("captions")];
    fail(alone(&eval), 78, &["encoder.", "[32, 8]"]);
}
