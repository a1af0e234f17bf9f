//! Documents that are ranked: TREC's files, and what is wrong with them.

use crate::scratch;

use scratch::{ALL, config, folder, words};
use segue_data_error::DataError;
use segue_tasks::{Kind, Rankings, Records, Split, Target, TaskConfig, TaskData};

const TOKENS: &str = "a b c d e f";
const QUERIES: &str = "id\ttext\n1\ta b\n2\tc\n3\tf\n";
const DOCUMENTS: &str = "{\"docno\": \"x\", \"contents\": \"a b c\"}\n{\"docno\": \"y\", \"contents\": \"d\"}\n\
                         {\"docno\": \"z\", \"contents\": \"e f\"}\n";
const QRELS: &str = "1 0 x 2\n1 0 y 1\n1 0 z -2\n2 0 x 0\n2 0 elsewhere 4\n3 0 x 1\n";
const RUN: &str = "2 Q0 z 1 3.5 other\n2 Q0 x 2 1e-3 other\n1 Q0 y 1 2 other\n";

type Files<'a> = Vec<(&'a str, &'a str)>;

fn files<'a>() -> Files<'a> {
    vec![
        ("queries.tsv", QUERIES),
        ("documents.jsonl", DOCUMENTS),
        ("train.qrels", "1 0 x 2\n1 0 y 1\n1 0 z -2\n2 0 x 0\n"),
        ("dev.qrels", QRELS),
        ("dev.run", RUN),
        ("test.run", RUN),
    ]
}

fn open(files: &Files<'_>, set: &str) -> Result<TaskData, DataError> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    let folder = folder(&files);
    let mut config = config("ranking", folder.path());
    config.change(|task: &mut TaskConfig| task.skip_bad = set == "skip_bad");
    config.change(|task: &mut TaskConfig| task.negatives = if set == "one" { 1 } else { 8 });
    scratch::open(&config, &words(TOKENS), ALL)
}

fn rankings(split: &Split) -> &Rankings {
    match &split.records {
        Records::Rankings(rankings) => rankings,
        other => panic!("{other:?}"),
    }
}

/// Row X29.
#[test]
fn files_become_pairs_and_candidates() {
    let data = open(&files(), "").unwrap();
    let tokenizer = words(TOKENS);
    let ids = |text: &str| {
        let mut ids = Vec::new();
        tokenizer.encode(text, &mut ids);
        ids
    };
    assert_eq!((data.kind, data.labels.len()), (Kind::Ranking, 0));
    // Query 1 has x over y, x over z and y over z; the one candidate of query 2 is over nothing.
    let train = data.train.as_ref().unwrap();
    let mut pairs: Vec<_> =
        train.examples.iter().map(|e| [&e.sequences[0].ids, &e.sequences[1].ids]).collect();
    let [x, y, z] = ["a b a b c", "a b d", "a b e f"].map(ids);
    pairs.sort();
    let mut expected = vec![[&x, &y], [&x, &z], [&y, &z]];
    expected.sort();
    assert_eq!(pairs, expected);
    assert!(train.examples.iter().all(|example| example.target == Target::Option(0)));
    assert_eq!(train.skipped.notes.len(), 1);
    assert_eq!(open(&files(), "one").unwrap().train.unwrap().examples.len(), 2);

    let dev = &data.dev[0];
    let Rankings { queries, highest_grade } = rankings(dev);
    assert_eq!((queries.len(), *highest_grade, dev.examples.len()), (2, 4, 3));
    let told = |query: usize| -> Vec<_> {
        queries[query].candidates.iter().map(|c| (c.document.as_str(), c.example, c.grade)).collect()
    };
    assert_eq!((queries[0].id.as_str(), told(0)), ("2", vec![("z", 0, 0), ("x", 1, 0)]));
    assert_eq!((queries[1].id.as_str(), told(1)), ("1", vec![("y", 2, 1)]));
    assert_eq!((&queries[0].judged[..], &queries[1].judged[..]), (&[4, 0][..], &[2, 1, 0][..]));
    assert_eq!(dev.examples[2].sequences[0].ids, y);
    assert_eq!(dev.examples[2].sequences[0].segments, [0, 0, 1]);
    // Query 3 was judged, and nothing was found for it.
    assert!(dev.skipped.notes[0].starts_with("1 judged queries"), "{:?}", dev.skipped);
    assert!(rankings(&data.test[0]).queries.iter().all(|query| query.judged.is_empty()));
}

