//! Tables in columns and compressed ones are read as the JSON lines that they hold.

use crate::scratch;

use std::io::Write;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use parquet::arrow::ArrowWriter;
use scratch::{ALL, DEV, config, folder, rows, words};
use segue_tasks::{Example, Target, TaskConfig};

const TOKENS: &str = "a b c d e f g";

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn arrow(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

/// The same table in every form, by the extension it has there.
fn forms(lines: &str, batch: &RecordBatch) -> [(&'static str, Vec<u8>); 5] {
    [
        ("jsonl", lines.into()),
        ("jsonl.gz", gzip(lines.as_bytes())),
        ("jsonl.zst", zstd::encode_all(lines.as_bytes(), 1).unwrap()),
        ("parquet", parquet(batch)),
        ("arrow", arrow(batch)),
    ]
}

/// The examples of a task whose only file has some content.
fn dev_examples(task: &str, file: &str, content: &[u8]) -> (Vec<String>, Vec<Example>, String) {
    let folder = folder(&[(&format!("train.{file}"), content), (&format!("dev.{file}"), content)]);
    let data = scratch::open(&config(task, folder.path()), &words(TOKENS), ALL).unwrap();
    assert_eq!(data.train.unwrap().examples.len(), data.dev[0].examples.len());
    let dev = data.dev.into_iter().next().unwrap();
    (data.labels, dev.examples, dev.fingerprint)
}

#[test]
fn tables_are_the_same_in_every_form() {
    let lines =
        "{\"label\":1,\"score\":0.5,\"text\":\"a\\tb\"}\n{\"label\":-3,\"score\":2.0,\"text\":\"c\"}\n";
    let columns: [(&str, ArrayRef); 3] = [
        ("label", Arc::new(Int64Array::from(vec![1, -3]))),
        ("score", Arc::new(Float64Array::from(vec![0.5, 2.0]))),
        ("text", Arc::new(StringArray::from(vec!["a\tb", "c"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for task in ["text", "text-regression"] {
        let read = forms(lines, &batch).map(|(file, content)| dev_examples(task, file, &content));
        assert_eq!(read[0].1.len(), 2);
        assert_eq!(read[0].0.len(), if task == "text" { 2 } else { 0 });
        assert!(read.iter().all(|other| *other == read[0]), "{read:?}");
    }
}

#[test]
fn a_test_split_of_marks_alone_has_no_labels_in_any_form() {
    let batch = |labels: Vec<i64>| {
        let columns: [(&str, ArrayRef); 2] = [
            ("text", Arc::new(StringArray::from(vec!["a", "b"]))),
            ("label", Arc::new(Int64Array::from(labels))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let lines = |labels: [i64; 2]| {
        let [first, second] = labels;
        format!("{{\"text\":\"a\",\"label\":{first}}}\n{{\"text\":\"b\",\"label\":{second}}}\n")
    };
    let told = forms(&lines([0, 1]), &batch(vec![0, 1]));
    let marked = forms(&lines([-1, -1]), &batch(vec![-1, -1]));
    for ((file, told), (_, marked)) in told.into_iter().zip(marked) {
        let [train, dev, test] = ["train", "dev", "test"].map(|split| format!("{split}.{file}"));
        let folder = folder(&[(&train, &told[..]), (&dev, &told), (&test, &marked)]);
        let data = scratch::open(&config("text", folder.path()), &words(TOKENS), ALL).unwrap();
        assert_eq!(
            (data.labels.len(), data.dev[0].is_told(), data.test[0].is_told()),
            (2, true, false),
            "{file}"
        );
        assert_eq!(rows(&data.test[0]).len(), 2, "{file}");
    }
}

#[test]
fn questions_have_their_options_in_a_column_of_lists() {
    let line = "{\"context\":\"a b\",\"options\":[\"c\",\"d\"],\"answer\":1}\n";
    let mut options = ListBuilder::new(StringBuilder::new());
    options.append_value([Some("c"), Some("d")]);
    let columns: [(&str, ArrayRef); 3] = [
        ("context", Arc::new(StringArray::from(vec!["a b"]))),
        ("options", Arc::new(options.finish())),
        ("answer", Arc::new(Int64Array::from(vec![1]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let read = forms(line, &batch).map(|(file, content)| dev_examples("choice", file, &content));
    assert_eq!(read[0].1[0].target, Target::Option(1));
    assert!(read.iter().all(|other| *other == read[0]), "{read:?}");
}

#[test]
fn what_is_wrong_with_a_row_is_told_by_its_number() {
    let labels: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), Some("y"), None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("text", texts, true), ("label", labels, true)]).unwrap();
    let content = parquet(&batch);
    let folder = folder(&[("train.parquet", &content[..]), ("dev.parquet", &content)]);
    let mut config = config("text", folder.path());
    config.change(|task: &mut TaskConfig| task.labels = ["x", "y"].map(String::from).to_vec());
    let tokenizer = words(TOKENS);
    let error = scratch::open(&config, &tokenizer, DEV).unwrap_err().to_string();
    assert!(error.contains("dev.parquet, line 3: it has no label"), "{error}");
    config.change(|task: &mut TaskConfig| task.skip_bad = true);
    let data = scratch::open(&config, &tokenizer, DEV).unwrap();
    assert_eq!((rows(&data.dev[0]).len(), data.dev[0].skipped.count), (2, 1));
}

#[test]
fn damaged_files_are_errors() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"; 100]));
    let batch = RecordBatch::try_from_iter([("text", texts)]).unwrap();
    for (file, content) in forms("{\"text\":\"a\",\"label\":\"x\"}\n{}\n", &batch).into_iter().skip(1) {
        let cut = &content[..content.len() / 2];
        let folder = folder(&[(&format!("train.{file}"), cut)]);
        let error = scratch::open(&config("text", folder.path()), &words(TOKENS), ALL).unwrap_err();
        assert_eq!(error.exit_code(), 65, "{file}: {error}");
        assert!(error.to_string().contains(&format!("train.{file}")), "{error}");
    }
}
