//! GLUE's tasks: counts and labels of the published files (told beforehand by counting their lines and cells with other
//! programs), every layout on tiny ones, rows that compete.

use crate::scratch;

use std::fs;

use scratch::{ALL, DEV, config, counts, folder, rows, words, xlnet};
use segue_skip::shared_data;
use segue_tasks::{Answer, Kind, Target, TaskConfig, TaskLoss, TaskSplits, write_predictions};

/// Row X27.
#[test]
fn the_published_files_have_the_known_rows_and_labels() {
    let (Some(glue), Some(tokenizer)) = (shared_data("glue"), xlnet()) else { return };
    type Counts = &'static [(&'static str, usize)];
    // Rows of train, dev and test; labels of train, or of dev where train is not there.
    let known: [(&str, [usize; 3], Counts); 6] = [
        ("cola", [8551, 1043, 1063], &[("0", 2528), ("1", 6023)]),
        ("mrpc", [3668, 408, 1725], &[("0", 1194), ("1", 2474)]),
        ("qnli", [0, 5463, 5463], &[("entailment", 2702), ("not_entailment", 2761)]),
        ("rte", [2490, 277, 3000], &[("entailment", 1249), ("not_entailment", 1241)]),
        ("wnli", [635, 71, 146], &[("0", 323), ("1", 312)]),
        ("sst2", [67349, 872, 0], &[("0", 29780), ("1", 37569)]),
    ];
    for (name, sizes, labels) in known {
        let splits = TaskSplits { train: sizes[0] > 0, ..ALL };
        let data = scratch::open(&config(name, &glue), &tokenizer, splits).unwrap();
        let of = |splits: &[&segue_tasks::Split]| splits.iter().map(|s| s.examples.len()).sum::<usize>();
        let train = data.train.as_ref();
        let found =
            [of(train.as_slice()), of(&[&data.dev[0]]), data.test.iter().map(|s| s.examples.len()).sum()];
        assert_eq!((data.kind, found), (Kind::Classification, sizes), "{name}");
        let counted = counts(&data, train.unwrap_or(&data.dev[0]));
        assert_eq!(counted.iter().map(|(l, n)| (l.as_str(), *n)).collect::<Vec<_>>(), labels, "{name}");
        for split in train.into_iter().chain(&data.dev).chain(&data.test) {
            assert!(split.examples.iter().all(|e| e.width() <= 128 && e.sequences[0].ids.ends_with(&[4, 3])));
            assert_eq!((split.skipped.count, split.fingerprint.len()), (0, 64));
        }
    }
}

/// Row X27.
#[test]
fn stsb_has_its_scores() {
    let (Some(glue), Some(tokenizer)) = (shared_data("glue"), xlnet()) else { return };
    let data = scratch::open(&config("stsb", &glue), &tokenizer, ALL).unwrap();
    let sum = |split: &segue_tasks::Split| -> f64 {
        rows(split)
            .iter()
            .map(|row| if let Target::Number(score) = row.gold { score } else { f64::NAN })
            .sum()
    };
    let train = data.train.as_ref().unwrap();
    assert_eq!((data.kind, train.examples.len(), data.dev[0].examples.len()), (Kind::Regression, 5749, 1500));
    assert!(
        (sum(train) - 15528.043396825336).abs() < 1e-6
            && (sum(&data.dev[0]) - 3545.8613333333324).abs() < 1e-6
    );
    assert_eq!((data.test[0].examples.len(), data.test[0].submission.as_deref()), (1379, Some("STS-B.tsv")));
    assert_eq!(rows(&data.test[0])[0].gold, Target::Unknown);
}

/// Row X28.
#[test]
fn questions_of_qnli_compete_for_their_sentences() {
    let (Some(glue), Some(tokenizer)) = (shared_data("glue"), xlnet()) else { return };
    let mut config = config("qnli", &glue);
    config.change(|task: &mut TaskConfig| task.loss = TaskLoss::Ranking);
    let data = scratch::open(&config, &tokenizer, DEV).unwrap();
    let dev = &data.dev[0];
    // Counted with another program: 2738 questions with one row, 1361 with two, 1 with three, all of these with one right.
    let of_size = |size: usize| dev.examples.iter().filter(|e| e.sequences.len() == size).count();
    assert_eq!([of_size(1), of_size(2), of_size(3)], [2738, 1361, 1]);
    assert_eq!(dev.examples.iter().filter(|e| e.target != Target::Unknown).count(), 1362);
    assert_eq!((rows(dev).len(), data.kind, data.ranked_label()), (5463, Kind::Choice, Some(0)));
    assert_eq!(counts(&data, dev)["entailment"], 2702);
    for row in rows(dev) {
        let example = &dev.examples[row.example as usize];
        if example.sequences.len() > 1 {
            assert_eq!(row.gold == Target::Class(0), example.target == Target::Option(row.sequence));
        }
    }
}

