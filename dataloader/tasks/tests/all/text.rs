//! Text classification and regression: the published files, the layouts of the releases, files of one's own.

use crate::scratch;

use scratch::{ALL, DEV, config, counts, folder, rows, words, xlnet};
use segue_skip::shared_data;
use segue_tasks::{Kind, Target, TaskConfig, TaskSplits};

const TOKENS: &str = "a b c d e f g";

/// Row X22.
#[test]
fn ag_news_has_the_known_rows_and_labels() {
    let (Some(news), Some(tokenizer)) = (shared_data("agnews"), xlnet()) else { return };
    let data = scratch::open(&config("agnews", &news), &tokenizer, ALL).unwrap();
    assert_eq!(data.labels, ["World", "Sports", "Business", "Sci/Tech"]);
    let train = data.train.as_ref().unwrap();
    // Counted with another program; there is no train.tsv, so that dev.tsv is learnt from and test.tsv scored.
    let labels: Vec<usize> = counts(&data, train).into_values().collect();
    assert_eq!((train.examples.len(), labels), (10_001, vec![2496, 2538, 2458, 2509]));
    assert_eq!(data.dev[0].examples.len(), 7600);
    assert!(counts(&data, &data.dev[0]).into_values().all(|count| count == 1900));
    assert!(train.skipped.notes.iter().any(|note| note.contains("training on dev.tsv")));
    assert_eq!(data.dev[0].fingerprint, data.test[0].fingerprint);
}

/// Row X22.
#[test]
fn labelled_sentences_of_any_make_are_read() {
    let (Some(sentences), Some(tokenizer)) = (shared_data("sentiment_sentences/imdb_labelled.txt"), xlnet())
    else {
        return;
    };
    let folder = folder(&[("train.txt", &std::fs::read(sentences).unwrap())]);
    let splits = TaskSplits { train: true, dev: false, test: false };
    let data = scratch::open(&config("text", folder.path()), &tokenizer, splits).unwrap();
    let train = data.train.as_ref().unwrap();
    assert_eq!((data.kind, &data.labels[..]), (Kind::Classification, &["0".to_string(), "1".into()][..]));
    assert_eq!(counts(&data, train).into_values().collect::<Vec<_>>(), [500, 500]);
}

/// Row X22.
#[test]
fn releases_with_classes_from_one_are_read() {
    let csv = b"\"3\",\"a b\",\"say \"\"c\"\" d\\ne\"\n\"4\",\"a\",\"b\"\n\"3\",\"f\",\"g\"\n";
    let folder = folder(&[("train.csv", csv), ("test.csv", csv)]);
    let tokenizer = words(TOKENS);
    let id = |word: &str| tokenizer.token_id(word).unwrap();
    for (name, class) in [("dbpedia", 2), ("amazon5", 2), ("agnews", 2)] {
        let data = scratch::open(&config(name, folder.path()), &tokenizer, ALL).unwrap();
        let train = data.train.as_ref().unwrap();
        assert_eq!(train.examples[0].target, Target::Class(class), "{name}");
        let ids = &train.examples[0].sequences[0].ids;
        // Title and text are one; `\n` stands for a line end, in AG News `\` does.
        let last = if name == "agnews" { "<unk>" } else { "e" };
        assert_eq!((ids[0], ids[1], ids.len()), (id("a"), id("b"), 8), "{name}");
        assert_eq!(ids[4..6], [id("d"), id(last)], "{name}");
        assert_eq!(rows(&data.dev[0])[1].index, "1");
        // What is read otherwise than it stands is told.
        let notes = &train.skipped.notes;
        let wanted =
            if name == "agnews" { "`\\` is read as ` ` in 1 text" } else { "`\\n` is read as ` ` in 1 text" };
        assert!(notes.iter().any(|note| note == wanted), "{name}: {notes:?}");
    }
    let error = scratch::open(&config("yelp2", folder.path()), &tokenizer, ALL).unwrap_err().to_string();
    assert!(error.contains("train.csv, line 1: unknown label `3`, expected one of 1, 2"), "{error}");
}

/// Row X22.
#[test]
fn imdb_is_read_from_folders_and_tables() {
    let tokenizer = words(TOKENS);
    let id = |word: &str| tokenizer.token_id(word).unwrap();
    let folders = folder(&[
        ("train/neg/0_3.txt", b"a<br /><br />b"),
        ("train/pos/1_9.txt", b"c"),
        ("train/unsup/2_0.txt", b"d"),
        ("test/neg/0_2.txt", b"e"),
        ("test/pos/0_10.txt", b"f\r\n"),
    ]);
    let data = scratch::open(&config("imdb", folders.path()), &tokenizer, ALL).unwrap();
    let train = data.train.as_ref().unwrap();
    assert_eq!(train.examples[0].sequences[0].ids, [id("a"), id("b"), id("<sep>"), id("<cls>")]);
    let told: Vec<_> = rows(&data.dev[0]).iter().map(|row| (row.index.as_str(), row.gold.clone())).collect();
    assert_eq!(told, [("neg/0_2", Target::Class(0)), ("pos/0_10", Target::Class(1))]);

    let table = b"review,sentiment\n\"a, b<br />c\",positive\nd,negative\n";
    let tables = folder(&[("train.csv", table), ("test.csv", table)]);
    let data = scratch::open(&config("imdb", tables.path()), &tokenizer, ALL).unwrap();
    assert_eq!(data.train.unwrap().examples[0].target, Target::Class(1));
    let empty = folder(&[("train/neg/0_3.txt", b" "), ("train/pos/0_3.txt", b"a")]);
    let error = scratch::open(&config("imdb", empty.path()), &tokenizer, ALL).unwrap_err().to_string();
    assert!(error.contains("train/neg/0_3.txt, line 1: its text is empty"), "{error}");
}

