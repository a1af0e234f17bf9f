//! Parquet and Arrow files give the JSON lines that their rows would be, or an error that says where.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, Float32Array, Float64Array, Int64Array,
    LargeStringArray, ListArray, RecordBatch, StringArray, StringViewArray, StructArray, UInt64Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use segue_columnar::{Format, TextLines, table_lines};
use segue_data_error::DataError;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn strings(texts: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

fn parquet(batches: &[RecordBatch], compression: Compression, rows: usize) -> Vec<u8> {
    let properties =
        WriterProperties::builder().set_compression(compression).set_max_row_group_row_count(Some(rows));
    let mut writer = ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(properties.build())).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn arrow_file(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn arrow_stream(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

/// The same batches in all formats.
fn all_formats(batches: &[RecordBatch]) -> Vec<(&'static str, Vec<u8>)> {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    vec![
        ("zstd.parquet", parquet(batches, zstd, 3)),
        ("snappy.parquet", parquet(batches, Compression::SNAPPY, 1000)),
        ("gzip.parquet", parquet(batches, Compression::GZIP(Default::default()), 2)),
        ("lz4.parquet", parquet(batches, Compression::LZ4_RAW, 1000)),
        ("plain.parquet", parquet(batches, Compression::UNCOMPRESSED, 1000)),
        ("file.arrow", arrow_file(batches, None)),
        ("lz4.feather", arrow_file(batches, Some(CompressionType::LZ4_FRAME))),
        ("stream.arrow", arrow_stream(batches, None)),
        ("zstd.arrow", arrow_stream(batches, Some(CompressionType::ZSTD))),
    ]
}

fn text_lines(path: &Path, column: &str) -> Result<String, DataError> {
    let mut lines = TextLines::open(path, column, Arc::default())?;
    let mut text = String::new();
    match lines.read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) => Err(error.downcast::<DataError>().unwrap()),
    }
}

/// The lines of a column of a file in memory.
fn text_lines_of(name: &str, bytes: &[u8], column: &str) -> Result<String, DataError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    text_lines(&path, column)
}

const TEXTS: [&str; 5] = ["a", "line\nbreak", "\"quoted\" é 中文", "", "again"];

#[test]
fn every_kind_of_text_gives_the_same_lines_in_every_format() {
    let kinds: [ArrayRef; 4] = [
        strings(&TEXTS),
        Arc::new(LargeStringArray::from(TEXTS.to_vec())),
        Arc::new(StringViewArray::from(TEXTS.to_vec())),
        Arc::new(DictionaryArray::<Int8Type>::from_iter(TEXTS)),
    ];
    let expected: String =
        TEXTS.iter().map(|text| serde_json::json!({ "text": text }).to_string() + "\n").collect();
    for kind in kinds {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5));
        let batch = batch(vec![("number", numbers), ("text", kind.clone())]);
        // Dictionaries of several batches may differ: a stream replaces them.
        for (name, bytes) in all_formats(&[batch.clone(), batch.slice(0, 0), batch.slice(2, 2)]) {
            let rest: String = expected.lines().skip(2).take(2).map(|line| format!("{line}\n")).collect();
            let lines = text_lines_of(name, &bytes, "text").unwrap();
            assert_eq!(lines, format!("{expected}{rest}"), "{name}, {}", kind.data_type());
        }
    }
}

fn nested() -> RecordBatch {
    let inner = StructArray::from(vec![
        (
            Arc::new(Field::new("id", DataType::Int64, true)),
            Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef,
        ),
        (Arc::new(Field::new("body", DataType::Utf8, true)), strings(&["x", "y"])),
    ]);
    let outer = StructArray::from(vec![(
        Arc::new(Field::new("page", inner.data_type().clone(), true)),
        Arc::new(inner) as ArrayRef,
    )]);
    batch(vec![("meta", Arc::new(outer)), ("a.b", strings(&["dot", "dot"]))])
}

