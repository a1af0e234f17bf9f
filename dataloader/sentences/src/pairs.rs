use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_dataloader::{Boundaries, Corpus, Preset, Split, TokenStream};

use crate::group::group_by_length;

/// A sentence and its translation in token ids, each with the end-of-sentence token at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// What is translated.
    pub source: Vec<i64>,
    /// What it is translated to.
    pub target: Vec<i64>,
}

/// The pairs of a split, numbered from 0 in the order of the files that the corpus was built from. Tokens are read from
/// memory maps when they are asked for; the lengths of all pairs are in memory, eight bytes a pair.
#[derive(Debug)]
pub struct SentencePairs {
    dir: PathBuf,
    stream: TokenStream,
    /// Where sides begin: the source of pair `n` is sentence `2 n`, its target `2 n + 1`.
    sides: Boundaries,
    /// Tokens of source and target, ends included.
    lengths: Vec<[u32; 2]>,
}

impl SentencePairs {
    /// Opens a split of a corpus of pairs.
    ///
    /// # Errors
    ///
    /// A corpus of another preset, and one whose indices do not give two sides for each pair.
    pub fn open(corpus: &Corpus, split: Split) -> Result<SentencePairs, DataError> {
        check_preset(corpus)?;
        let dir = corpus.dir();
        let (stream, sides) = (corpus.tokens(split)?, corpus.sentences(split)?);
        let lengths = lengths_of(dir, &stream, &corpus.documents(split)?, &sides)?;
        Ok(SentencePairs { dir: dir.into(), stream, sides, lengths })
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none; never so after [`SentencePairs::open`].
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The corpus folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Tokens of the source and the target of pair `n`, which is below [`SentencePairs::len`], with their ends.
    pub fn lengths(&self, n: u32) -> (usize, usize) {
        let [source, target] = self.lengths[n as usize];
        (source as usize, target as usize)
    }

    /// Tokens of the longer side of pair `n`, with its end.
    pub fn longest(&self, n: u32) -> usize {
        let (source, target) = self.lengths(n);
        source.max(target)
    }

    /// Pair `n`.
    pub fn get(&self, n: u32) -> Result<Pair, DataError> {
        let out_of_range =
            || DataError::OutOfRange { start: n.into(), end: u64::from(n) + 1, total: self.len() as u64 };
        let (source, target) = match self.lengths.get(n as usize) {
            Some([source, target]) => (*source as usize, *target as usize),
            None => return Err(out_of_range()),
        };
        let begin = self.sides.get(2 * u64::from(n))?.ok_or_else(out_of_range)?;
        let mut whole = vec![0; source + target];
        self.stream.read(begin, &mut whole)?;
        let target = whole.split_off(source);
        Ok(Pair { source: whole, target })
    }

    /// All pairs in the order of an evaluation: see [`group_by_length`]. The length of a pair is that of its longer side.
    pub fn by_length(&self, max_tokens: usize, max_rows: usize) -> Vec<Vec<u32>> {
        let longest: Vec<u32> = self.lengths.iter().map(|[source, target]| *source.max(target)).collect();
        group_by_length(&longest, max_tokens, max_rows)
    }
}

/// Refuses a corpus that holds no pairs of sentences.
pub fn check_preset(corpus: &Corpus) -> Result<(), DataError> {
    let preset = &corpus.info().preset;
    if *preset == Preset::Pairs.name() {
        return Ok(());
    }
    let why = format!(
        "it holds no pairs of sentences, its preset is `{preset}`\nhint: build one with `segue data build --preset pairs --source de \
         --target en --train PREFIX --tokenizer-kind bpe --output FOLDER`"
    );
    Err(DataError::corpus(corpus.dir(), why))
}

/// Tokens of both sides of every pair, of indices that are checked on the way: `corpus.json` and the indices may be of
/// anybody's making.
fn lengths_of(
    dir: &Path,
    stream: &TokenStream,
    pairs: &Boundaries,
    sides: &Boundaries,
) -> Result<Vec<[u32; 2]>, DataError> {
    let bad = |why: String| DataError::corpus(dir, format!("{why}\nhint: build it again"));
    if pairs.len().checked_mul(2) != Some(sides.len()) || pairs.len() > u64::from(u32::MAX) {
        return Err(bad(format!("it has {} sentences in {} pairs", sides.len(), pairs.len())));
    }
    let mut lengths = Vec::new();
    let mut begin = 0;
    for pair in 0..pairs.len() {
        let middle = sides.get(2 * pair + 1)?;
        let end = sides.get(2 * pair + 2)?.unwrap_or(stream.len());
        let length = |from: u64, to: u64| {
            let length = to.checked_sub(from).and_then(|length| u32::try_from(length).ok());
            length.filter(|length| *length > 0 && to <= stream.len())
        };
        let of_pair = middle.and_then(|middle| Some([length(begin, middle)?, length(middle, end)?]));
        match of_pair {
            Some(of_pair) if pairs.get(pair)? == Some(begin) => lengths.push(of_pair),
            _ => return Err(bad(format!("its index gives no two sides for pair {pair}"))),
        }
        begin = end;
    }
    Ok(lengths)
}
