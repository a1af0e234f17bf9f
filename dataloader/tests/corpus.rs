//! A corpus on disk: opened without reading tokens, verified to the block, refused where it is damaged.

mod scratch;

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use scratch::text::sample_text;
use scratch::{all_tokens, options, tokens_of, tree};
use segue_data_error::DataError;
use segue_dataloader::{
    BLOCK_BYTES, BuildOptions, Corpus, CorpusInfo, Dtype, HEADER_BYTES, Preset, ShardHeader, Split, build,
};
use segue_tokenizer::TokenizerKind;

/// A byte-level corpus of several shards, each of several blocks.
fn built(folder: &Path) -> (PathBuf, Vec<u8>) {
    let (input, output) = (folder.join("input.txt"), folder.join("corpus"));
    let text = sample_text(90_000);
    fs::write(&input, &text).unwrap();
    let options = options(Preset::Documents, TokenizerKind::Byte, &input, &output);
    build(&BuildOptions { shard_tokens: 3_000_000, ..options }, &()).unwrap();
    (output, text.into_bytes())
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[test]
fn the_tokens_are_those_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = built(folder.path());
    let corpus = Corpus::open(&output).unwrap();
    let info = &corpus.info().splits[&Split::Train];
    assert!(info.shards.len() >= 2);
    assert_eq!((info.bytes, info.documents), (text.len() as u64, 1));
    assert_eq!(info.chars, String::from_utf8(text.clone()).unwrap().chars().count() as u64);
    let stream = corpus.tokens(Split::Train).unwrap();
    let expected: Vec<i64> = text.iter().map(|byte| *byte as i64).collect();
    assert!(all_tokens(&stream) == expected);
    // Across the border of the first two shards, and up to the very end.
    let border = info.shards[0].tokens;
    for start in [border - 5, stream.len() - 10] {
        let mut out = [0; 10];
        stream.read(start, &mut out).unwrap();
        assert_eq!(out[..], expected[start as usize..start as usize + 10]);
    }
    for start in [stream.len() - 9, u64::MAX - 3] {
        assert!(matches!(stream.read(start, &mut [0; 10]), Err(DataError::OutOfRange { .. })));
    }
    assert_eq!(corpus.tokenizer().unwrap().fingerprint(), corpus.info().tokenizer.fingerprint);
}

#[test]
fn the_indices_name_lines_and_documents() {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = built(folder.path());
    let corpus = Corpus::open(&output).unwrap();
    let sentences = corpus.sentences(Split::Train).unwrap();
    let mut expected = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !line.trim_ascii().is_empty() {
            expected.push(at);
        }
        at += line.len() as u64;
    }
    let found: Vec<u64> = (0..sentences.len()).map(|i| sentences.get(i).unwrap()).collect();
    assert!(found == expected);
    assert_eq!(sentences.get(sentences.len()), None);
    let documents = corpus.documents(Split::Train).unwrap();
    assert_eq!((documents.len(), documents.get(0)), (1, Some(0)));
}

#[test]
fn a_flipped_byte_is_found_with_its_shard_and_block() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let corpus = Corpus::open(&output).unwrap();
    let report = corpus.verify(&mut |_, _| {}).unwrap();
    assert!(report.ok && report.bad.is_empty());

    let shard = output.join("train/train-00001.bin");
    let payload = HEADER_BYTES as u64;
    flip(&shard, payload + 3 * BLOCK_BYTES as u64 + 17);
    flip(&shard, payload + 4 * BLOCK_BYTES as u64 + 17);
    let mut seen = (0, 0);
    let report = corpus.verify(&mut |done, total| seen = (done, total)).unwrap();
    assert!(!report.ok && report.bad.len() == 1, "{report:?}");
    assert_eq!(report.bad[0].file, "train/train-00001.bin");
    assert_eq!(report.bad[0].offset, Some(payload + 3 * BLOCK_BYTES as u64));
    assert_eq!(seen.0, seen.1);
    assert_eq!(seen.1, report.bytes);
}

#[test]
fn damage_to_any_other_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let corpus = Corpus::open(&output).unwrap();
    flip(&output.join("train/train-00000.idx"), 200);
    let bad = corpus.verify(&mut |_, _| {}).unwrap().bad;
    assert_eq!(bad.len(), 1);
    assert_eq!(bad[0].file, "train/train-00000.idx");
    flip(&output.join("train/train-00000.idx"), 200);

    let manifest = output.join("tokenizer/segue_tokenizer.json");
    flip(&manifest, 5);
    let bad = corpus.verify(&mut |_, _| {}).unwrap().bad;
    assert_eq!(bad[0].file, "tokenizer/segue_tokenizer.json");
    assert!(corpus.tokenizer().is_err());
    flip(&manifest, 5);

    let description = output.join("corpus.json");
    let text = fs::read_to_string(&description).unwrap();
    fs::write(&description, text.replacen("\"chars\": ", "\"chars\": 1", 1)).unwrap();
    let error = Corpus::open(&output).unwrap_err().to_string();
    assert!(error.contains("altered"), "{error}");
    fs::write(&description, text.replace("\"version\": 1", "\"version\": 9")).unwrap();
    let error = Corpus::open(&output).unwrap_err().to_string();
    assert!(error.contains("version is 9"), "{error}");
    fs::write(&description, &text[..text.len() / 2]).unwrap();
    assert_eq!(Corpus::open(&output).unwrap_err().exit_code(), 65);
}