#[test]
fn dots_go_into_structs() {
    for (name, bytes) in all_formats(&[nested()]) {
        let lines = |column: &str| text_lines_of(name, &bytes, column).unwrap();
        let expected = "{\"meta\":{\"page\":{\"body\":\"x\"}}}\n{\"meta\":{\"page\":{\"body\":\"y\"}}}\n";
        assert_eq!(lines("meta.page.body"), expected, "{name}");
        assert_eq!(lines("a.b"), "{\"a.b\":\"dot\"}\n{\"a.b\":\"dot\"}\n", "{name}");
    }
}

#[test]
fn columns_that_hold_no_text_are_named_with_their_types() {
    for (name, bytes) in all_formats(&[nested()]) {
        for (column, why) in [
            (
                "text",
                "it has no column `text`; there are meta.page.id (Int64), meta.page.body (Utf8), a.b (Utf8)",
            ),
            ("meta.page.id", "its column `meta.page.id` holds Int64, not text; there are "),
            ("meta", "its column `meta` holds Struct("),
        ] {
            let error = text_lines_of(name, &bytes, column).unwrap_err();
            assert_eq!(error.exit_code(), 65);
            assert!(error.to_string().contains(why), "{name}: {error}");
            assert!(error.hint().unwrap().contains("--text-column"));
        }
    }
}

#[test]
fn a_null_is_named_by_its_row() {
    let nulls: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("b"), None]));
    let texts = batch(vec![("text", nulls)]);
    let more = batch(vec![("text", strings(&["a", "b", "c", "d"]))]);
    for (name, bytes) in all_formats(&[more, texts]) {
        let error = text_lines_of(name, &bytes, "text").unwrap_err();
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().ends_with(&format!("{name}, row 7: `text` is null")), "{error}");
    }
}

#[test]
fn tables_have_the_values_that_json_lines_would_have() {
    let list = ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>([
        Some(vec![Some(1), None]),
        Some(vec![]),
    ]);
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"x"[..], b"y"]));
    let table = batch(vec![
        ("text", strings(&["a\tb", "\""])),
        ("label", Arc::new(Int64Array::from(vec![Some(-1), None]))),
        ("big", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("score", Arc::new(Float64Array::from(vec![0.5, f64::NAN]))),
        ("short", Arc::new(Float32Array::from(vec![0.1, 3.0]))),
        ("good", Arc::new(BooleanArray::from(vec![true, false]))),
        ("kind", Arc::new(DictionaryArray::<Int8Type>::from_iter([Some("x"), None]))),
        ("list", Arc::new(list)),
        ("image", bytes),
    ]);
    let expected = "{\"text\":\"a\\tb\",\"label\":-1,\"big\":18446744073709551615,\"score\":0.5,\"short\":0.1,\
        \"good\":true,\"kind\":\"x\",\"list\":[1,null]}\n\
        {\"text\":\"\\\"\",\"label\":null,\"big\":0,\"score\":null,\"short\":3.0,\
        \"good\":false,\"kind\":null,\"list\":[]}\n";
    for (name, bytes) in all_formats(&[table]) {
        let lines = table_lines(name.as_ref(), bytes).unwrap();
        assert_eq!(String::from_utf8(lines).unwrap(), expected, "{name}");
    }
    let bytes = arrow_file(&[batch(vec![("image", Arc::new(BinaryArray::from(vec![&b"x"[..]])))])], None);
    let error = table_lines("a.arrow".as_ref(), bytes).unwrap_err();
    assert!(error.to_string().contains("no column of texts, numbers or booleans; there are image (Binary)"));
}

#[test]
fn reading_counts_up_to_the_size_of_the_file() {
    let texts: Vec<String> = (0..4000).map(|row| format!("{row} {}", "text ".repeat(row % 50))).collect();
    let texts: ArrayRef = Arc::new(StringArray::from(texts));
    let batches: Vec<RecordBatch> =
        (0..8).map(|part| batch(vec![("text", texts.slice(part * 500, 500))])).collect();
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in all_formats(&batches) {
        let path = folder.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let read = Arc::new(AtomicU64::new(0));
        let mut lines = TextLines::open(&path, "text", read.clone()).unwrap();
        let (mut before, mut places) = (0, 0);
        while lines.read(&mut [0; 10_000]).unwrap() > 0 {
            let now = read.load(Ordering::Relaxed);
            assert!((before..=bytes.len() as u64).contains(&now), "{name}");
            places += u32::from(now > before);
            before = now;
        }
        assert!(before == bytes.len() as u64 && places >= 7, "{name}: {before} after {places}");
        assert_eq!(lines.read(&mut [0; 10]).unwrap(), 0);
    }
}

