use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use segue_data_error::DataError;
use segue_tokenizer::{Tokenizer, TokenizerKind};

use super::info::{CorpusInfo, Dtype, ShardInfo, Split, SplitInfo};
use super::stream::{Boundaries, Indexed, Symbol, Text, TokenStream};
use super::unpack::{default_cache, unpack};
use crate::preset::Preset;
use crate::shard::{
    CheckedShard, HEADER_BYTES, INDEX_HEADER_BYTES, IndexHeader, Lazy, MappedIndex, MappedShard, ShardHeader,
};

/// The folder of an unfinished build inside its output folder.
pub(crate) const BUILD_FOLDER: &str = ".build";
/// The folder of the tokenizer's files inside a corpus.
pub(crate) const TOKENIZER_FOLDER: &str = "tokenizer";

/// An opened corpus. Cloning shares it.
///
/// Opening reads `corpus.json` and the headers of the shards, never their tokens. Tokens are checked against their hashes
/// as they are read, the index of a shard whole when it is first used; [`Corpus::verify`] is what reads everything.
///
/// ```no_run
/// use segue_dataloader::{Corpus, Split};
///
/// let corpus = Corpus::open("wikitext-103".as_ref())?;
/// let train = corpus.tokens(Split::Train)?;
/// let mut ids = vec![0; 150];
/// train.read(0, &mut ids)?;
/// println!("{}", corpus.tokenizer()?.decode_signed(&ids));
/// # Ok::<(), segue_data_error::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Corpus {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    cache: PathBuf,
    info: CorpusInfo,
    /// Those that have been used, and checked.
    indices: Mutex<BTreeMap<(Split, usize), Arc<MappedIndex>>>,
}

impl Corpus {
    /// Opens a corpus; compressed shards are unpacked into the user's cache folder when they are first used
    /// (`SEGUE_CACHE`, or `segue` in `XDG_CACHE_HOME` or `~/.cache`).
    pub fn open(dir: &Path) -> Result<Corpus, DataError> {
        Corpus::open_with_cache(dir, &default_cache())
    }

    /// Opens a corpus whose compressed shards are unpacked into the given folder.
    pub fn open_with_cache(dir: &Path, cache: &Path) -> Result<Corpus, DataError> {
        let corpus = Corpus::describe(dir, cache)?;
        corpus.check_headers()?;
        Ok(corpus)
    }

    /// Opens a corpus of which `corpus.json` alone is read: what else is there is checked when it is first used, by
    /// [`Corpus::check_headers`] on one rank for all, or by [`Corpus::verify`].
    pub fn open_lazily(dir: &Path) -> Result<Corpus, DataError> {
        Corpus::describe(dir, &default_cache())
    }

    fn describe(dir: &Path, cache: &Path) -> Result<Corpus, DataError> {
        let info = CorpusInfo::read(dir)?;
        if info.splits.values().all(|split| split.tokens == 0) {
            return Err(DataError::corpus(
                dir,
                "it is empty\nhint: build it again from inputs that hold text",
            ));
        }
        for (split, part) in &info.splits {
            check_counts(dir, &info, *split, part)?;
        }
        let indices = Mutex::default();
        Ok(Corpus { inner: Arc::new(Inner { dir: dir.into(), cache: cache.into(), info, indices }) })
    }

    /// Checks that every file is there, and its size and header.
    pub fn check_headers(&self) -> Result<(), DataError> {
        for (split, part) in &self.info().splits {
            for shard in &part.shards {
                check_shard_header(self.dir(), self.info(), *split, shard)?;
                check_index_header(self.dir(), *split, shard)?;
            }
        }
        Ok(())
    }

    /// The content of `corpus.json`.
    pub fn info(&self) -> &CorpusInfo {
        &self.inner.info
    }

    /// Number of ids.
    pub fn vocab_size(&self) -> usize {
        self.inner.info.vocab_size
    }

    /// Names the content: a checkpoint that stores it can tell that it goes on with the same data.
    pub fn fingerprint(&self) -> &str {
        &self.inner.info.fingerprint
    }

    /// The corpus folder.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// The folder of the tokenizer's files.
    pub fn tokenizer_dir(&self) -> PathBuf {
        self.inner.dir.join(TOKENIZER_FOLDER)
    }

