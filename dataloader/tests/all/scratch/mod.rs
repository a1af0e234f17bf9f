//! What several tests need: finished corpora compared byte for byte, small inputs.
#![allow(dead_code)]

pub mod models;
#[path = "../../../tokenizer/tests/all/scratch/mod.rs"]
pub mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use segue_dataloader::{BuildOptions, Preset, Split, TokenStream, TokenizerChoice};
use segue_tokenizer::{TokenizerKind, TrainOptions};

/// Every file of a folder with its content, by its path relative to the folder.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Options for a corpus with a tokenizer trained on its own text.
pub fn options(preset: Preset, kind: TokenizerKind, train: &Path, output: &Path) -> BuildOptions {
    let mut training = TrainOptions::new(kind);
    if matches!(kind, TokenizerKind::Bpe | TokenizerKind::Unigram) {
        training.vocab_size = Some(400);
    }
    BuildOptions {
        tokenizer: TokenizerChoice::Train(training),
        ..BuildOptions::new(preset, vec![train.into()], output.into())
    }
}

/// All tokens of a stream.
pub fn all_tokens(stream: &TokenStream) -> Vec<i64> {
    let mut tokens = vec![0; stream.len() as usize];
    stream.read(0, &mut tokens).unwrap();
    tokens
}

/// All tokens of a split of a corpus folder.
pub fn tokens_of(folder: &Path, split: Split) -> Vec<i64> {
    let corpus = segue_dataloader::Corpus::open(folder).unwrap();
    all_tokens(&corpus.tokens(split).unwrap())
}
