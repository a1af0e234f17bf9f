//! Corpora of sentence pairs: what is read side by side, what is kept, and what is refused.

mod kept;
mod refused;

use std::fs;
use std::io::Write;
use std::path::Path;

use segue_dataloader::{Corpus, PairBuild, Split, TokenizerChoice};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use tempfile::TempDir;

use crate::scratch::all_tokens;

pub fn words() -> TokenizerChoice {
    TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Word))
}

/// A folder with files `train.de` and `train.en`.
pub fn files(source: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.de"), source).unwrap();
    fs::write(folder.path().join("train.en"), target).unwrap();
    folder
}

pub fn options(folder: &Path) -> PairBuild {
    PairBuild::new(["de", "en"], vec![folder.join("train")], words(), folder.join("corpus"))
}

/// The pairs of a split as text.
pub fn pairs(folder: &Path, split: Split) -> Vec<(String, String)> {
    let corpus = Corpus::open(&folder.join("corpus")).unwrap();
    let (tokens, tokenizer) = (all_tokens(&corpus.tokens(split).unwrap()), corpus.tokenizer().unwrap());
    let (documents, sentences) = (corpus.documents(split).unwrap(), corpus.sentences(split).unwrap());
    assert_eq!(sentences.len(), 2 * documents.len());
    let eos = i64::from(tokenizer.eos_id().unwrap());
    let place = |n| sentences.get(n).unwrap().unwrap_or(tokens.len() as u64) as usize;
    let side = |n| {
        let (end, ids) = tokens[place(n)..place(n + 1)].split_last().unwrap();
        assert_eq!(*end, eos);
        tokenizer.decode_signed(ids)
    };
    let pair = |n| {
        assert_eq!(documents.get(n).unwrap(), sentences.get(2 * n).unwrap());
        (side(2 * n), side(2 * n + 1))
    };
    (0..documents.len()).map(pair).collect()
}

pub fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content.as_ref()).unwrap();
    encoder.finish().unwrap()
}
