//! What several tests need: small inputs, finished corpora compared byte for byte, the shared data sets.
#![allow(dead_code)]

pub mod models;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use segue_dataloader::{
    BuildOptions, Preset, Split, TokenStream, TokenizerChoice, TokenizerKind, TrainOptions,
};

/// A file of the shared data sets, or `None`, said in a line, where they are not on this machine.
pub fn shared_data(relative: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(relative);
    if !path.exists() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("the shared data set {relative}"));
        return None;
    }
    Some(path)
}

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

/// Text of many lines and articles, the same for the same number of lines.
pub fn sample_text(lines: usize) -> String {
    let words = ["the", "of", "lobster", "ocean", "Ünïcode", "<unk>", "1998", ",", ".", "it", "中文", "is"];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut text = String::new();
    for line in 0..lines {
        match line % 40 {
            0 => text.push_str(&format!(" \n = Article {line} = \n")),
            20 => text.push_str(" = = Section = = \n"),
            _ => {
                for _ in 0..12 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    text.push(' ');
                    text.push_str(words[(state >> 33) as usize % words.len()]);
                }
                text.push_str(" \n");
            }
        }
    }
    text
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