#[test]
fn a_damaged_corpus_is_refused_on_opening() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let shard = output.join("train/train-00001.bin");
    let good = fs::read(&shard).unwrap();
    let refused = |parts: &[&str]| {
        let error = Corpus::open(&output).unwrap_err();
        let message = error.to_string();
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
        error.exit_code()
    };

    fs::write(&shard, &good[..good.len() - 1]).unwrap();
    assert_eq!(refused(&["train-00001.bin", "truncated"]), 65);
    let report = {
        // Opened while it was whole, cut afterwards: the report says from where on it is bad.
        fs::write(&shard, &good).unwrap();
        let corpus = Corpus::open(&output).unwrap();
        fs::write(&shard, &good[..1000]).unwrap();
        corpus.verify(&mut |_, _| {}).unwrap()
    };
    assert_eq!(report.bad[0].offset, Some(1000));

    let mut other_magic = good.clone();
    other_magic[0] = b'X';
    fs::write(&shard, &other_magic).unwrap();
    assert_eq!(refused(&["train-00001.bin", "SEGUESHD"]), 65);

    fs::copy(output.join("train/train-00000.bin"), &shard).unwrap();
    let same_size = fs::metadata(&shard).unwrap().len() == good.len() as u64;
    assert_eq!(refused(&["train-00001.bin", if same_size { "another corpus" } else { "bytes where" }]), 65);

    fs::remove_file(&shard).unwrap();
    assert_eq!(refused(&["train-00001.bin", "missing"]), 66);

    let error = Corpus::open(&folder.path().join("nowhere")).unwrap_err();
    assert_eq!(error.exit_code(), 66);
    assert!(error.hint().unwrap().contains("segue data build"), "{error}");
}

#[test]
fn a_split_that_was_not_built_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let error = Corpus::open(&output).unwrap().tokens(Split::Valid).unwrap_err();
    assert_eq!(error.exit_code(), 65);
    assert!(error.hint().unwrap().contains("--valid"), "{error}");
}

#[test]
fn compressed_shards_are_unpacked_once_and_hold_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, _) = built(folder.path());
    let packed = folder.path().join("packed");
    let cache = folder.path().join("cache");
    let options = options(Preset::Documents, TokenizerKind::Byte, &folder.path().join("input.txt"), &packed);
    build(&BuildOptions { shard_tokens: 3_000_000, compress: true, ..options }, &()).unwrap();
    assert!(fs::metadata(packed.join("train/train-00000.bin.zst")).unwrap().len() < 3_000_000);
    assert!(!packed.join("train/train-00000.bin").exists());

    let corpus = Corpus::open_with_cache(&packed, &cache).unwrap();
    assert!(!cache.exists(), "opening unpacks nothing");
    assert_eq!(corpus.fingerprint(), Corpus::open(&plain).unwrap().fingerprint());
    assert!(all_tokens(&corpus.tokens(Split::Train).unwrap()) == tokens_of(&plain, Split::Train));
    assert!(corpus.verify(&mut |_, _| {}).unwrap().ok);

    let unpacked: Vec<_> = tree(&cache).into_keys().map(|name| cache.join(name)).collect();
    let times: Vec<_> = unpacked.iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect();
    corpus.tokens(Split::Train).unwrap();
    for (path, time) in unpacked.iter().zip(times) {
        assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), time);
    }

    fs::remove_dir_all(&cache).unwrap();
    let shard = packed.join("train/train-00000.bin.zst");
    flip(&shard, fs::metadata(&shard).unwrap().len() / 2);
    let error = corpus.tokens(Split::Train).unwrap_err();
    assert_eq!(error.exit_code(), 65, "{error}");
    assert!(tree(&cache).is_empty(), "nothing bad is left in the cache");
    let report = corpus.verify(&mut |_, _| {}).unwrap();
    assert_eq!(report.bad[0].file, "train/train-00000.bin.zst");
}

/// Makes a corpus look as if its first shard held 100 GB, with a hole in place of the tokens.
fn inflate(output: &Path) -> u64 {
    const TOKENS: u64 = 50_000_000_000;
    let shard = output.join("train/train-00000.bin");
    let header = ShardHeader { dtype: Dtype::U16, count: TOKENS, payload_hash: [9; 32] };
    let mut file = File::create(&shard).unwrap();
    file.write_all(&header.to_bytes()).unwrap();
    file.set_len(header.file_bytes()).unwrap();
    // The very last token is not in the hole.
    file.seek(SeekFrom::End(-2)).unwrap();
    file.write_all(&77u16.to_le_bytes()).unwrap();

    let index_path = output.join("train/train-00000.idx");
    let mut index = fs::read(&index_path).unwrap();
    index[40..72].copy_from_slice(&[9; 32]);
    let checksum = blake3::hash(&index[..120]);
    index[120..128].copy_from_slice(&checksum.as_bytes()[..8]);
    fs::write(&index_path, index).unwrap();

    let text = fs::read_to_string(output.join("corpus.json")).unwrap();
    let mut info: CorpusInfo = serde_json::from_str(&text).unwrap();
    let train = info.splits.get_mut(&Split::Train).unwrap();
    train.tokens = TOKENS;
    train.shards.truncate(1);
    train.shards[0].tokens = TOKENS;
    train.shards[0].file.bytes = header.file_bytes();
    train.shards[0].payload_blake3 = "09".repeat(32);
    info.fingerprint = info.computed_fingerprint();
    fs::write(output.join("corpus.json"), serde_json::to_string(&info).unwrap()).unwrap();
    TOKENS
}

#[test]
fn a_corpus_of_100_gb_opens_in_milliseconds() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let tokens = inflate(&output);
    let begun = Instant::now();
    let corpus = Corpus::open(&output).unwrap();
    let stream = corpus.tokens(Split::Train).unwrap();
    let mut last = [0];
    stream.read(tokens - 1, &mut last).unwrap();
    let took = begun.elapsed();
    println!("opened 100 GB in {took:?}");
    assert_eq!((stream.len(), last), (tokens, [77]));
    assert!(took < Duration::from_millis(100), "{took:?}");
}
