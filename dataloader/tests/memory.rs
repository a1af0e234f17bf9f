//! A build takes 64 MiB a worker at most, however large the input.

#[path = "all/scratch/mod.rs"]
mod scratch;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use parquet::arrow::ArrowWriter;
use scratch::options;
use scratch::text::sample_text;
use segue_dataloader::{BuildOptions, Preset, TokenizerChoice, TrainingText, build, train_tokenizer};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};

const MIB: u64 = 1 << 20;
/// The bound that is promised.
const BOUND_PER_WORKER: u64 = 64 * MIB;
const WORKERS: u64 = 2;
/// Text of the small and the large input.
const SIZES: [u64; 2] = [32 * MIB, 128 * MIB];

/// Largest resident set of this process so far, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Run by the tests below in processes of its own, so that nothing else counts: builds as the environment says, and
/// prints by how much the peak grew.
#[test]
fn build_in_a_process_of_its_own() {
    let Ok(case) = std::env::var("SEGUE_TEST_CASE") else { return };
    let [preset, tokenizer, input, output] = case.split('|').collect::<Vec<_>>()[..] else {
        panic!("{case}")
    };
    let tokenizer = Tokenizer::load(tokenizer.as_ref()).unwrap();
    let before = peak();
    let options = BuildOptions {
        tokenizer: TokenizerChoice::Given(tokenizer),
        workers: WORKERS as usize,
        // Small shards, so that many are finished on the way.
        shard_tokens: 8 << 20,
        ..BuildOptions::new(preset.parse().unwrap(), vec![input.into()], output.into())
    };
    build(&options, &()).unwrap();
    println!("grew {}", peak() - before);
}

/// By how much the peak grows while a corpus is built from an input.
fn growth(preset: Preset, tokenizer: &Path, input: &Path) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("corpus");
    let case =
        [preset.name(), tokenizer.to_str().unwrap(), input.to_str().unwrap(), output.to_str().unwrap()];
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "build_in_a_process_of_its_own", "--nocapture"])
        .env("SEGUE_TEST_CASE", case.join("|"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let grew = text.lines().find_map(|line| line.split("grew ").nth(1));
    grew.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&child.stderr))).parse().unwrap()
}

/// A file of copies of a text, up to a size.
fn repeated(folder: &Path, name: &str, text: &str, size: u64) -> std::path::PathBuf {
    let path = folder.join(name);
    let mut file = BufWriter::new(File::create(&path).unwrap());
    for _ in 0..size / text.len() as u64 {
        file.write_all(text.as_bytes()).unwrap();
    }
    path
}

fn trained(folder: &Path, kind: TokenizerKind) -> std::path::PathBuf {
    let (sample, output) = (folder.join("sample.txt"), folder.join(format!("{kind}")));
    fs::write(&sample, sample_text(2000)).unwrap();
    let TokenizerChoice::Train(training) = options(Preset::Documents, kind, &sample, &output).tokenizer
    else {
        return output;
    };
    let training: TrainOptions = training;
    let tokenizer =
        train_tokenizer(&TrainingText::new(Preset::Documents, vec![sample]), &training, 1, &()).unwrap();
    tokenizer.save(&output).unwrap();
    output
}

#[test]
fn memory_is_bounded_however_large_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let lines = sample_text(4000);
    // The worst a byte tokenizer can meet: two bytes of payload per byte of text, and no line to cut at.
    let unbroken = "x".repeat(1 << 16);
    // The most sentences per byte.
    let short_lines = "a\n".repeat(1 << 15);
    let record = format!("{}\n", serde_json::json!({ "text": sample_text(300) }));
    let cases = [
        (Preset::WikiText, TokenizerKind::Word, &lines),
        (Preset::Documents, TokenizerKind::Bpe, &lines),
        (Preset::Documents, TokenizerKind::Byte, &unbroken),
        (Preset::Sentences, TokenizerKind::Char, &short_lines),
        (Preset::Jsonl, TokenizerKind::Byte, &record),
    ];
    for (preset, kind, text) in cases {
        let tokenizer = trained(folder.path(), kind);
        let grown = SIZES.map(|size| {
            let input = repeated(folder.path(), "input", text, size);
            growth(preset, &tokenizer, &input)
        });
        let mib = grown.map(|bytes| bytes / MIB);
        println!("{preset} with {kind}: {} and {} MiB for 32 and 128 MiB of text, 2 workers", mib[0], mib[1]);
        assert!(grown[1] < BOUND_PER_WORKER * WORKERS, "{preset} with {kind}: {mib:?} MiB");
    }
}

/// Copies of a text in rows, up to a size, a thousand at once.
fn rows(text: &str, size: u64) -> impl Iterator<Item = RecordBatch> {
    let rows = Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, 1000)));
    let batch = RecordBatch::try_from_iter([("text", rows as _)]).unwrap();
    (0..size / (1000 * text.len() as u64)).map(move |_| batch.clone())
}

/// A Parquet file of one row group: the writer's limit is a million rows.
fn parquet(folder: &Path, text: &str, size: u64) -> std::path::PathBuf {
    let path = folder.join("input.parquet");
    let schema = rows(text, size).next().unwrap().schema();
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema, None).unwrap();
    rows(text, size).for_each(|batch| writer.write(&batch).unwrap());
    writer.close().unwrap();
    path
}

fn arrow(folder: &Path, text: &str, size: u64) -> std::path::PathBuf {
    let path = folder.join("input.arrow");
    let schema = rows(text, size).next().unwrap().schema();
    let mut writer = StreamWriter::try_new(File::create(&path).unwrap(), &schema).unwrap();
    rows(text, size).for_each(|batch| writer.write(&batch).unwrap());
    writer.finish().unwrap();
    path
}

#[test]
fn memory_is_bounded_however_large_a_file_of_columns() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = trained(folder.path(), TokenizerKind::Byte);
    let text = sample_text(60);
    let write: [fn(&Path, &str, u64) -> std::path::PathBuf; 2] = [parquet, arrow];
    for write in write {
        let grown = SIZES.map(|size| {
            let input = write(folder.path(), &text, size);
            (input.clone(), growth(Preset::Jsonl, &tokenizer, &input))
        });
        let [(input, small), (_, large)] = grown;
        let name = input.file_name().unwrap().display();
        println!("{name}: {} and {} MiB for 32 and 128 MiB of text, 2 workers", small / MIB, large / MIB);
        assert!(large < BOUND_PER_WORKER * WORKERS, "{name}: {} MiB", large / MIB);
    }
}
