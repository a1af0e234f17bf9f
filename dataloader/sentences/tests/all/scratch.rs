//! Small corpora of pairs.

use std::fs;
use std::path::PathBuf;

use segue_dataloader::{Corpus, PairBuild, TokenizerChoice, build_pairs};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use tempfile::TempDir;

/// A folder with the corpus of pairs that `change` asks for; files `train.de` and `train.en` hold the lines given.
pub fn built(lines: &[(String, String)], change: impl FnOnce(PairBuild) -> PairBuild) -> (TempDir, Corpus) {
    let folder = tempfile::tempdir().unwrap();
    let side = |of: fn(&(String, String)) -> &String| {
        lines.iter().map(|pair| of(pair).clone() + "\n").collect::<String>()
    };
    fs::write(folder.path().join("train.de"), side(|pair| &pair.0)).unwrap();
    fs::write(folder.path().join("train.en"), side(|pair| &pair.1)).unwrap();
    let words = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Word));
    let (train, output): (PathBuf, PathBuf) = (folder.path().join("train"), folder.path().join("corpus"));
    let build = PairBuild::new(["de", "en"], vec![train], words, output.clone());
    build_pairs(&change(build), &()).unwrap();
    let corpus = Corpus::open(&output).unwrap();
    (folder, corpus)
}

/// Pair `n` of many: sides of one to nine words, which name it.
pub fn pair(n: usize) -> (String, String) {
    let side = |name: &str, words: usize| format!("{name}{n}{}", format!(" {name}").repeat(words));
    (side("d", n * 5 % 9), side("e", n * 7 % 9))
}
