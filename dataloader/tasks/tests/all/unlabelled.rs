//! Splits and records without a label, and marks for none.

use crate::scratch;

use scratch::{ALL, DEV, config, folder, rows, words};
use segue_configs::Config;
use segue_data_error::DataError;
use segue_tasks::{Records, Split, Target, TaskConfig, TaskData};

const TOKENS: &str = "a b c d e f g";

type Files<'a> = &'a [(&'a str, &'a str)];

fn open_with(name: &str, files: Files<'_>, set: impl Fn(&mut Config)) -> Result<TaskData, DataError> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    let folder = folder(&files);
    let mut config = config(name, folder.path());
    set(&mut config);
    scratch::open(&config, &words(TOKENS), if config.task.name.starts_with("adv-") { DEV } else { ALL })
}

fn open(name: &str, files: Files<'_>) -> TaskData {
    open_with(name, files, |_| {}).unwrap()
}

fn is_untold(split: &Split) -> bool {
    let untold = match &split.records {
        Records::Rows(rows) => rows.iter().all(|row| row.gold == Target::Unknown),
        Records::Sentences(sentences) => sentences.iter().all(|sentence| sentence.gold.is_empty()),
        Records::Questions(all) => all.questions.iter().all(|question| question.impossible.is_none()),
        Records::Rankings(all) => all.queries.iter().all(|query| query.judged.is_empty()),
    };
    untold && !split.is_told() && !split.examples.is_empty()
}

const CSV: &str = "text,label\na,0\nb,1\n";
const NUMBERS: &str = "text,label\na,0.5\nb,-1.0\nc,3\n";
const PAIRS: &str = "{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 0}\n\
                     {\"sentence1\": \"a\", \"sentence2\": \"c\", \"label\": 1}\n";
const RTE: &str = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tb\ta\tnot_entailment\n";
const STSB: &str = "index\tsentence1\tsentence2\tscore\n0\ta\tb\t1.5\n1\tb\ta\t4\n";
const CHOICE: &str = "{\"context\": \"a\", \"options\": [\"b\", \"c\"], \"answer\": 1}\n";
const TAGS: &str = "a O\nb B-X\n\nc O\n";
const SQUAD: &str = r#"{"data": [{"paragraphs": [{"context": "a b", "qas": [
    {"id": 1, "question": "c", "answers": [{"text": "b", "answer_start": 2}]}]}]}]}"#;

#[test]
fn splits_of_marks_alone_are_answered_and_not_scored() {
    for (task, extension, labelled, marked) in [
        ("text", "csv", CSV, "text,label\nc,-1\nd,-1\n"),
        ("text", "csv", CSV, "text,label\nc,-1.0\n"),
        ("text", "csv", CSV, "text,label\nc,\n"),
        ("text", "tsv", "a\t0\nb\t1\n", "c\t-1\nd\t-1\n"),
        ("text", "jsonl", PAIRS, "{\"sentence1\": \"a\", \"sentence2\": \"d\", \"label\": -1, \"idx\": 7}\n"),
        ("text", "jsonl", PAIRS, "{\"sentence1\": \"a\", \"sentence2\": \"d\", \"label\": null}\n"),
        // Numbers that may be labels elsewhere.
        ("text", "csv", "text,label\na,-1\nb,1\n", "text,label\nc,-1\nd,-1\n"),
        ("text-regression", "csv", NUMBERS, "text,label\nc,-1\nd,-1.0\n"),
        ("rte", "tsv", RTE, "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t-1\n"),
        ("stsb", "tsv", STSB, "index\tsentence1\tsentence2\tscore\n0\ta\tb\t-1\n"),
        ("choice", "jsonl", CHOICE, "{\"context\": \"a\", \"options\": [\"b\", \"c\"], \"answer\": -1}\n"),
        ("conll", "txt", TAGS, "a -100\nb -100\n\nc -100\n"),
        ("conll", "txt", TAGS, "a -1\nb -1\n"),
    ] {
        let [train, dev, test] = ["train", "dev", "test"].map(|split| format!("{split}.{extension}"));
        let data = open(task, &[(&train, labelled), (&dev, labelled), (&test, marked)]);
        assert!(data.dev[0].is_told() && is_untold(&data.test[0]), "{task}: {marked}");
        let notes = &data.test[0].skipped.notes;
        assert!(notes[0].starts_with("without a"), "{task}: {notes:?}");
        assert_eq!((data.test[0].skipped.count, data.test.len()), (0, 1), "{task}: {marked}");
        // Nothing can be scored on a development file of the kind.
        let data = open(task, &[(&train, labelled), (&dev, marked), (&test, labelled)]);
        let names: Vec<&str> = data.test.iter().map(|split| split.name.as_str()).collect();
        assert_eq!((data.dev.len(), names), (0, vec!["test", "dev"]), "{task}: {marked}");
        assert!(is_untold(&data.test[1]), "{task}: {marked}");
        // The same twice is answered once, and that is said.
        let data = open(task, &[(&train, labelled), (&dev, marked), (&test, marked)]);
        let said = data.test[0].skipped.notes.iter().any(|note| note.contains("answered once"));
        assert!(data.dev.is_empty() && data.test.len() == 1 && said, "{task}: {marked}");
    }
}