#[test]
fn other_files_are_told_apart_from_damaged_ones() {
    let folder = tempfile::tempdir().unwrap();
    let missing = text_lines(&folder.path().join("none.parquet"), "text").unwrap_err();
    assert_eq!(missing.exit_code(), 66);
    for (name, bytes, why) in [
        (
            "a.parquet",
            &b"{\"text\": \"a\"}\n{\"text\": \"a\"}\n"[..],
            "does not begin and end as Parquet does",
        ),
        ("a.parquet", b"", "does not begin and end as Parquet does"),
        ("a.arrow", b"", "it ends too early, so it is truncated"),
        ("a.arrow", b"{\"text\": \"a\"}\n", "it ends too early"),
        ("a.arrow", b"ARROW1\0\0", "it ends too early"),
        ("a.feather", b"FEA1\0\0\0\0FEA1", "Feather 1"),
        ("a.arrow", b"\xFF\xFF\xFF\xFF\0\0\0\0", "it holds no schema"),
    ] {
        let error = text_lines_of(name, bytes, "text").unwrap_err();
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().contains(why), "{name}: {error}");
        assert_eq!(table_lines(name.as_ref(), bytes.to_vec()).unwrap_err().exit_code(), 65);
    }
    assert_eq!(Format::of("a.parquet.gz".as_ref()), None);
}

/// Files with nested columns, dictionaries and nulls, of several row groups.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let texts: Vec<String> = (0..300).map(|row| format!("{row} some text, {}", row % 7)).collect();
    let words: Vec<&str> = (0..300).map(|row| TEXTS[row % TEXTS.len()]).collect();
    let nested = StructArray::from(vec![(
        Arc::new(Field::new("body", DataType::Utf8, true)),
        Arc::new(StringArray::from(texts.clone())) as ArrayRef,
    )]);
    let batch = batch(vec![
        ("text", Arc::new(StringArray::from(texts))),
        ("word", Arc::new(DictionaryArray::<Int8Type>::from_iter(words))),
        ("meta", Arc::new(nested)),
        ("number", Arc::new(Int64Array::from_iter((0..300).map(|row| (row % 3 > 0).then_some(row))))),
    ]);
    let mut samples = all_formats(&[batch.slice(0, 150), batch.slice(150, 150)]);
    samples[0].1 = parquet(&[batch], Compression::ZSTD(ZstdLevel::default()), 100);
    samples
}

#[test]
fn a_file_that_is_cut_anywhere_is_an_error() {
    for (name, bytes) in samples() {
        let step = bytes.len() / 97;
        for length in (0..bytes.len()).step_by(step).chain(bytes.len() - 20..bytes.len()) {
            let error = text_lines_of(name, &bytes[..length], "text").unwrap_err();
            assert_eq!(error.exit_code(), 65, "{name}, {length}: {error}");
            assert_eq!(table_lines(name.as_ref(), bytes[..length].to_vec()).unwrap_err().exit_code(), 65);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_damaged_file_gives_lines_or_an_error(
        sample in 0..9usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        static SAMPLES: std::sync::LazyLock<Vec<(&str, Vec<u8>)>> = std::sync::LazyLock::new(samples);
        let (name, bytes) = &SAMPLES[sample];
        let mut bytes = bytes.clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        for column in ["text", "word", "meta.body"] {
            if let Err(error) = text_lines_of(name, &bytes, column) {
                prop_assert_eq!(error.exit_code(), 65, "{}", error);
            }
        }
        if let Err(error) = table_lines(name.as_ref(), bytes) {
            prop_assert_eq!(error.exit_code(), 65, "{}", error);
        }
    }
}
