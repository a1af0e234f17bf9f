//! Corpora of sentence pairs, built and described by the real binary.

use std::fs;
use std::path::Path;

use segue_tests::{alone, fail, succeed};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with these files.
fn place(files: &[(&str, &[u8])]) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(place.path().join(name), text).unwrap();
    }
    place
}

/// `segue data build --json` of the pairs in `place`.
fn build(place: &Path, more: &[&str]) -> Vec<String> {
    let [train, output] = ["train", "corpus"].map(|name| place.join(name).display().to_string());
    let command = ["data", "build", "--json", "--preset", "pairs", "--source", "de", "--target", "en"];
    let places = ["--train", &train, "--output", &output];
    [&command[..], &places, more].concat().into_iter().map(String::from).collect()
}

const WORDS: [&str; 2] = ["--tokenizer-kind", "word"];

/// Row S28.
#[test]
fn what_becomes_of_the_pairs_is_in_the_result_and_in_the_corpus() {
    let place = place(&[
        ("train.de", b"Das Haus\n\nrot rot rot rot\na b c\nein Haus\n"),
        ("train.en", b"the house\r\nlost\r\nred red red red\r\na\r\na house"),
        ("val.de", b"\nx\n"),
        ("val.en", b"y\nx\n"),
    ]);
    let valid = place.path().join("val").display().to_string();
    let options = ["--lower-case", "--max-length", "3", "--max-ratio", "1.5", "--valid", &valid];
    let built = succeed(alone(&build(place.path(), &[&WORDS[..], &options].concat())));
    let none = json!({ "count": 0, "first": [] });
    let one = |line: u64| json!({ "count": 1, "first": [line] });
    let expected = json!({
        "read": 5, "kept": 2, "empty_source": one(2), "empty_target": none, "too_long": one(3), "ratio": one(4),
    });
    assert_eq!(built["splits"]["train"]["pairs"], expected);
    let of_valid = &built["splits"]["valid"]["pairs"];
    assert_eq!((&of_valid["kept"], &of_valid["empty_source"]), (&json!(2), &one(1)));
    assert_eq!(built["pairs"], json!({ "source": "de", "target": "en", "lower_case": true }));
    // das haus the house, ein haus a house, each with an end.
    let train = &built["splits"]["train"];
    assert_eq!(
        (&train["documents"], &train["sentences"], &train["tokens"]),
        (&json!(2), &json!(4), &json!(12))
    );
    let corpus = place.path().join("corpus").display().to_string();
    let info = succeed(alone(&["data", "info", "--json", &corpus]));
    assert_eq!(info["splits"], built["splits"]);
    assert_eq!(succeed(alone(&["data", "verify", "--json", &corpus]))["ok"], Value::Bool(true));
}

#[test]
fn files_that_cannot_be_pairs_are_65_and_leave_no_corpus() {
    let unequal = place(&[("train.de", b"a\nb\nc\n"), ("train.en", b"a\n")]);
    let latin = place(&[("train.de", b"a\n\xe9t\xe9\n"), ("train.en", b"a\nb\n")]);
    let longer = ["train.de, line 2", "this file has 3 lines", "train.en 1 line"];
    for (place, words) in
        [(&unequal, &longer[..]), (&latin, &["train.de, line 2", "UTF-8", "--invalid-utf8"])]
    {
        let args: Vec<String> =
            build(place.path(), &WORDS).into_iter().filter(|arg| arg != "--json").collect();
        fail(alone(&args), 65, words);
        assert!(!place.path().join("corpus").exists());
    }
    let replaced =
        succeed(alone(&build(latin.path(), &[&WORDS[..], &["--invalid-utf8", "replace"]].concat())));
    assert_eq!(replaced["splits"]["train"]["replaced"], 2);
}

#[test]
fn options_of_other_presets_are_64() {
    let place = place(&[("train.de", b"a\n"), ("train.en", b"a\n")]);
    let text = place.path().join("train.de").display().to_string();
    let output = place.path().join("corpus").display().to_string();
    let refused = |args: &[&str], word: &str| {
        let end = ["--train", &text, "--output", &output];
        fail(alone(&[&["data", "build"], args, &WORDS, &end].concat()), 64, &[word]);
    };
    refused(&["--preset", "pairs", "--source", "de"], "needs --source and --target");
    refused(
        &["--preset", "pairs", "--source", "de", "--target", "en", "--no-eod"],
        "no options of the pairs preset",
    );
    refused(&["--preset", "sentences", "--lower-case"], "options of the pairs preset");
}
