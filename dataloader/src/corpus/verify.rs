use std::path::Path;

use segue_data_error::DataError;
use segue_tokenizer::FileInfo;
use serde::Serialize;

use super::info::{CorpusInfo, ShardInfo, Split};
use super::open::{Corpus, check_index_header, check_shard_header};
use crate::shard::{BLOCK_BYTES, HEADER_BYTES, MappedIndex, MappedShard, block_fault};

/// A file of a corpus that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadBlock {
    /// The file, relative to the corpus folder.
    pub file: String,
    /// Offset in the (uncompressed) file of the first bad block, where it is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub why: String,
}

/// What [`Corpus::verify`] found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Whether every hash is right.
    pub ok: bool,
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The fingerprint of the corpus.
    pub fingerprint: String,
    /// Everything that is wrong, one entry for each bad file.
    pub bad: Vec<BadBlock>,
}

impl Corpus {
    /// Reads every file of the corpus and checks every hash. `progress` is called with the bytes done and the
    /// bytes in all. Of a corpus from [`Corpus::open_lazily`] it names all that is damaged or missing; [`Corpus::open`] refuses the first of it.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, DataError> {
        let info = self.info();
        let mut work = Vec::new();
        for (split, part) in &info.splits {
            work.extend(part.shards.iter().map(|shard| (*split, shard)));
        }
        let of_tokenizer = info.tokenizer.files.iter().map(|file| file.bytes);
        let of_shards = work.iter().flat_map(|(_, shard)| [shard.file.bytes, shard.index.bytes]);
        // Nobody has compared them with the files yet: they may be any numbers.
        let total = of_tokenizer.chain(of_shards).fold(0, u64::saturating_add);
        let mut report = VerifyReport {
            ok: true,
            files: 0,
            bytes: 0,
            fingerprint: info.fingerprint.clone(),
            bad: Vec::new(),
        };
        progress(0, total);
        for file in &info.tokenizer.files {
            let relative = format!("tokenizer/{}", file.name);
            report.note(&relative, file, check_file(&self.dir().join(&relative), file));
            progress(report.bytes, total);
        }
        for (split, shard) in work {
            let relative = |file: &FileInfo| format!("{split}/{}", file.name);
            report.note(&relative(&shard.index), &shard.index, check_index(self, split, shard));
            report.note(&relative(&shard.file), &shard.file, check_shard(self, split, shard));
            progress(report.bytes, total);
        }
        report.ok = report.bad.is_empty();
        Ok(report)
    }
}

/// Where a file is bad: the offset where it is known, and why.
type Finding = Result<(), (Option<u64>, String)>;

impl VerifyReport {
    fn note(&mut self, relative: &str, file: &FileInfo, finding: Finding) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(file.bytes);
        if let Err((offset, why)) = finding {
            self.bad.push(BadBlock { file: relative.into(), offset, why });
        }
    }
}

fn unread(error: DataError) -> (Option<u64>, String) {
    (None, error.to_string())
}

fn check_file(path: &Path, expected: &FileInfo) -> Finding {
    let found = FileInfo::of(path).map_err(unread)?;
    if found.bytes != expected.bytes {
        return Err((None, format!("{} bytes where corpus.json says {}", found.bytes, expected.bytes)));
    }
    if found.blake3 != expected.blake3 {
        return Err((None, "its content does not match the hash in corpus.json".into()));
    }
    Ok(())
}

fn check_index(corpus: &Corpus, split: Split, shard: &ShardInfo) -> Finding {
    let path = CorpusInfo::shard_path(corpus.dir(), split, &shard.index);
    check_file(&path, &shard.index)?;
    check_index_header(corpus.dir(), split, shard).map_err(unread)?;
    MappedIndex::open(&path).and_then(|index| index.verify()).map_err(unread)
}

fn check_shard(corpus: &Corpus, split: Split, shard: &ShardInfo) -> Finding {
    let path = CorpusInfo::shard_path(corpus.dir(), split, &shard.file);
    if shard.compressed {
        // Compressed blocks have no borders that token offsets could name: the file is right or wrong as a whole.
        return check_file(&path, &shard.file);
    }
    let mapped = MappedShard::open(&path).map_err(|e| {
        // A shard cut short is bad from where it ends.
        let length = std::fs::metadata(&path).map(|m| m.len()).ok();
        (length.map(|found| if found < shard.file.bytes { found } else { 0 }), e.to_string())
    })?;
    if blake3::Hasher::new().update_rayon(mapped.file()).finalize().to_hex().as_str() == shard.file.blake3 {
        return check_shard_header(corpus.dir(), corpus.info(), split, shard).map_err(unread);
    }
    let index = CorpusInfo::shard_path(corpus.dir(), split, &shard.index);
    match MappedIndex::open(&index) {
        Ok(index) => Err(first_bad_block(&mapped, &index)),
        Err(e) => Err((None, format!("its hash is wrong, and its index cannot say where: {e}"))),
    }
}

/// Finds the first block of a bad shard whose hash is not the recorded one.
fn first_bad_block(shard: &MappedShard, index: &MappedIndex) -> (Option<u64>, String) {
    for block in 0..shard.payload().len().div_ceil(BLOCK_BYTES) {
        if let Some(why) = block_fault(shard, index, block) {
            return (Some((HEADER_BYTES + block * BLOCK_BYTES) as u64), why);
        }
    }
    (Some(0), "its header is not the one that was written".into())
}