/// Row X28.
#[test]
fn sentences_of_wnli_compete_and_what_cannot_is_left_out_of_training() {
    let (Some(glue), Some(tokenizer)) = (shared_data("glue"), xlnet()) else { return };
    let mut config = config("wnli", &glue);
    config.change(|task: &mut TaskConfig| task.loss = TaskLoss::Margin);
    let data = scratch::open(&config, &tokenizer, ALL).unwrap();
    let train = data.train.as_ref().unwrap();
    // Counted with another program: groups of two rows 242, three 9, five 2 with one right row each.
    assert_eq!((train.examples.len(), rows(train).len()), (253, 242 * 2 + 9 * 3 + 2 * 5));
    let left_out = 635 - (242 * 2 + 9 * 3 + 2 * 5);
    let note =
        format!("{left_out} rows of 66 groups were left out of training: 52 groups of one row, 14 without");
    assert!(train.skipped.notes[0].starts_with(&note), "{:?}", train.skipped.notes);
    assert_eq!((train.skipped.count, rows(&data.dev[0]).len(), rows(&data.test[0]).len()), (0, 71, 146));
}

const TOKENS: &str = "a b c d e f g";

/// Row X22.
#[test]
fn every_layout_is_read() {
    let mnli = "index\tpromptID\tpairID\tgenre\tx\tx\tx\tx\tsentence1\tsentence2\tlabel1\tgold_label\n\
                0\t1\t1e\tfiction\t\t\t\t\ta\tb\tneutral\tneutral\n";
    let mnli_test =
        "index\tpromptID\tpairID\tgenre\tx\tx\tx\tx\tsentence1\tsentence2\n9\t1\t1\tf\t\t\t\t\ta\tb\n";
    let qqp = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\ta\tb\t1\n";
    let mrpc = "\u{FEFF}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\ta\t\"b\n";
    let folder = folder(&[
        ("CoLA/train.tsv", b"gj04\t1\t\ta b\n"),
        ("CoLA/dev.tsv", b"gj04\t0\t*\ta b\r\n"),
        ("CoLA/test.tsv", b"index\tsentence\n3\ta \"b\n"),
        ("MNLI/train.tsv", mnli.as_bytes()),
        ("MNLI/dev_matched.tsv", mnli.as_bytes()),
        ("MNLI/dev_mismatched.tsv", mnli.as_bytes()),
        ("MNLI/test_matched.tsv", mnli_test.as_bytes()),
        ("MNLI/test_mismatched.tsv", mnli_test.as_bytes()),
        ("QQP/train.tsv", qqp.as_bytes()),
        ("QQP/dev.tsv", qqp.as_bytes()),
        ("QQP/test.tsv", b"id\tquestion1\tquestion2\n5\ta\tb\n"),
        ("MRPC/msr_paraphrase_train.txt", mrpc.as_bytes()),
        ("MRPC/msr_paraphrase_test.txt", mrpc.as_bytes()),
        ("diagnostic/diagnostic.tsv", b"index\tsentence1\tsentence2\n0\ta\tb\n"),
    ]);
    let tokenizer = words(TOKENS);
    let open = |name: &str, splits| scratch::open(&config(name, folder.path()), &tokenizer, splits).unwrap();
    let id = |word: &str| tokenizer.token_id(word).unwrap();
    let pair = vec![id("a"), id("<sep>"), id("b"), id("<sep>"), id("<cls>")];

    let cola = open("cola", ALL);
    let train = cola.train.as_ref().unwrap();
    assert_eq!(train.examples[0].sequences[0].ids, [id("a"), id("b"), id("<sep>"), id("<cls>")]);
    assert_eq!((&train.examples[0].target, rows(&cola.dev[0])[0].index.as_str()), (&Target::Class(1), "0"));
    assert_eq!(
        (rows(&cola.test[0])[0].index.as_str(), cola.test[0].submission.as_deref()),
        ("3", Some("CoLA.tsv"))
    );

    let mnli = open("mnli", ALL);
    assert_eq!(mnli.labels, ["contradiction", "entailment", "neutral"]);
    assert_eq!(mnli.train.as_ref().unwrap().examples[0].sequences[0].ids, pair);
    assert_eq!(mnli.train.as_ref().unwrap().examples[0].target, Target::Class(2));
    let names: Vec<&str> = mnli.dev.iter().chain(&mnli.test).map(|split| split.name.as_str()).collect();
    assert_eq!(names, ["dev-matched", "dev-mismatched", "test-matched", "test-mismatched"]);
    assert_eq!(mnli.test[1].submission.as_deref(), Some("MNLI-mm.tsv"));

    let qqp = open("qqp", ALL);
    assert_eq!(qqp.train.as_ref().unwrap().examples[0].sequences[0].ids, pair);
    assert_eq!((rows(&qqp.dev[0])[0].index.as_str(), rows(&qqp.test[0])[0].index.as_str()), ("7", "5"));
    assert_eq!(open("mrpc", ALL).train.unwrap().examples[0].target, Target::Class(1));

    let ax = open("ax", TaskSplits { train: false, ..ALL });
    assert_eq!(
        (ax.labels.len(), ax.dev.len(), ax.test[0].examples[0].sequences[0].ids.clone()),
        (3, 0, pair)
    );
    let path = folder.path().join("AX.tsv");
    write_predictions(&ax.test[0], &ax.labels, &[Answer::Class(1)], &path).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "index\tprediction\n0\tentailment\n");
    let error = scratch::open(&config("ax", folder.path()), &tokenizer, ALL).unwrap_err();
    assert_eq!(error.exit_code(), 64);
}

