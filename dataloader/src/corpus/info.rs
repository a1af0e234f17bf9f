use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use segue_data_error::DataError;
use segue_tokenizer::FileInfo;
use serde::{Deserialize, Serialize};

use super::pairs::{PairCounts, PairSides};

/// Name of the file that describes a corpus.
pub const CORPUS_FILE: &str = "corpus.json";
/// The version of `corpus.json` this code writes and the only one it reads.
pub const CORPUS_VERSION: u32 = 1;
/// The largest vocabulary whose ids fit in 16 bits.
const U16_IDS: usize = 1 << 16;

/// Width of a token id on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 16 bits, for vocabularies of up to 65,536 ids.
    U16,
    /// 32 bits.
    U32,
}

impl Dtype {
    /// The narrowest width that holds every id of a vocabulary.
    pub fn for_vocabulary(size: usize) -> Dtype {
        if size <= U16_IDS { Dtype::U16 } else { Dtype::U32 }
    }

    /// Bytes of one token id.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::U16 => 2,
            Dtype::U32 => 4,
        }
    }

    /// Appends ids as a shard holds them; they fit, because they are within the vocabulary.
    pub(crate) fn pack(self, ids: &[u32], payload: &mut Vec<u8>) {
        match self {
            Dtype::U16 => payload.extend(ids.iter().flat_map(|id| (*id as u16).to_le_bytes())),
            Dtype::U32 => payload.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
        }
    }

    pub(crate) fn from_bytes(width: u32) -> Option<Dtype> {
        match width {
            2 => Some(Dtype::U16),
            4 => Some(Dtype::U32),
            _ => None,
        }
    }
}

/// The parts of a corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// What the model learns from.
    Train,
    /// What decisions during training are made on.
    Valid,
    /// What the final figures are from.
    Test,
}

impl Split {
    /// All splits, in the order in which they are built.
    pub const ALL: [Split; 3] = [Split::Train, Split::Valid, Split::Test];

    /// The split's folder and its name in `corpus.json`.
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Split {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Split, DataError> {
        Split::ALL.into_iter().find(|split| split.name() == name).ok_or_else(|| {
            DataError::Usage(format!("unknown split `{name}`\nhint: choose train, valid or test"))
        })
    }
}

/// One shard of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInfo {
    /// The shard's file in the split's folder.
    pub file: FileInfo,
    /// Its index file.
    pub index: FileInfo,
    /// Whether the file is compressed with zstd.
    pub compressed: bool,
    /// Number of token ids.
    pub tokens: u64,
    /// Number of documents that begin in this shard.
    pub documents: u64,
    /// Number of sentences that begin in this shard.
    pub sentences: u64,
    /// BLAKE3 of the uncompressed payload, in hexadecimal.
    pub payload_blake3: String,
}

/// One split: its size and its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitInfo {
    /// Number of token ids, end-of-sentence tokens included.
    pub tokens: u64,
    /// Number of documents.
    pub documents: u64,
    /// Number of sentences (lines that hold text).
    pub sentences: u64,
    /// Bytes of the source text, line ends included: the divisor of bits per byte.
    pub bytes: u64,
    /// Characters (Unicode scalar values) of the source text, line ends included.
    pub chars: u64,
    /// Tokens that stand for something outside the vocabulary.
    pub unknown: u64,
    /// Invalid UTF-8 sequences that were replaced by U+FFFD.
    pub replaced: u64,
    /// Of pairs of sentences, what became of those in the input. Not part of the fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairCounts>,
    /// The shards in order.
    pub shards: Vec<ShardInfo>,
}

/// What the ids of a corpus mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerInfo {
    /// The tokenizer's kind.
    pub kind: String,
    /// The tokenizer's fingerprint.
    pub fingerprint: String,
    /// Number of ids.
    pub vocab_size: usize,
    /// Id that ends sentences or documents.
    pub eos_id: Option<u32>,
    /// Id that stands for what the vocabulary lacks.
    pub unk_id: Option<u32>,
    /// The tokenizer's files in the `tokenizer` folder of the corpus.
    pub files: Vec<FileInfo>,
}

/// The content of `corpus.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusInfo {
    /// Always `segue-corpus`.
    pub format: String,
    /// Version of this file.
    pub version: u32,
    /// Name of the preset the corpus was built with.
    pub preset: String,
    /// Width of a token id in the shards.
    pub dtype: Dtype,
    /// Number of ids.
    pub vocab_size: usize,
    /// The tokenizer.
    pub tokenizer: TokenizerInfo,
    /// Of pairs of sentences, what their sides are. Not part of the fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairSides>,
    /// The splits by name.
    pub splits: BTreeMap<Split, SplitInfo>,
    /// Names the content: BLAKE3 over the tokenizer's fingerprint and every split's counts and payload hashes.
    /// Compressed and plain shards of the same tokens have the same fingerprint.
    pub fingerprint: String,
}

