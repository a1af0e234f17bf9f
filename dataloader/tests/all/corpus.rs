//! A corpus on disk: opened without reading tokens, verified to the block, refused where it is damaged.

use crate::scratch;

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use scratch::text::sample_text;
use scratch::{all_tokens, options, tokens_of, tree};
use segue_data_error::DataError;
use segue_dataloader::{
    BLOCK_BYTES, BuildOptions, Corpus, CorpusInfo, Dtype, HEADER_BYTES, INDEX_HEADER_BYTES, IndexHeader,
    Preset, ShardHeader, Split, build,
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
    let found: Vec<u64> = (0..sentences.len()).map(|i| sentences.get(i).unwrap().unwrap()).collect();
    assert!(found == expected);
    assert_eq!(sentences.get(sentences.len()).unwrap(), None);
    let documents = corpus.documents(Split::Train).unwrap();
    assert_eq!((documents.len(), documents.get(0).unwrap()), (1, Some(0)));
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

/// As `segue data verify` opens it: what one look finds is not all there is.
#[test]
fn all_that_is_damaged_or_missing_is_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let (cut, flipped) = (output.join("train/train-00000.bin"), output.join("train/train-00001.bin"));
    let good = fs::read(&cut).unwrap();
    fs::write(&cut, &good[..good.len() - 1]).unwrap();
    flip(&flipped, HEADER_BYTES as u64 + 5);
    fs::remove_file(output.join("train/train-00001.idx")).unwrap();
    fs::remove_file(output.join("tokenizer/segue_tokenizer.json")).unwrap();
    assert!(Corpus::open(&output).is_err());
    let report = Corpus::open_lazily(&output).unwrap().verify(&mut |_, _| {}).unwrap();
    let bad: Vec<&str> = report.bad.iter().map(|bad| bad.file.as_str()).collect();
    let expected = ["tokenizer/segue_tokenizer.json", "train/train-00000.bin", "train/train-00001.idx"];
    assert_eq!(bad, [&expected[..], &["train/train-00001.bin"]].concat());
    assert_eq!(report.bad[1].offset, Some(good.len() as u64 - 1));
    assert!(report.bad[2].why.contains("missing"), "{}", report.bad[2].why);
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

/// Changes `corpus.json` as somebody would who knows how its fingerprint is computed.
fn rewrite(corpus: &Path, change: impl FnOnce(&mut CorpusInfo)) {
    let path = corpus.join("corpus.json");
    let mut info: CorpusInfo = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut info);
    info.fingerprint = info.computed_fingerprint();
    fs::write(path, serde_json::to_vec(&info).unwrap()).unwrap();
}

#[test]
fn names_of_files_cannot_leave_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let description = fs::read(output.join("corpus.json")).unwrap();
    // Whole files where the names lead, so that only the name can be the reason.
    fs::rename(output.join("train"), folder.path().join("elsewhere")).unwrap();
    fs::create_dir(output.join("train")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), output.join("train/link")).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    let shards = ["train-00000.bin", "train-00001.bin"];
    for prefix in [format!("{}/", elsewhere.display()), "../../elsewhere/".into(), "link/".into()] {
        fs::write(output.join("corpus.json"), &description).unwrap();
        rewrite(&output, |info| {
            for shard in &mut info.splits.get_mut(&Split::Train).unwrap().shards {
                shard.file.name = format!("{prefix}{}", shard.file.name);
                shard.index.name = format!("{prefix}{}", shard.index.name);
            }
        });
        let error = Corpus::open(&output).unwrap_err();
        assert_eq!(error.exit_code(), 65, "{error}");
        assert!(error.to_string().contains(&format!("{prefix}{}", shards[0])), "{error}");
    }

    fs::remove_dir_all(output.join("train")).unwrap();
    fs::rename(&elsewhere, output.join("train")).unwrap();
    for name in ["../../input.txt", "..", ".", "", "a\\b", "a\0b"] {
        fs::write(output.join("corpus.json"), &description).unwrap();
        rewrite(&output, |info| info.tokenizer.files[0].name = name.into());
        let error = Corpus::open(&output).unwrap_err();
        assert!(error.to_string().contains(&format!("{name:?}")), "{name:?}: {error}");
    }
    fs::write(output.join("corpus.json"), &description).unwrap();
    Corpus::open(&output).unwrap();
}

