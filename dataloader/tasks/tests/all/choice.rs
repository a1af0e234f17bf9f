//! Multiple choice: the published files, the layouts on tiny ones.

use crate::scratch;

use std::collections::BTreeMap;
use std::fs;

use scratch::{ALL, DEV, config, counts, folder, rows, words, xlnet};
use segue_skip::shared_data;
use segue_tasks::{Answer, Kind, Target, TaskConfig, write_predictions};
use serde_json::Value;

const TOKENS: &str = "a b c d e f g ? .";

/// Row X24.
#[test]
fn dream_has_the_known_questions() {
    let (Some(dream), Some(tokenizer)) = (shared_data("dream"), xlnet()) else { return };
    let data = scratch::open(&config("dream", &dream), &tokenizer, ALL).unwrap();
    // Counted with another program.
    for (split, questions) in
        [(data.train.as_ref().unwrap(), 6116), (&data.dev[0], 2040), (&data.test[0], 2041)]
    {
        assert_eq!((data.kind, split.examples.len()), (Kind::Choice, questions));
        assert!(split.examples.iter().all(|e| e.sequences.len() == 3 && e.width() <= 128));
        assert_eq!(counts(&data, split).len(), 3);
    }
}

/// Row X24.
#[test]
fn race_has_the_questions_and_answers_of_its_files() {
    let (Some(race), Some(tokenizer)) = (shared_data("race"), xlnet()) else { return };
    let data = scratch::open(&config("race", &race), &tokenizer, DEV).unwrap();
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for entry in fs::read_dir(race.join("dev")).unwrap() {
        let file: Value = serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        for answer in file["answers"].as_array().unwrap() {
            let place = "ABCD".find(answer.as_str().unwrap()).unwrap();
            *answers.entry(place.to_string()).or_default() += 1;
        }
    }
    assert_eq!(counts(&data, &data.dev[0]), answers);
    assert_eq!(data.dev[0].examples.len(), 534);
    assert!(data.dev[0].examples.iter().all(|example| example.sequences.len() == 4));
}

const ARTICLE: &str = r#"{"answers": ["B", "A"], "options": [["b", "c"], ["d", "e"]],
    "questions": ["f _ .", "g ?"], "article": "a a a", "id": "ID"}"#;

/// Row X24.
#[test]
fn options_are_sequences_and_levels_are_told_apart() {
    let folder = folder(&[
        ("train/high/1.txt", ARTICLE.as_bytes()),
        ("train/middle/2.txt", ARTICLE.as_bytes()),
        ("dev/7.txt", ARTICLE.replace("ID", "middle7.txt").as_bytes()),
    ]);
    let tokenizer = words(TOKENS);
    let ids = |text: &str| {
        let mut ids = Vec::new();
        tokenizer.encode(text, &mut ids);
        ids
    };
    let (sep, cls) = (tokenizer.token_id("<sep>").unwrap(), tokenizer.token_id("<cls>").unwrap());
    let data = scratch::open(&config("race", folder.path()), &tokenizer, ALL).unwrap();
    let train = data.train.as_ref().unwrap();
    let option = |text: &str| [ids("a a a"), vec![sep], ids(text), vec![sep, cls]].concat();
    assert_eq!(train.examples[0].sequences[1].ids, option("f c ."));
    assert_eq!(train.examples[1].sequences[0].ids, option("g ? d"));
    assert_eq!(train.examples[0].sequences[1].segments, [0, 0, 0, 0, 1, 1, 1, 1, 2]);
    let told: Vec<_> =
        rows(train).iter().map(|row| (row.index.as_str(), row.group.as_deref().unwrap())).collect();
    let levels =
        [("high/1-0", "high"), ("high/1-1", "high"), ("middle/2-0", "middle"), ("middle/2-1", "middle")];
    assert_eq!(told, levels);
    assert_eq!((&rows(train)[0].gold, data.test.len()), (&Target::Option(1), 0));
    let middle = scratch::open(&config("race-middle", folder.path()), &tokenizer, ALL).unwrap();
    assert_eq!((middle.train.unwrap().examples.len(), middle.dev[0].examples.len()), (2, 2));
    let path = folder.path().join("answers.tsv");
    write_predictions(&data.dev[0], &data.labels, &[Answer::Option(1), Answer::Option(0)], &path).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "index\tprediction\nmiddle/7-0\tB\nmiddle/7-1\tA\n");
    let high = scratch::open(&config("race-high", folder.path()), &tokenizer, DEV);
    assert_eq!(high.unwrap_err().exit_code(), 65);
}

/// Row X24.
#[test]
fn questions_of_ones_own_are_json_lines() {
    let lines = "{\"context\": \"a\", \"question\": \"b ?\", \"options\": [\"c\", \"d\", \"e\"], \"answer\": 2}\n\
                 {\"context\": \"a\", \"options\": [\"c\", \"d\"], \"answer\": \"d\", \"id\": \"x\", \"group\": \"hard\"}\n";
    let folder = folder(&[("train.jsonl", lines.as_bytes()), ("dev.jsonl", lines.as_bytes())]);
    let tokenizer = words(TOKENS);
    let data = scratch::open(&config("choice", folder.path()), &tokenizer, ALL).unwrap();
    let dev = &data.dev[0];
    let sizes: Vec<usize> = dev.examples.iter().map(|example| example.sequences.len()).collect();
    assert_eq!(sizes, [3, 2]);
    let told: Vec<_> = rows(dev).iter().map(|row| (row.index.as_str(), row.gold.clone())).collect();
    assert_eq!(told, [("0", Target::Option(2)), ("x", Target::Option(1))]);
    assert_eq!(rows(dev)[1].group.as_deref(), Some("hard"));
}

/// Row X24.
#[test]
fn bad_questions_are_told_and_can_be_left_out() {
    let tokenizer = words(TOKENS);
    let bad = ARTICLE.replace("a a a", " ");
    let tiny = folder(&[("dev/high/1.txt", bad.as_bytes()), ("dev/high/2.txt", ARTICLE.as_bytes())]);
    let mut config = config("race", tiny.path());
    let error = scratch::open(&config, &tokenizer, DEV).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("dev/high/1.txt, line 1, question high/1-0: the passage: its text is empty"),
        "{error}"
    );
    assert_eq!(error.exit_code(), 65);
    config.change(|task: &mut TaskConfig| task.skip_bad = true);
    // What is scored is answered all the same.
    let data = scratch::open(&config, &tokenizer, DEV).unwrap();
    let dev = &data.dev[0];
    assert_eq!((dev.examples.len(), dev.skipped.count, dev.skipped.notes.len()), (4, 0, 1));
    let error = scratch::open(&config, &tokenizer, ALL).unwrap_err();
    assert_eq!(error.exit_code(), 66);
}