/// Row X29.
#[test]
fn bad_files_are_told_by_name_and_line() {
    for (file, text, place) in [
        ("queries.tsv", "1\ta\n2\tc\n1\tb\n3\tf\n", "queries.tsv, line 3: the name `1` occurs twice"),
        ("queries.tsv", "1\ta\n2\t \n3\tf\n", "queries.tsv, line 2: its text is empty"),
        (
            "documents.jsonl",
            "{\"id\": \"x\", \"words\": \"a\"}\n",
            "documents.jsonl, line 1: it does not have",
        ),
        ("train.qrels", "1 0 x 2\n1 0 nowhere 1\n", "train.qrels, line 2: the document `nowhere` is not in"),
        ("train.qrels", "1 0 x 1\n1 0 y 1\n", "train.qrels, line 1: it has nothing to learn"),
        ("dev.run", "1 Q0 x 1 2 t\n9 Q0 x 1 2 t\n", "dev.run, line 2: the query `9` is not in"),
        ("dev.run", "1 Q0 x first 2 t\n", "dev.run, line 1: the rank `first`"),
        ("dev.qrels", "1 0 x\n", "dev.qrels, line 1: it has 3 fields"),
        ("dev.qrels", "", "dev.qrels, line 1: no line"),
    ] {
        let mut files = files();
        files.retain(|(name, _)| *name != file);
        files.push((file, text));
        let error = open(&files, "").unwrap_err();
        assert!(error.to_string().contains(place), "{error}");
        assert_eq!(error.exit_code(), 65, "{error}");
    }
    for missing in ["queries.tsv", "documents.jsonl", "train.qrels", "dev.qrels"] {
        let mut files = files();
        files.retain(|(name, _)| *name != missing);
        assert_eq!(open(&files, "").unwrap_err().exit_code(), 66, "{missing}");
    }
}

/// Row X29.
#[test]
fn bad_lines_are_left_out_and_counted() {
    let mut files = files();
    files[0].1 = "1\ta b\n1\tc\n2\tc\n3\t \n";
    files[2].1 = "1 0 x 2\n1 0 y\n1 0 y 1\n8 0 y 1\n3 0 x 1\n";
    let data = open(&files, "skip_bad").unwrap();
    let train = data.train.unwrap();
    // The second 1, the line of three fields, the unknown 8, and the empty text of 3.
    assert_eq!((train.skipped.count, train.examples.len()), (4, 1), "{:?}", train.skipped);
    assert_eq!(data.dev[0].skipped.count, 0);
}

/// Row X29.
#[test]
fn a_judged_query_of_which_nothing_can_be_read_counts_as_not_answered() {
    let mut files = files();
    files[3].1 = "1 0 x 2\n1 0 y 1\n2 0 x 1\n3 0 x 1\n";
    files[4].1 = "2 Q0 nowhere 1 3.5 other\n1 Q0 y 1 2 other\n";
    let data = open(&files, "skip_bad").unwrap();
    let dev = &data.dev[0];
    let told: Vec<_> =
        rankings(dev).queries.iter().map(|query| (query.id.as_str(), query.candidates.len())).collect();
    assert_eq!((told, dev.examples.len()), (vec![("2", 0), ("1", 1)], 1));
    assert!(dev.skipped.notes.iter().any(|note| note.contains("scored with 0")), "{:?}", dev.skipped);
    assert!(dev.skipped.notes.iter().any(|note| note.starts_with("1 judged queries have no candidates")));
}

/// Row X29.
#[test]
fn without_a_run_what_was_judged_is_ranked() {
    let mut files = files();
    files.retain(|(name, _)| *name != "dev.run");
    files[3].1 = "1 0 x 2\n1 0 y 1\n2 0 z 0\n";
    let data = open(&files, "").unwrap();
    let counts: Vec<usize> =
        rankings(&data.dev[0]).queries.iter().map(|query| query.candidates.len()).collect();
    assert_eq!(counts, [2, 1]);
}
