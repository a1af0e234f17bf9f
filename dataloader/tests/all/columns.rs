//! A corpus does not depend on how its rows are kept: as JSON lines, compressed or not, as Parquet or as Arrow.

use crate::scratch;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use scratch::text::sample_text;
use scratch::{options, tree};
use segue_data_error::DataError;
use segue_dataloader::{BuildObserver, BuildOptions, Preset, TrainingText, build, train_tokenizer};
use segue_tokenizer::{TokenizerKind, TrainOptions};

/// Documents of several lengths, some larger than what is read at once.
fn documents() -> Vec<String> {
    let text = sample_text(60_000);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut documents: Vec<String> = lines.chunks(70).map(|lines| lines.concat()).collect();
    documents.insert(3, String::new());
    documents.insert(5, "one \"quoted\" line\t\u{1}".into());
    documents.insert(100, text[..1_500_000].chars().filter(|c| *c != ',').collect());
    documents
}

/// The documents with a column before and after them, in batches.
fn batches(documents: &[String], column: impl Fn(&[String]) -> (&'static str, ArrayRef)) -> Vec<RecordBatch> {
    let batch = |rows: &[String]| {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows.len() as i64));
        let columns = [("id", numbers.clone()), column(rows), ("score", numbers)];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    documents.chunks(90).map(batch).collect()
}

fn plain(rows: &[String]) -> (&'static str, ArrayRef) {
    ("text", Arc::new(StringArray::from_iter_values(rows)))
}

fn nested(rows: &[String]) -> (&'static str, ArrayRef) {
    let body = Arc::new(Field::new("body", DataType::Utf8, false));
    ("meta", Arc::new(StructArray::from(vec![(body, plain(rows).1)])))
}

fn dictionary(rows: &[String]) -> (&'static str, ArrayRef) {
    ("text", Arc::new(DictionaryArray::<Int32Type>::from_iter(rows.iter().map(String::as_str))))
}

fn write_parquet(path: &Path, batches: &[RecordBatch], compression: Compression) {
    // Row groups that end within batches.
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_data_page_size_limit(100_000)
        .set_max_row_group_row_count(Some(130))
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}

fn write_arrow(path: &Path, batches: &[RecordBatch]) {
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

fn write_stream(path: &Path, batches: &[RecordBatch]) {
    let mut writer = StreamWriter::try_new(File::create(path).unwrap(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

fn write_gzip(path: &Path, content: &[u8]) {
    let mut writer = flate2::write::GzEncoder::new(File::create(path).unwrap(), flate2::Compression::fast());
    writer.write_all(content).unwrap();
    writer.finish().unwrap();
}

/// JSON lines of the documents, each put where `object` says.
fn json_lines(documents: &[String], object: impl Fn(&String) -> serde_json::Value) -> String {
    documents.iter().map(|document| object(document).to_string() + "\n").collect()
}

/// A build of several shards in three splits.
fn several_shards(input: &Path, column: &str) -> BuildOptions {
    BuildOptions {
        split: Some([0.8, 0.1, 0.1]),
        text_column: column.into(),
        shard_tokens: 100_000,
        ..options(Preset::Jsonl, TokenizerKind::Bpe, input, &input.with_extension("corpus"))
    }
}

/// All files of the corpus that is built from an input.
fn corpus(input: &Path, column: &str) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let options = several_shards(input, column);
    build(&options, &()).unwrap();
    let files = tree(&options.output);
    fs::remove_dir_all(&options.output).unwrap();
    files
}

#[test]
fn the_same_rows_give_the_same_corpus_in_any_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let documents = documents();
    let lines = json_lines(&documents, |document| serde_json::json!({ "text": document }));
    fs::write(path("a.jsonl"), &lines).unwrap();
    write_gzip(&path("a.jsonl.gz"), lines.as_bytes());
    fs::write(path("a.jsonl.zst"), zstd::encode_all(lines.as_bytes(), 1).unwrap()).unwrap();
    let (plain, dictionary) = (batches(&documents, plain), batches(&documents, dictionary));
    write_parquet(&path("zstd.parquet"), &plain, Compression::ZSTD(ZstdLevel::default()));
    write_parquet(&path("snappy.parquet"), &plain, Compression::SNAPPY);
    write_parquet(&path("dictionary.parquet"), &dictionary, Compression::UNCOMPRESSED);
    write_arrow(&path("file.arrow"), &plain);
    write_stream(&path("stream.arrow"), &plain);
    write_stream(&path("dictionary.arrow"), &dictionary);
    let expected = corpus(&path("a.jsonl"), "text");
    assert!(expected.len() > 12, "only {:?}", expected.keys());
    for name in [
        "a.jsonl.gz",
        "a.jsonl.zst",
        "zstd.parquet",
        "snappy.parquet",
        "dictionary.parquet",
        "file.arrow",
        "stream.arrow",
        "dictionary.arrow",
    ] {
        assert!(corpus(&path(name), "text") == expected, "{name}");
    }
}

#[test]
fn nested_columns_give_the_corpus_of_nested_objects() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let documents = documents();
    let lines = json_lines(&documents, |document| serde_json::json!({ "meta": { "body": document } }));
    fs::write(path("a.jsonl"), lines).unwrap();
    let batches = batches(&documents, nested);
    write_parquet(&path("a.parquet"), &batches, Compression::SNAPPY);
    write_stream(&path("a.arrow"), &batches);
    let expected = corpus(&path("a.jsonl"), "meta.body");
    assert!(corpus(&path("a.parquet"), "meta.body") == expected);
    assert!(corpus(&path("a.arrow"), "meta.body") == expected);
}

/// Stops after the first shard.
struct Stopper;

impl BuildObserver for Stopper {
    fn stops_after(&self, shards: u64) -> bool {
        shards >= 1
    }
}

#[test]
fn a_stopped_build_goes_on_within_a_file_of_columns() {
    let folder = tempfile::tempdir().unwrap();
    let batches = batches(&documents(), plain);
    let (parquet, arrow) = (folder.path().join("a.parquet"), folder.path().join("b.arrow"));
    write_parquet(&parquet, &batches, Compression::ZSTD(ZstdLevel::default()));
    write_stream(&arrow, &batches);
    for input in [parquet, arrow] {
        let undisturbed = corpus(&input, "text");
        let options = several_shards(&input, "text");
        let mut stops = 0;
        while let Err(error) = build(&options, &Stopper) {
            assert!(matches!(error, DataError::Stopped { shards: 1 }), "{error}");
            stops += 1;
        }
        assert!(stops >= 4, "{stops}");
        assert!(tree(&options.output) == undisturbed);
    }
}

#[test]
fn patterns_and_lists_build_the_corpus_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let documents = documents();
    for (name, rows) in [("a-1.parquet", &documents[..200]), ("a-0.parquet", &documents[200..])] {
        write_parquet(&path(name), &batches(rows, plain), Compression::SNAPPY);
    }
    let output = path("corpus");
    let build_from = |inputs: Vec<PathBuf>| {
        let base = options(Preset::Jsonl, TokenizerKind::Word, "".as_ref(), &output);
        build(&BuildOptions { train: inputs, ..base }, &()).map(|_| {
            let files = tree(&output);
            fs::remove_dir_all(&output).unwrap();
            files
        })
    };
    fs::write(
        path("list"),
        format!("{}\n{}\n", path("a-0.parquet").display(), path("a-1.parquet").display()),
    )
    .unwrap();
    let expected = build_from(vec![path("a-0.parquet"), path("a-1.parquet")]).unwrap();
    assert!(build_from(vec![path("a-*.parquet")]).unwrap() == expected);
    assert!(build_from(vec![format!("@{}", path("list").display()).into()]).unwrap() == expected);
    let error = build_from(vec![path("b-*.parquet")]).unwrap_err();
    assert_eq!(error.exit_code(), 66, "{error}");

    let words = TrainOptions::new(TokenizerKind::Word);
    let text = TrainingText::new(Preset::Jsonl, vec![path("a-*.parquet")]);
    let tokenizer = train_tokenizer(&text, &words, 1, &()).unwrap();
    let fingerprint = format!("{:?}", tokenizer.fingerprint());
    let info = String::from_utf8(expected[Path::new("corpus.json")].clone()).unwrap();
    assert!(info.contains(&fingerprint), "{fingerprint} is not in {info}");
}