/// Row X22.
#[test]
fn bad_files_are_told_with_file_line_and_remedy() {
    let rte = |body: &str| format!("index\tsentence1\tsentence2\tlabel\n{body}");
    let good = rte("0\ta\tb\tentailment\n1\tb\ta\tnot_entailment\n");
    for (content, what) in [
        (rte("0\ta\tb\n"), "line 2: it has 3 columns where the header has 4"),
        (
            rte("0\ta\tb\tmaybe\n"),
            "line 2: unknown label `maybe`, expected one of entailment, not_entailment",
        ),
        (rte("0\ta\tb\tentailment\n1\t \tb\tentailment\n"), "line 3: its text is empty"),
        (
            good.replace("sentence2", "other"),
            "line 1: the header has no `sentence2`, only index, sentence1, other",
        ),
        (String::new(), "line 1: the file is empty"),
        ("x\n".into(), "line 1: it has no header and 1 column, where files of `rte` have 4"),
    ] {
        let folder = folder(&[("train.tsv", content.as_bytes()), ("dev.tsv", good.as_bytes())]);
        let error = scratch::open(&config("rte", folder.path()), &words(TOKENS), ALL).unwrap_err();
        assert!(error.to_string().contains(&format!("train.tsv, {what}")), "{error}");
        assert_eq!(error.exit_code(), 65);
    }
    let bad = rte("0\ta\tb\tmaybe\n1\ta\t\tentailment\n2\ta\tb\tentailment\n3\ta\n4\t\u{1}\tb\tentailment\n");
    let bytes = [bad.as_bytes(), b"5\t\xFF\tb\tentailment\n"].concat();
    let folder = folder(&[("RTE/train.tsv", &bytes), ("RTE/dev.tsv", good.as_bytes())]);
    let mut config = config("rte", folder.path());
    config.change(|task: &mut TaskConfig| task.skip_bad = true);
    let data = scratch::open(&config, &words(TOKENS), ALL).unwrap();
    let train = data.train.unwrap();
    assert_eq!((train.examples.len(), train.skipped.count, data.dev[0].skipped.count), (2, 4, 0));
    assert!(train.skipped.first.iter().any(|line| line.contains("train.tsv, line 7: it is not UTF-8")));
}

#[test]
fn what_is_missing_is_told_with_what_was_looked_for() {
    let folder = folder(&[("other.tsv", b"x")]);
    let tokenizer = words(TOKENS);
    let error = scratch::open(&config("mrpc", folder.path()), &tokenizer, ALL).unwrap_err();
    assert_eq!(error.exit_code(), 66);
    assert!(error.to_string().contains("(or msr_paraphrase_train.txt)"), "{error}");
    let error = scratch::open(&config("mrpx", folder.path()), &tokenizer, ALL).unwrap_err();
    assert!(error.exit_code() == 64 && error.hint().unwrap().contains("known are cola, sst2"), "{error}");
    let mut ranked = config("rte", folder.path());
    ranked.change(|task: &mut TaskConfig| task.loss = TaskLoss::Ranking);
    assert_eq!(scratch::open(&ranked, &tokenizer, ALL).unwrap_err().exit_code(), 64);
}
