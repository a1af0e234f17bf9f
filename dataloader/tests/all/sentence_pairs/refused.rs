use std::fs;

use segue_dataloader::{
    BuildOptions, InvalidUtf8, PairBuild, PairFilter, Preset, Split, TokenizerChoice, build, build_pairs,
};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};

use super::{files, gzip, options, pairs, words};

#[test]
fn files_of_unequal_length_are_refused_with_both_counts() {
    for (source, target, longer, line) in [
        ("a\nb\nc\n", "a\n", "train.de", 2),
        ("a\n", "a\nb\nc", "train.en", 2),
        ("", "a\nb\nc", "train.en", 1),
    ] {
        let folder = files(source, target);
        let error = build_pairs(&options(folder.path()), &()).unwrap_err();
        let message = error.to_string();
        let shorter = if longer == "train.de" { "train.en" } else { "train.de" };
        let counts = format!(
            "{} {}",
            folder.path().join(shorter).display(),
            if line == 1 { "0 lines" } else { "1 line" }
        );
        assert!(message.contains(&format!("{longer}, line {line}: ")), "{message}");
        assert!(message.contains("this file has 3 lines") && message.ends_with(&counts), "{message}");
        assert_eq!(error.exit_code(), 65);
        // Nothing is left of a corpus that was refused.
        assert!(!folder.path().join("corpus").exists());
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_by_its_line_or_replaced() {
    let folder = files(b"a\nb\xE9\n", "a\nb\n");
    let error = build_pairs(&options(folder.path()), &()).unwrap_err();
    assert!(
        error.to_string().ends_with("train.de, line 2: it is not UTF-8 at byte 2 of the line"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("--invalid-utf8 replace"));
    assert_eq!(error.exit_code(), 65);
    let replace = PairBuild { invalid_utf8: InvalidUtf8::Replace, ..options(folder.path()) };
    let info = build_pairs(&replace, &()).unwrap();
    assert_eq!(info.splits[&Split::Train].replaced, 1);
    assert_eq!(pairs(folder.path(), Split::Train)[1].0, "b\u{FFFD}");
    // Records have escapes besides.
    fs::remove_dir_all(folder.path().join("corpus")).unwrap();
    let records = folder.path().join("train.jsonl");
    fs::write(&records, b"{\"de\": \"a\\ud800\", \"en\": \"b\xE9\"}\n").unwrap();
    let build = PairBuild { train: vec![records], ..options(folder.path()) };
    let error = build_pairs(&build, &()).unwrap_err();
    assert!(error.to_string().contains("train.jsonl, line 1: it is not UTF-8"), "{error}");
    let info = build_pairs(&PairBuild { invalid_utf8: InvalidUtf8::Replace, ..build }, &()).unwrap();
    assert_eq!(info.splits[&Split::Train].replaced, 2);
}

#[test]
fn records_without_both_sides_are_refused_by_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.json");
    for (line, why) in [
        ("{\"de\": \"a\"}", "missing field `en`"),
        ("{\"translation\": {\"de\": \"a\"}}", "missing field `de`"),
        ("{\"de\": \"a\", \"en\": null}", "null"),
        ("[1]", "expected an object"),
    ] {
        fs::write(&records, format!("{{\"de\": \"a\", \"en\": \"b\"}}\n\n{line}\n")).unwrap();
        let build = PairBuild { train: vec![records.clone()], ..options(folder.path()) };
        let error = build_pairs(&build, &()).unwrap_err();
        assert!(
            error.to_string().contains("records.json, line 3: ") && error.to_string().contains(why),
            "{error}"
        );
        assert_eq!(error.exit_code(), 65);
    }
}

#[test]
fn damage_and_lines_without_end_are_refused() {
    let folder = files("", "a\n".repeat(9));
    fs::remove_file(folder.path().join("train.de")).unwrap();
    let packed = gzip("a\n".repeat(9));
    fs::write(folder.path().join("train.de.gz"), &packed[..packed.len() - 9]).unwrap();
    let error = build_pairs(&options(folder.path()), &()).unwrap_err();
    assert!(error.to_string().contains("damaged or truncated"), "{error}");
    let folder = files("a\n".to_string() + &"b".repeat((1 << 20) + 1), "a\nb\n");
    let error = build_pairs(&options(folder.path()), &()).unwrap_err();
    assert!(error.to_string().ends_with("train.de, line 2: this line has more than 1 MiB"), "{error}");
}

#[test]
fn what_is_missing_or_contradicts_is_refused() {
    let folder = files("a\n", "a\n");
    let refused = |build: PairBuild| {
        let error = build_pairs(&build, &()).unwrap_err();
        assert!(!folder.path().join("corpus").exists());
        (error.exit_code(), error.to_string())
    };
    let ours = || options(folder.path());
    let missing = refused(PairBuild { source: "fr".into(), ..ours() });
    assert!(missing.0 == 66 && missing.1.contains("train.fr is missing"), "{missing:?}");
    let missing = refused(PairBuild { test: vec![folder.path().join("test")], ..ours() });
    assert!(missing.0 == 66 && missing.1.contains("test.de is missing"), "{missing:?}");
    let given = |tokenizer| PairBuild { tokenizer, ..ours() };
    let filter = |max_length, max_ratio| PairBuild { filter: PairFilter { max_length, max_ratio }, ..ours() };
    for (build, words) in [
        (PairBuild { target: "de".into(), ..ours() }, "two names"),
        (PairBuild { train: vec![], ..ours() }, "no input"),
        (PairBuild { train: vec![folder.path().join("train.de")], ..ours() }, "train.de is one side"),
        (PairBuild { train: vec![folder.path().join("train.en")], ..ours() }, "both are read"),
        (PairBuild { train: vec!["-".into()], ..ours() }, "stdin"),
        (PairBuild { valid_every: Some(1), ..ours() }, "--valid-every"),
        (PairBuild { valid_every: Some(2), valid: vec!["x".into()], ..ours() }, "cannot be combined"),
        (filter(Some(0), None), "--max-length"),
        (filter(None, Some(0.9)), "--max-ratio"),
        (filter(None, Some(f64::NAN)), "--max-ratio"),
        (given(TokenizerChoice::Preset), "needs a tokenizer"),
        (given(TokenizerChoice::Given(Tokenizer::bytes())), "end-of-sentence token"),
        (given(TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Byte))), "end-of-sentence token"),
    ] {
        let (code, message) = refused(build);
        assert!(code == 64 && message.contains(words), "{message}");
    }
    let (code, message) = refused(PairBuild { train: vec![folder.path().join("none")], ..ours() });
    assert!(code == 66 && message.contains("none.de"), "{message}");
    // The files would be read one after the other.
    let running = BuildOptions { tokenizer: words(), ..BuildOptions::new(Preset::Pairs, vec![], "x".into()) };
    assert_eq!(build(&running, &()).unwrap_err().exit_code(), 64);
    let nothing = files("\n", "a\n");
    let error = build_pairs(&options(nothing.path()), &()).unwrap_err();
    assert!(error.to_string().contains("the train split holds no pair: 1 pair read, none kept"), "{error}");
    let full = files("a\n", "a\n");
    fs::create_dir(full.path().join("corpus")).unwrap();
    fs::write(full.path().join("corpus/mine"), "x").unwrap();
    assert_eq!(build_pairs(&options(full.path()), &()).unwrap_err().exit_code(), 73);
}