impl CorpusInfo {
    pub(crate) const FORMAT: &str = "segue-corpus";

    /// The fingerprint that the rest of the content should have; [`Corpus::open`](super::Corpus::open) checks it.
    pub fn computed_fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut line = |text: String| {
            hasher.update(text.as_bytes());
            hasher.update(b"\n");
        };
        line(format!("{} {}", Self::FORMAT, self.version));
        line(format!("{} {:?} {}", self.preset, self.dtype, self.vocab_size));
        line(self.tokenizer.fingerprint.clone());
        for (split, info) in &self.splits {
            let SplitInfo { tokens, documents, sentences, bytes, chars, unknown, replaced, pairs: _, shards } =
                info;
            line(format!(
                "{split} {tokens} {documents} {sentences} {bytes} {chars} {unknown} {replaced} {}",
                shards.len()
            ));
            for shard in shards {
                line(format!("{} {} {}", shard.tokens, shard.payload_blake3, shard.index.blake3));
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Reads `corpus.json` of a folder and checks that it is of this format and unaltered.
    pub(crate) fn read(dir: &Path) -> Result<CorpusInfo, DataError> {
        let path = dir.join(CORPUS_FILE);
        let text = segue_publish::read_regular(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => DataError::Missing {
                path: path.clone(),
                why: if super::open::is_unfinished(dir) {
                    "the build of this corpus has not come to its end\nhint: run the same `segue data build` again, which goes on or says why it cannot"
                        .into()
                } else {
                    "\nhint: make a corpus with `segue data build`".into()
                },
            },
            _ => DataError::Read { path: path.clone(), source },
        })?;
        #[derive(Deserialize)]
        struct Envelope {
            format: String,
            version: u32,
        }
        let envelope: Envelope =
            serde_json::from_slice(&text).map_err(|e| DataError::corpus(&path, e.to_string()))?;
        if envelope.format != Self::FORMAT {
            let why = format!("its format is `{}`, not `{}`", envelope.format, Self::FORMAT);
            return Err(DataError::corpus(&path, why));
        }
        if envelope.version != CORPUS_VERSION {
            let why = format!(
                "its version is {}, expected {CORPUS_VERSION}\nhint: build the corpus again",
                envelope.version
            );
            return Err(DataError::corpus(&path, why));
        }
        let info: CorpusInfo =
            serde_json::from_slice(&text).map_err(|e| DataError::corpus(&path, e.to_string()))?;
        if info.computed_fingerprint() != info.fingerprint {
            let why = "its counts and hashes do not match its fingerprint, so it was altered after the build";
            return Err(DataError::corpus(&path, why));
        }
        info.check_names().map_err(|why| DataError::corpus(&path, why))?;
        Ok(info)
    }

    /// Checks that every file lies in its own folder of the corpus, and that a payload's hash, which names a file in
    /// the cache, is one: whoever wrote `corpus.json` chose both, and the fingerprint with them.
    fn check_names(&self) -> Result<(), String> {
        let shards = || self.splits.values().flat_map(|split| &split.shards);
        let files = shards().flat_map(|shard| [&shard.file, &shard.index]);
        for FileInfo { name, .. } in files.chain(&self.tokenizer.files) {
            if !is_file_name(name) {
                return Err(format!("it lists the file {name:?}, which is not a name inside its folder"));
            }
        }
        for ShardInfo { payload_blake3: hash, .. } in shards() {
            if blake3::Hash::from_hex(hash).is_err() {
                return Err(format!("it gives {hash:?} for the hash of a payload"));
            }
        }
        Ok(())
    }

    /// Publishes `corpus.json` in a folder.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), DataError> {
        let mut text =
            serde_json::to_vec_pretty(self).map_err(|e| DataError::write(dir, std::io::Error::other(e)))?;
        text.push(b'\n');
        Ok(segue_publish::write_file(&dir.join(CORPUS_FILE), &text)?)
    }

    /// The path of a shard's file.
    pub(crate) fn shard_path(dir: &Path, split: Split, file: &FileInfo) -> PathBuf {
        dir.join(split.name()).join(&file.name)
    }
}

/// Whether a name that a file lists is that of a file beside it: nothing that leads out of the folder.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != "." && name != ".."
}