#[test]
fn a_payload_hash_that_is_none_names_no_file_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    rewrite(&output, |info| {
        for shard in &mut info.splits.get_mut(&Split::Train).unwrap().shards {
            (shard.compressed, shard.payload_blake3) = (true, "../../input".into());
        }
    });
    let error = Corpus::open(&output).unwrap_err();
    assert!(error.exit_code() == 65 && error.to_string().contains("\"../../input\""), "{error}");
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
    all_tokens(&corpus.tokens(Split::Train).unwrap());
    for (path, time) in unpacked.iter().zip(times) {
        assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), time);
    }

    fs::remove_dir_all(&cache).unwrap();
    let shard = packed.join("train/train-00000.bin.zst");
    flip(&shard, fs::metadata(&shard).unwrap().len() / 2);
    let error = corpus.tokens(Split::Train).unwrap().read(0, &mut [0]).unwrap_err();
    assert_eq!(error.exit_code(), 65, "{error}");
    assert!(
        tree(&cache).keys().all(|path| path.extension().unwrap() == "lock"),
        "nothing bad is left in the cache"
    );
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
    let mut index = IndexHeader::parse(&fs::read(&index_path).unwrap()).unwrap();
    (index.blocks, index.payload_hash) = ((2 * TOKENS).div_ceil(BLOCK_BYTES as u64), [9; 32]);
    let mut last = vec![0; (2 * TOKENS) as usize % BLOCK_BYTES];
    *last.iter_mut().rev().nth(1).unwrap() = 77;
    let mut body = vec![0; index.checked_file_bytes().unwrap() as usize - INDEX_HEADER_BYTES];
    let at = (index.blocks as usize - 1) * 32;
    body[at..at + 32].copy_from_slice(blake3::hash(&last).as_bytes());
    index.body_hash = *blake3::hash(&body).as_bytes();
    fs::write(&index_path, [index.to_bytes().as_slice(), &body].concat()).unwrap();

    let text = fs::read_to_string(output.join("corpus.json")).unwrap();
    let mut info: CorpusInfo = serde_json::from_str(&text).unwrap();
    let train = info.splits.get_mut(&Split::Train).unwrap();
    train.tokens = TOKENS;
    train.shards.truncate(1);
    train.shards[0].tokens = TOKENS;
    train.shards[0].file.bytes = header.file_bytes();
    train.shards[0].index.bytes = fs::metadata(&index_path).unwrap().len();
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
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_damaged_block_is_refused_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    // In the second block of the second shard: a byte a token, two bytes a token on disk.
    let (shard, offset) = (output.join("train/train-00001.bin"), HEADER_BYTES + BLOCK_BYTES + 1000);
    flip(&shard, offset as u64);
    let corpus = Corpus::open(&output).unwrap();
    let stream = corpus.tokens(Split::Train).unwrap();
    let (first, block) = (corpus.info().splits[&Split::Train].shards[0].tokens, BLOCK_BYTES as u64 / 2);
    let mut tokens = vec![0; 100];
    stream.read(first + block - 100, &mut tokens).unwrap();
    // The place itself, another one of its block, and a stretch that ends in it.
    for start in [first + block + 500, first + 2 * block - 100, first + block - 99] {
        let error = stream.read(start, &mut tokens).unwrap_err();
        let (message, code) = (error.to_string(), error.exit_code());
        assert!(
            message.contains("train-00001.bin") && message.contains("token 524288 of the shard"),
            "{message}"
        );
        assert_eq!(code, 65);
        assert!(error.hint().unwrap().contains("segue data verify"));
    }
    stream.read(first + 2 * block, &mut tokens).unwrap();
}

#[test]
fn a_damaged_index_is_refused_when_its_shard_is_first_used() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let index = output.join("train/train-00000.idx");
    // In the last offset of a document or sentence.
    flip(&index, fs::metadata(&index).unwrap().len() - 8);
    let corpus = Corpus::open(&output).unwrap();
    let first = corpus.info().splits[&Split::Train].shards[0].tokens;
    let stream = corpus.tokens(Split::Train).unwrap();
    let mut tokens = vec![0; 100];
    stream.read(first, &mut tokens).unwrap();
    let documents = corpus.documents(Split::Train).unwrap();
    for error in [stream.read(0, &mut tokens).unwrap_err(), documents.get(0).unwrap_err()] {
        assert!(error.to_string().contains("train-00000.idx"), "{error}");
        assert_eq!(error.exit_code(), 65);
        assert!(error.hint().unwrap().contains("copy the file back"));
    }
}

#[test]
fn a_corpus_opened_lazily_touches_the_shards_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = built(folder.path());
    fs::remove_file(output.join("train/train-00001.bin")).unwrap();
    assert_eq!(Corpus::open(&output).unwrap_err().exit_code(), 66);

    let corpus = Corpus::open_lazily(&output).unwrap();
    assert_eq!(corpus.check_headers().unwrap_err().exit_code(), 66);
    let stream = corpus.tokens(Split::Train).unwrap();
    let mut tokens = [0; 2];
    stream.read(0, &mut tokens).unwrap();
    assert_eq!(tokens, [i64::from(text[0]), i64::from(text[1])]);
    let second = corpus.info().splits[&Split::Train].shards[0].tokens;
    let error = stream.read(second - 1, &mut tokens).unwrap_err();
    assert_eq!(error.exit_code(), 66);
    assert!(error.to_string().contains("train-00001.bin"), "{error}");
    // Where it is copied back, the next read finds it.
    fs::copy(output.join("train/train-00000.bin"), output.join("train/train-00001.bin")).unwrap();
    let error = stream.read(second, &mut tokens).unwrap_err().to_string();
    assert!(error.contains("where corpus.json says"), "{error}");
}