/// Row X22.
#[test]
fn json_lines_with_two_texts_and_numbers_to_learn() {
    let lines = b"{\"q\": \"a\", \"p\": \"b\", \"y\": 1.5, \"id\": \"x\"}\n{\"q\": \"c\", \"p\": \"d\", \"y\": -2, \"id\": \"z\"}\n";
    let folder = folder(&[
        ("train.jsonl", lines),
        ("valid.jsonl", lines),
        ("test.jsonl", b"{\"q\": \"a\", \"p\": \"b\"}"),
    ]);
    let tokenizer = words(TOKENS);
    let mut config = config("text-regression", folder.path());
    config.change(|task: &mut TaskConfig| {
        (task.text, task.second_text, task.label) = ("q".into(), "p".into(), "y".into());
    });
    let data = scratch::open(&config, &tokenizer, ALL).unwrap();
    assert_eq!((data.kind, data.labels.len()), (Kind::Regression, 0));
    let id = |word: &str| tokenizer.token_id(word).unwrap();
    let dev = &data.dev[0];
    assert_eq!((rows(dev)[1].index.as_str(), &rows(dev)[1].gold), ("z", &Target::Number(-2.0)));
    assert_eq!(dev.examples[1].sequences[0].ids, [id("c"), id("<sep>"), id("d"), id("<sep>"), id("<cls>")]);
    assert_eq!(rows(&data.test[0])[0].gold, Target::Unknown);
    config.change(|task: &mut TaskConfig| {
        (task.text, task.second_text, task.label) = ("p".into(), String::new(), "q".into());
    });
    let error = scratch::open(&config, &tokenizer, ALL).unwrap_err().to_string();
    assert!(error.contains("train.jsonl, line 1: the label `a` is not a number"), "{error}");
}

#[test]
fn labels_of_a_file_of_ones_own_come_from_training_or_from_the_configuration() {
    let folder = folder(&[("train.tsv", b"a b\tx\nc d\ty\n"), ("dev.tsv", b"a a\tx\na b\tz\n")]);
    let tokenizer = words(TOKENS);
    let error = scratch::open(&config("text", folder.path()), &tokenizer, ALL).unwrap_err().to_string();
    assert!(error.contains("dev.tsv, line 2: unknown label `z`, expected one of x, y"), "{error}");
    let mut named = config("text", folder.path());
    named.change(|task: &mut TaskConfig| task.labels = ["z", "y", "x"].map(String::from).to_vec());
    let data = scratch::open(&named, &tokenizer, DEV).unwrap();
    assert_eq!(rows(&data.dev[0])[1].gold, Target::Class(0));
    std::fs::remove_file(folder.path().join("train.tsv")).unwrap();
    let error = scratch::open(&config("text", folder.path()), &tokenizer, DEV).unwrap_err();
    assert!(error.hint().unwrap().contains("list them in task.labels"), "{error}");
}

/// A first line of names that nobody knows is no example, and its label no class: the columns are to be named.
#[test]
fn a_header_of_unknown_names_is_refused() {
    let rows = "a b,good\nc d,bad\ne f,good\ng a,bad\n";
    let open = |text: String, keys: &[&str]| {
        let folder = folder(&[("train.csv", text.as_bytes()), ("dev.csv", text.as_bytes())]);
        let mut config = config("text", folder.path());
        config.change(|task: &mut TaskConfig| {
            keys.iter().for_each(|key| match key.split_once('=') {
                Some(("label", name)) => task.label = name.into(),
                _ => task.labels = key.split(',').map(String::from).collect(),
            });
        });
        scratch::open(&config, &words(TOKENS), TaskSplits { test: false, ..ALL })
    };
    let named = format!("comment,verdict\n{rows}");
    let error = open(named.clone(), &[]).unwrap_err();
    let hint = error.hint().unwrap_or_default();
    assert!(
        error.to_string().contains("`verdict`") && hint.contains("task.label=verdict"),
        "{error}: {hint}"
    );
    // What the hint says is followed.
    let data = open(named.clone(), &["label=verdict"]).unwrap();
    assert_eq!((data.labels.len(), data.train.unwrap().examples.len()), (2, 4));
    let data = open(named, &["good,bad,verdict"]).unwrap();
    assert_eq!((data.labels.len(), data.train.unwrap().examples.len()), (3, 5));
    // A class of one example is one, where it is not on the first line or another is as rare.
    assert_eq!(open(format!("{rows}a,rare\n"), &[]).unwrap().labels.len(), 3);
    assert_eq!(open(format!("a,rare\n{rows}b,other\n"), &[]).unwrap().labels.len(), 4);
    assert_eq!(open(rows.into(), &[]).unwrap().labels.len(), 2);
    // A number names no column.
    assert_eq!(
        open(format!("a,5\n{}", rows.replace("good", "1").replace("bad", "2")), &[]).unwrap().labels.len(),
        3
    );
}
