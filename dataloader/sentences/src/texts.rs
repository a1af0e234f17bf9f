use std::path::Path;

use segue_data_error::DataError;
use segue_dataloader::{Boundaries, Corpus, Preset, Split, TokenStream};

use crate::group::group_by_length;

/// Presets whose sentences are lines, each with the end-of-sentence token behind it.
const PRESETS: [Preset; 2] = [Preset::Sentences, Preset::Ptb];

/// The sentences of a split, numbered from 0 in the order of the files that the corpus was built from, each with the end-of-sentence token at its end and none of
/// more than so many tokens. Tokens are read from memory maps when they are asked for; lengths are in memory, four bytes a sentence.
#[derive(Debug)]
pub struct SentenceTexts {
    stream: TokenStream,
    begins: Boundaries,
    lengths: Vec<u32>,
    cut: usize,
}

impl SentenceTexts {
    /// Opens a split of a corpus. Of a sentence the first `most` tokens are read; 0 reads whole ones.
    ///
    /// # Errors
    ///
    /// A corpus whose sentences are no lines, and one whose index does not give a token at least to each.
    pub fn open(corpus: &Corpus, split: Split, most: usize) -> Result<SentenceTexts, DataError> {
        let dir = corpus.dir();
        let preset = &corpus.info().preset;
        if !PRESETS.iter().any(|known| preset == known.name()) {
            let why = format!(
                "its preset is `{preset}`, whose lines are no sentences that end in a token\nhint: build one with `segue data build --preset sentences`"
            );
            return Err(DataError::corpus(dir, why));
        }
        let (stream, begins) = (corpus.tokens(split)?, corpus.sentences(split)?);
        let mut lengths = lengths_of(dir, &stream, &begins)?;
        let most = if most == 0 { usize::MAX } else { most };
        let cut = lengths.iter().filter(|length| **length as usize > most).count();
        for length in &mut lengths {
            *length = (*length as usize).min(most) as u32;
        }
        Ok(SentenceTexts { stream, begins, lengths, cut })
    }

    /// Number of sentences.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none; never so after [`SentenceTexts::open`].
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// How many sentences lost their end.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Tokens of each sentence that are read.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Tokens of sentence `n`.
    pub fn get(&self, n: u32) -> Result<Vec<i64>, DataError> {
        let total = self.len() as u64;
        let out_of_range = || DataError::OutOfRange { start: n.into(), end: u64::from(n) + 1, total };
        let length = *self.lengths.get(n as usize).ok_or_else(out_of_range)?;
        let begin = self.begins.get(u64::from(n))?.ok_or_else(out_of_range)?;
        let mut tokens = vec![0; length as usize];
        self.stream.read(begin, &mut tokens)?;
        Ok(tokens)
    }

    /// All sentences in the order of an evaluation: see [`group_by_length`].
    pub fn by_length(&self, max_tokens: usize, max_rows: usize) -> Vec<Vec<u32>> {
        group_by_length(&self.lengths, max_tokens, max_rows)
    }
}

/// Tokens of each sentence, of an index that is checked on the way: `corpus.json` and the index may be of anybody's making.
fn lengths_of(dir: &Path, stream: &TokenStream, begins: &Boundaries) -> Result<Vec<u32>, DataError> {
    let bad = |why: String| DataError::corpus(dir, format!("{why}\nhint: build it again"));
    if begins.is_empty() || begins.len() > u64::from(u32::MAX) {
        return Err(bad(format!("it has {} sentences", begins.len())));
    }
    let mut lengths = Vec::new();
    let mut begin = begins.get(0)?;
    for sentence in 0..begins.len() {
        let end = begins.get(sentence + 1)?.unwrap_or(stream.len());
        let length = begin.and_then(|begin| end.checked_sub(begin)).filter(|length| *length > 0);
        let length = length.filter(|_| end <= stream.len()).and_then(|length| u32::try_from(length).ok());
        lengths.push(length.ok_or_else(|| bad(format!("its index gives no token for sentence {sentence}")))?);
        begin = Some(end);
    }
    Ok(lengths)
}