    /// Loads the tokenizer and checks that it is the one the corpus was built with.
    pub fn tokenizer(&self) -> Result<Tokenizer, DataError> {
        let dir = self.tokenizer_dir();
        let tokenizer = Tokenizer::load(&dir)?;
        let (found, expected) = (tokenizer.fingerprint(), &self.inner.info.tokenizer.fingerprint);
        if found != *expected {
            let why = format!("its fingerprint is {found}, the corpus was built with {expected}");
            return Err(DataError::tokenizer(&dir, why));
        }
        Ok(tokenizer)
    }

    /// The tokens of a split. Shards are mapped, and compressed ones unpacked, when they are first read.
    pub fn tokens(&self, split: Split) -> Result<TokenStream, DataError> {
        let part = self.part(split)?;
        let lazy = |number: usize| {
            let corpus = self.clone();
            Lazy::new(move || corpus.map_shard(split, number))
        };
        let shards = part.shards.iter().enumerate().map(|(number, shard)| (shard.tokens, lazy(number)));
        let text = Text { bytes: part.bytes, chars: part.chars, symbol: self.symbol() };
        Ok(TokenStream::new(shards.collect(), text))
    }

    /// What of the text each token stands for, where that is one thing.
    fn symbol(&self) -> Option<Symbol> {
        let info = self.info();
        match info.tokenizer.kind.as_str() {
            kind if kind == TokenizerKind::Byte.name() => Some(Symbol::Byte),
            kind if kind == TokenizerKind::Char.name() => Some(Symbol::Character),
            // Symbols between white space are words to the tokenizer.
            kind if kind == TokenizerKind::Word.name() && info.preset == Preset::PtbChar.name() => {
                Some(Symbol::Character)
            }
            _ => None,
        }
    }

    fn map_shard(&self, split: Split, number: usize) -> Result<CheckedShard, DataError> {
        let shard = &self.part(split)?.shards[number];
        let stored = CorpusInfo::shard_path(self.dir(), split, &shard.file);
        let path = match shard.compressed {
            true => unpack(&stored, shard, self.inner.info.dtype, &self.inner.cache)?,
            false => stored,
        };
        let mapped = MappedShard::open(&path)?;
        compare_header(mapped.path(), mapped.header(), &self.inner.info, shard)?;
        let remedy = match shard.compressed {
            true => "remove this file: it is unpacked from the corpus again",
            false => {
                "find all that is damaged with `segue data verify`; copy the files back, or build the corpus again"
            }
        };
        Ok(CheckedShard::new(mapped, self.map_index(split, number)?, remedy))
    }

    /// The index of a shard, which tokens and boundaries share. It is read once, when either is first asked for: a flipped bit in it would
    /// move a document unseen.
    fn map_index(&self, split: Split, number: usize) -> Result<Arc<MappedIndex>, DataError> {
        let known = || self.inner.indices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = known().get(&(split, number)) {
            return Ok(Arc::clone(index));
        }
        let shard = &self.part(split)?.shards[number];
        let path = CorpusInfo::shard_path(self.dir(), split, &shard.index);
        let index = MappedIndex::open(&path)?;
        compare_index_header(&path, index.header(), shard)?;
        index.verify()?;
        // Others may have been quicker meanwhile, and all share the first.
        Ok(Arc::clone(known().entry((split, number)).or_insert_with(|| Arc::new(index))))
    }

    /// The token offsets at which the documents of a split begin.
    pub fn documents(&self, split: Split) -> Result<Boundaries, DataError> {
        Ok(Boundaries::documents(self.indices(split, |shard| shard.documents)?))
    }

    /// The token offsets at which the sentences (lines that hold text) of a split begin.
    pub fn sentences(&self, split: Split) -> Result<Boundaries, DataError> {
        Ok(Boundaries::sentences(self.indices(split, |shard| shard.sentences)?))
    }

    fn indices(&self, split: Split, entries: fn(&ShardInfo) -> u64) -> Result<Vec<Indexed>, DataError> {
        let indexed = |(number, shard): (usize, &ShardInfo)| {
            let corpus = self.clone();
            let index = Lazy::new(move || corpus.map_index(split, number));
            Indexed { tokens: shard.tokens, entries: entries(shard), index }
        };
        Ok(self.part(split)?.shards.iter().enumerate().map(indexed).collect())
    }

    fn part(&self, split: Split) -> Result<&SplitInfo, DataError> {
        self.inner
            .info
            .splits
            .get(&split)
            .filter(|part| part.tokens > 0)
            .ok_or_else(|| DataError::EmptySplit { path: self.dir().into(), split: split.name() })
    }
}