#[test]
fn an_unknown_label_of_a_whole_test_split_marks_that_there_is_none() {
    let race = r#"{"answers": ["A"], "options": [["b", "c"]], "questions": ["d"], "article": "a"}"#;
    let dream = r#"[[["a"], [{"question": "b", "choice": ["c", "d"], "answer": "c"}], "1"]]"#;
    for (task, [train, dev, test], labelled, label) in [
        ("text", ["train.csv", "dev.csv", "test.csv"], "text,label\na,0\nb,1\n", &["0", "1"][..]),
        ("agnews", ["train.csv", "dev.csv", "test.csv"], "1,a,b\n2,b,a\n", &["1", "2"]),
        (
            "text-regression",
            ["train.csv", "dev.csv", "test.csv"],
            "text,label\na,0.5\nb,1.5\n",
            &["0.5", "1.5"],
        ),
        ("rte", ["train.tsv", "dev.tsv", "test.tsv"], RTE, &["\tentailment", "\tnot_entailment"]),
        ("stsb", ["train.tsv", "dev.tsv", "test.tsv"], STSB, &["1.5", "4"]),
        ("choice", ["train.jsonl", "dev.jsonl", "test.jsonl"], CHOICE, &["1"]),
        ("race", ["train/1.txt", "dev/1.txt", "test/1.txt"], race, &["A"]),
        ("dream", ["train.json", "dev.json", "test.json"], dream, &[r#": "c""#]),
        ("conll", ["train.txt", "dev.txt", "test.txt"], TAGS, &["O", "B-X"]),
    ] {
        for mark in ["hidden", "?", "nan", "none"] {
            let mark = match label[0] {
                label if label.starts_with('\t') => format!("\t{mark}"),
                label if label.starts_with(':') => format!(": \"{mark}\""),
                "1" if task == "choice" => format!("\"{mark}\""),
                _ => mark.to_string(),
            };
            let marked = label.iter().fold(labelled.to_string(), |text, label| text.replace(label, &mark));
            let data = open(task, &[(train, labelled), (dev, labelled), (test, &marked)]);
            assert!(data.dev[0].is_told() && is_untold(&data.test[0]), "{task}: {marked}");
            let notes = &data.test[0].skipped.notes;
            let said = notes.iter().any(|note| note.contains("which is unknown: it is taken for a mark"));
            // GLUE's columns without any label of the task's are none of labels.
            assert_eq!(said, !["rte", "stsb"].contains(&task), "{task}: {notes:?}");
            // What is to be learnt from or scored on has labels.
            let error = open_with(task, &[(train, labelled), (dev, &marked), (test, &marked)], |_| {});
            assert!(error.unwrap_err().to_string().contains("dev"), "{task}: {marked}");
        }
    }
}

#[test]
fn unknown_labels_beside_others_mark_nothing() {
    let files = |test| [("train.csv", CSV), ("dev.csv", CSV), ("test.csv", test)];
    for test in ["text,label\nc,?\nd,hidden\n", "text,label\nc,?\nd,0\n", "text,label\nc,?\nd,\n"] {
        let error = open_with("text", &files(test), |_| {}).unwrap_err().to_string();
        assert!(error.contains("test.csv, line 2: unknown label `?`"), "{error}");
    }
    // A test file that would serve for scores is none of them either.
    let data = open("text", &[("train.csv", CSV), ("test.csv", "text,label\nc,?\nd,?\n")]);
    assert!(data.dev.is_empty() && data.test.len() == 1 && is_untold(&data.test[0]));
}

#[test]
fn questions_on_paragraphs_without_an_answer_are_answered_and_not_scored() {
    let unanswered = SQUAD.replace(r#"[{"text": "b", "answer_start": 2}]"#, "ANSWERS");
    for answers in ["[]", r#"[{"text": "", "answer_start": -1}]"#, r#"{"text": [], "answer_start": []}"#] {
        let marked = unanswered.replace("ANSWERS", answers);
        let files = [("train-v2.0.json", SQUAD), ("dev-v2.0.json", SQUAD), ("test-v2.0.json", &marked)];
        let data = open("squad2", &files);
        assert!(data.dev[0].is_told() && is_untold(&data.test[0]), "{answers}");
        let data = open("squad2", &[files[0], ("dev-v2.0.json", &marked)]);
        assert!(data.dev.is_empty() && is_untold(&data.test[0]), "{answers}");
    }
}

#[test]
fn judgements_that_nobody_made_rank_documents_without_a_score() {
    let texts = "id\ttext\n1\ta b\n2\tc\n";
    let files = |test: &'static str| -> Vec<(&'static str, &'static str)> {
        let judged = "1 0 1 1\n1 0 2 0\n";
        let texts = [("queries.tsv", texts), ("documents.tsv", texts)];
        [&texts[..], &[("train.qrels", judged), ("dev.qrels", judged), ("test.qrels", test)]].concat()
    };
    let data = open("ranking", &files("1 0 1 -1\n1 0 2 -1\n"));
    assert!(data.dev[0].is_told() && is_untold(&data.test[0]));
    assert!(data.test[0].skipped.notes[0].contains("ranked and not scored"));
    // Spam is judged.
    assert!(!is_untold(&open("ranking", &files("1 0 1 -1\n1 0 2 -2\n")).test[0]));
}

#[test]
fn a_test_file_without_labels_does_not_serve_for_scores() {
    let data = open("text", &[("train.csv", CSV), ("test.csv", "text,label\nc,-1\nd,-1\n")]);
    assert!(data.dev.is_empty() && data.test.len() == 1 && is_untold(&data.test[0]));
    assert!(!data.test[0].skipped.notes.iter().any(|note| note.contains("scores are measured")));
}

#[test]
fn rows_without_a_label_beside_others_are_answered_and_counted() {
    let mixed = "text,label\na,0\nb,-1\nc,\nd,1\n";
    let files = [("train.csv", CSV), ("dev.csv", CSV), ("test.csv", mixed)];
    let test = &open("text", &files).test[0];
    let gold: Vec<&Target> = rows(test).iter().map(|row| &row.gold).collect();
    assert_eq!(gold, [&Target::Class(0), &Target::Unknown, &Target::Unknown, &Target::Class(1)]);
    assert_eq!(test.skipped.notes, ["without a label, answered and not scored: 2 of 4 rows (lines 3, 4)"]);
    // What is to be scored on has labels.
    let files = [files[0], ("dev.csv", mixed)];
    let error = open_with("text", &files, |_| {}).unwrap_err().to_string();
    assert!(error.contains("dev.csv, line 3: its label is `-1`, which marks what has no label"), "{error}");
    let dev =
        &open_with("text", &files, |config| config.change(|task: &mut TaskConfig| task.skip_bad = true))
            .unwrap()
            .dev[0];
    assert_eq!((rows(dev).len(), dev.skipped.count), (2, 2));
    // Of numbers, -1 is one.
    let data = open("text-regression", &[("train.csv", NUMBERS), ("dev.csv", NUMBERS)]);
    assert_eq!(rows(&data.dev[0])[1].gold, Target::Number(-1.0));
    let train = data.train.as_ref().unwrap();
    assert!(
        train.skipped.notes[0].starts_with("-1.0 is the only number below 0 (line 3) and is learnt: leave")
    );
    // Whoever marked with it what has no number sees that it is scored as one.
    let files = [("train.csv", NUMBERS), ("dev.csv", NUMBERS), ("test.csv", NUMBERS)];
    let data = open("text-regression", &files);
    for split in [&data.dev[0], &data.test[0]] {
        let notes = &split.skipped.notes;
        assert!(notes.len() == 1 && notes[0].contains("below 0 (line 3) and is scored: leave"), "{notes:?}");
    }
    let signed = NUMBERS.replace("a,0.5", "a,-0.5");
    let data = open("text-regression", &[files[0], ("dev.csv", &signed)]);
    assert!(data.dev[0].skipped.notes.is_empty());
    // No score of STS-B is below 0: there it is none.
    let marked = STSB.replace("1.5", "-1.0");
    let files = [("train.tsv", STSB), ("dev.tsv", STSB), ("test.tsv", &marked)];
    let gold: Vec<Target> = rows(&open("stsb", &files).test[0]).iter().map(|row| row.gold.clone()).collect();
    assert_eq!(gold, [Target::Unknown, Target::Number(4.0)]);
    let error = open_with("stsb", &[files[0], ("dev.tsv", &marked)], |_| {}).unwrap_err().to_string();
    assert!(error.contains("line 2: its label is `-1.0`, which marks what has no label"), "{error}");
}

#[test]
fn a_mark_beside_labels_is_learnt_as_no_class_of_its_own() {
    let train = "text,label\na,0\nb,1\nc,-1\nd,1\ne,-1\n";
    let files = [("train.csv", train), ("dev.csv", CSV)];
    // What it is only the owner knows, with bad lines left out or not.
    for skip_bad in [false, true] {
        let error = open_with("text", &files, |config| {
            config.change(|task: &mut TaskConfig| task.skip_bad = skip_bad)
        })
        .unwrap_err();
        let message = error.to_string();
        assert!(message.contains("train.csv, line 4") && message.contains("lines 4, 6"), "{message}");
        assert!(message.contains("usually marks what has no label") && error.exit_code() == 65, "{message}");
        assert!(error.hint().unwrap().contains("task.labels"), "{error}");
    }
    let two = |skip_bad: bool| {
        open_with("text", &files, |config| {
            config.change(|task: &mut TaskConfig| task.labels = vec!["0".into(), "1".into()]);
            config.change(|task: &mut TaskConfig| task.skip_bad = skip_bad);
        })
    };
    let error = two(false).unwrap_err();
    assert!(
        error.to_string().contains("line 4: its label is `-1`, which marks what has no label"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("task.skip_bad=true"), "{error}");
    let data = two(true).unwrap();
    let train = data.train.unwrap();
    assert_eq!((data.labels.len(), train.examples.len(), train.skipped.count), (2, 3, 2));
    let three = ["-1", "0", "1"].map(String::from).to_vec();
    let data = open_with("text", &files, |config| {
        config.change(|task: &mut TaskConfig| task.labels = three.clone())
    })
    .unwrap();
    assert_eq!((data.labels.len(), data.train.unwrap().examples.len()), (3, 5));
    for (tags, why) in
        [("a O\nb -1\n", "the label `-1` usually marks"), ("a -100\n", "every label is `-100`")]
    {
        let error = open_with("conll", &[("train.txt", tags), ("dev.txt", TAGS)], |_| {}).unwrap_err();
        assert!(error.to_string().contains(&format!("train.txt, line 1: {why}")), "{error}");
    }
    let error =
        open_with("choice", &[("train.jsonl", &CHOICE.replace('1', "-1")), ("dev.jsonl", CHOICE)], |_| {});
    assert!(error.unwrap_err().to_string().contains("question 0: it has no answer"));
}

#[test]
fn what_is_scored_loses_no_record_whose_text_alone_is_bad() {
    let skip = |config: &mut Config| config.change(|task: &mut TaskConfig| task.skip_bad = true);
    let bad =
        "index\tsentence1\tsentence2\tlabel\n0\t \tb\tentailment\n1\tb\ta\tnot_entailment\n2\ta\tb\tmaybe\n";
    let data = open_with("rte", &[("train.tsv", bad), ("dev.tsv", bad)], skip).unwrap();
    let train = data.train.unwrap();
    assert_eq!((train.examples.len(), train.skipped.count), (1, 2));
    let dev = &data.dev[0];
    let gold: Vec<&Target> = rows(dev).iter().map(|row| &row.gold).collect();
    // Nobody can say whether `maybe` is answered right: it is left out, and told.
    assert_eq!(gold, [&Target::Class(0), &Target::Class(1)]);
    assert_eq!((dev.skipped.count, dev.skipped.notes.len()), (1, 1));
    assert!(dev.skipped.notes[0].starts_with("1 record answered and scored"), "{:?}", dev.skipped.notes);

    let race = r#"{"answers": ["B", "C"], "options": [["b", "c"], ["d", "e"]], "questions": ["f _ .", "g"], "article": " "}"#;
    let good = race.replace("\"C\"", "\"A\"").replace("\" \"", "\"a\"");
    let data = open_with("race", &[("train/1.txt", &good), ("dev/1.txt", race)], skip).unwrap();
    let gold: Vec<&Target> = rows(&data.dev[0]).iter().map(|row| &row.gold).collect();
    assert_eq!((gold, data.dev[0].skipped.count), (vec![&Target::Option(1)], 1));
    let data =
        open_with("race", &[("train/1.txt", race), ("train/2.txt", &good), ("dev/1.txt", &good)], skip);
    let train = data.unwrap().train.unwrap();
    assert_eq!((train.examples.len(), train.skipped.count), (2, 2));
}

#[test]
fn names_that_are_whole_numbers_keep_their_digits() {
    let id = "12345678901234567890123";
    let text = format!(
        "{{\"text\": \"a\", \"label\": 0, \"id\": {id}}}\n{{\"text\": \"b\", \"label\": 1, \"id\": 2}}\n"
    );
    let data = open("text", &[("train.jsonl", &text), ("dev.jsonl", &text)]);
    assert_eq!(rows(&data.dev[0])[0].index, id);
    let choice = CHOICE.replace("\"answer\"", &format!("\"id\": {id}, \"answer\""));
    let data = open("choice", &[("train.jsonl", &choice), ("dev.jsonl", &choice)]);
    assert_eq!(rows(&data.dev[0])[0].index, id);
    let dream = format!(r#"[[["a"], [{{"question": "b", "choice": ["c", "d"], "answer": "c"}}], {id}]]"#);
    let data = open("dream", &[("train.json", &dream), ("dev.json", &dream)]);
    assert_eq!(rows(&data.dev[0])[0].index, format!("{id}-0"));
    let adversarial = format!(r#"{{"sst2": [{{"sentence": "a", "label": 0, "idx": {id}}}]}}"#);
    let data = open("adv-sst2", &[("dev.json", &adversarial)]);
    assert_eq!(rows(&data.dev[0])[0].index, id);
    let marked = open("adv-sst2", &[("dev.json", &adversarial.replace("\"label\": 0", "\"label\": -1"))]);
    assert!(marked.dev.is_empty() && is_untold(&marked.test[0]));
    let documents = format!("{{\"id\": {id}, \"text\": \"a b\"}}\n{{\"id\": 2, \"text\": \"c\"}}\n");
    let judged = format!("{id} 0 {id} 1\n{id} 0 2 0\n");
    let texts = [("queries.jsonl", documents.as_str()), ("documents.jsonl", &documents)];
    let data = open("ranking", &[&texts[..], &[("train.qrels", &judged), ("dev.qrels", &judged)]].concat());
    let Records::Rankings(rankings) = &data.dev[0].records else { panic!() };
    assert_eq!(
        (rankings.queries[0].id.as_str(), rankings.queries[0].candidates[0].document.as_str()),
        (id, id)
    );
}