#[test]
fn a_shard_is_unpacked_by_one_process_while_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (input, packed) = (folder.path().join("input.txt"), folder.path().join("packed"));
    fs::write(&input, sample_text(9_000)).unwrap();
    let options = options(Preset::Documents, TokenizerKind::Byte, &input, &packed);
    build(&BuildOptions { compress: true, ..options }, &()).unwrap();
    let caches = ["first", "second"].map(|name| folder.path().join(name));
    let corpora = caches.each_ref().map(|cache| Corpus::open_with_cache(&packed, cache).unwrap());
    let read = |corpus: &Corpus| all_tokens(&corpus.tokens(Split::Train).unwrap());
    let expected = read(&corpora[0]);
    let files = tree(&caches[0]);
    let name = |end: &str| files.keys().find(|path| path.extension().unwrap() == end).unwrap();

    // Somebody else unpacks the same shard: their lock is held, and the shard is there before it is released.
    fs::create_dir_all(caches[1].join("shards")).unwrap();
    let lock = File::create(caches[1].join(name("lock"))).unwrap();
    lock.lock().unwrap();
    let theirs = caches[1].join(name("bin"));
    let inode = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&corpora[1]));
        fs::copy(caches[0].join(name("bin")), theirs.with_extension("part")).unwrap();
        fs::rename(theirs.with_extension("part"), &theirs).unwrap();
        let inode = fs::metadata(&theirs).unwrap().ino();
        lock.unlock().unwrap();
        assert!(waiting.join().unwrap() == expected);
        inode
    });
    assert_eq!(fs::metadata(&theirs).unwrap().ino(), inode, "it was unpacked a second time");

    // Nothing is put where others may write, nor taken from there: they could cut a file that is mapped.
    fs::set_permissions(caches[0].join("shards"), fs::Permissions::from_mode(0o777)).unwrap();
    for is_there in [true, false] {
        assert_eq!(caches[0].join(name("bin")).exists(), is_there);
        let error = corpora[0].tokens(Split::Train).unwrap().read(0, &mut [0]).unwrap_err();
        assert_eq!(error.exit_code(), 73, "{error}");
        assert!(error.hint().unwrap().contains("SEGUE_CACHE"), "{error}");
        _ = fs::remove_file(caches[0].join(name("bin")));
    }
}

/// A corpus of `shards` shards of 100 MB, all holes.
fn sparse(output: &Path, shards: usize) -> u64 {
    let text = fs::read_to_string(output.join("corpus.json")).unwrap();
    let mut info: CorpusInfo = serde_json::from_str(&text).unwrap();
    let train = info.splits.get_mut(&Split::Train).unwrap();
    let blocks = 100;
    let tokens = (blocks * BLOCK_BYTES / 2) as u64;
    let header = ShardHeader { dtype: Dtype::U16, count: tokens, payload_hash: [9; 32] };
    let hole = blake3::hash(&vec![0; BLOCK_BYTES]);
    let index = IndexHeader {
        blocks: blocks as u64,
        documents: 0,
        sentences: 0,
        payload_hash: [9; 32],
        body_hash: *blake3::hash(&hole.as_bytes().repeat(blocks)).as_bytes(),
    };
    let index = [index.to_bytes().as_slice(), &hole.as_bytes().repeat(blocks)].concat();
    let mut shard = train.shards[0].clone();
    (shard.tokens, shard.documents, shard.sentences) = (tokens, 0, 0);
    (shard.file.bytes, shard.index.bytes) = (header.file_bytes(), index.len() as u64);
    shard.payload_blake3 = "09".repeat(32);
    train.shards.clear();
    for number in 0..shards {
        shard.file.name = format!("train-{number:05}.bin");
        shard.index.name = format!("train-{number:05}.idx");
        let mut file = File::create(output.join("train").join(&shard.file.name)).unwrap();
        file.write_all(&header.to_bytes()).unwrap();
        file.set_len(header.file_bytes()).unwrap();
        fs::write(output.join("train").join(&shard.index.name), &index).unwrap();
        train.shards.push(shard.clone());
    }
    train.tokens = tokens * shards as u64;
    info.fingerprint = info.computed_fingerprint();
    fs::write(output.join("corpus.json"), serde_json::to_string(&info).unwrap()).unwrap();
    tokens * shards as u64
}

/// Memory maps of shards and indices that this process holds of a folder.
fn maps(folder: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(folder.to_str().unwrap())).count()
}

#[test]
fn of_ten_thousand_shards_those_are_mapped_that_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = built(folder.path());
    let tokens = sparse(&output, 10_000);
    let begun = Instant::now();
    let corpus = Corpus::open_lazily(&output).unwrap();
    let stream = corpus.tokens(Split::Train).unwrap();
    let opened = begun.elapsed();
    assert_eq!((stream.len(), maps(&output)), (tokens, 0));
    for lane in 0..4 {
        stream.read(tokens / 4 * lane, &mut [0; 512]).unwrap();
    }
    assert_eq!(maps(&output), 4 * 2, "a shard and its index for each place");
    let begun = Instant::now();
    corpus.check_headers().unwrap();
    println!("10,000 shards of 100 MB: opened in {opened:?}, headers checked in {:?}", begun.elapsed());
    assert_eq!(maps(&output), 4 * 2);
}