/// Whether a folder holds a build that was interrupted.
pub(crate) fn is_unfinished(dir: &Path) -> bool {
    dir.join(BUILD_FOLDER).is_dir()
}

fn check_counts(dir: &Path, info: &CorpusInfo, split: Split, part: &SplitInfo) -> Result<(), DataError> {
    let sum = part.shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(shard.tokens));
    let fits = |of: fn(&ShardInfo) -> u64| {
        part.shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(of(shard))).is_some()
    };
    let why = if !fits(|shard| shard.documents) || !fits(|shard| shard.sentences) {
        format!("the shards of {split} have more documents or sentences than can be counted")
    } else if sum != Some(part.tokens) {
        format!("the shards of {split} do not add up to its {} tokens", part.tokens)
    } else if info.dtype != Dtype::for_vocabulary(info.vocab_size) {
        format!("ids of a vocabulary of {} cannot be stored as {:?}", info.vocab_size, info.dtype)
    } else {
        return Ok(());
    };
    Err(DataError::corpus(dir, why))
}

/// Checks the size of a shard's file and, where it is not compressed, its header.
pub(super) fn check_shard_header(
    dir: &Path,
    info: &CorpusInfo,
    split: Split,
    shard: &ShardInfo,
) -> Result<(), DataError> {
    let path = CorpusInfo::shard_path(dir, split, &shard.file);
    let mut file = open_part(&path)?;
    check_size(&path, &file, shard.file.bytes)?;
    if shard.compressed {
        return Ok(());
    }
    let mut start = [0; HEADER_BYTES];
    file.read_exact(&mut start).map_err(|e| DataError::read(&path, e))?;
    let header = ShardHeader::parse(&start).map_err(|why| DataError::shard(&path, why))?;
    compare_header(&path, &header, info, shard)
}

fn compare_header(
    path: &Path,
    header: &ShardHeader,
    info: &CorpusInfo,
    shard: &ShardInfo,
) -> Result<(), DataError> {
    let hash = blake3::Hash::from_bytes(header.payload_hash).to_hex();
    let why = if header.dtype != info.dtype {
        format!("its token ids are {:?}, those of the corpus {:?}", header.dtype, info.dtype)
    } else if header.count != shard.tokens {
        format!("it has {} tokens where corpus.json says {}", header.count, shard.tokens)
    } else if hash.as_str() != shard.payload_blake3 {
        "it is the shard of another corpus: its payload's hash is not the one in corpus.json".into()
    } else {
        return Ok(());
    };
    Err(DataError::shard(path, why))
}

/// Checks the size of the file of a shard's index, and its header.
pub(super) fn check_index_header(dir: &Path, split: Split, shard: &ShardInfo) -> Result<(), DataError> {
    let path = CorpusInfo::shard_path(dir, split, &shard.index);
    let mut file = open_part(&path)?;
    check_size(&path, &file, shard.index.bytes)?;
    let mut start = [0; INDEX_HEADER_BYTES];
    file.read_exact(&mut start).map_err(|e| DataError::read(&path, e))?;
    let header = IndexHeader::parse(&start).map_err(|why| DataError::shard(&path, why))?;
    compare_index_header(&path, &header, shard)
}

fn compare_index_header(path: &Path, header: &IndexHeader, shard: &ShardInfo) -> Result<(), DataError> {
    if blake3::Hash::from_bytes(header.payload_hash).to_hex().as_str() != shard.payload_blake3 {
        return Err(DataError::shard(path, "it is the index of another shard"));
    }
    if header.documents != shard.documents || header.sentences != shard.sentences {
        return Err(DataError::shard(path, "its counts of documents and sentences differ from corpus.json"));
    }
    Ok(())
}

fn open_part(path: &Path) -> Result<File, DataError> {
    segue_publish::open_regular(path).map_err(|e| crate::shard::missing_part(path, e))
}

fn check_size(path: &Path, file: &File, expected: u64) -> Result<(), DataError> {
    let found = file.metadata().map_err(|e| DataError::read(path, e))?.len();
    if found == expected {
        return Ok(());
    }
    let what = if found < expected { "truncated" } else { "too long" };
    Err(DataError::shard(path, format!("it is {what}: {found} bytes where corpus.json says {expected}")))
}