#[test]
fn what_cannot_be_built_from_columns_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let rows = [Some("a"), None, Some("b")];
    let nulls: ArrayRef = Arc::new(StringArray::from_iter(rows));
    let nulls = RecordBatch::try_from_iter_with_nullable([("text", nulls, true)]).unwrap();
    write_parquet(&path("nulls.parquet"), &[nulls], Compression::SNAPPY);
    write_arrow(&path("cut.arrow"), &batches(&documents(), plain));
    let bytes = fs::read(path("cut.arrow")).unwrap();
    fs::write(path("cut.arrow"), &bytes[..bytes.len() / 2]).unwrap();
    write_parquet(&path("good.parquet"), &batches(&documents()[..9], plain), Compression::SNAPPY);
    fs::write(path("a.jsonl"), "{\"text\": \"a\"}\n").unwrap();
    let fails = |name: &str, change: &dyn Fn(&mut BuildOptions)| {
        let mut options = options(Preset::Jsonl, TokenizerKind::Word, &path(name), &path("corpus"));
        change(&mut options);
        let error = build(&options, &()).unwrap_err();
        let _ = fs::remove_dir_all(path("corpus"));
        (error.exit_code(), error.to_string())
    };
    let as_is = |_: &mut BuildOptions| ();
    let (code, message) = fails("nulls.parquet", &as_is);
    assert!(code == 65 && message.ends_with("nulls.parquet, row 2: `text` is null"), "{message}");
    let (code, message) = fails("cut.arrow", &as_is);
    assert!(code == 65 && message.contains("truncated"), "{message}");
    for name in ["good.parquet", "a.jsonl"] {
        let (code, message) = fails(name, &|options| options.text_column = "body".into());
        assert!(code == 65 && message.contains("body"), "{message}");
    }
    let (code, message) = fails("good.parquet", &|options| options.preset = Preset::Documents);
    assert!(code == 64 && message.contains("holds columns"), "{message}");
    let (code, message) = fails("a.jsonl", &|options| {
        options.preset = Preset::Documents;
        options.text_column = "body".into();
    });
    assert!(code == 64 && message.contains("--text-column"), "{message}");
}
