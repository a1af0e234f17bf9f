use std::fs;
use std::path::Path;

use super::huggingface::HuggingFaceTokenizer;
use super::interface::{EOS, Model, Tokenizer, TokenizerKind, UNK};
use super::words::WordTokenizer;
use crate::error::DataError;
use crate::spiece::SentencePiece;

impl Tokenizer {
    /// Makes a tokenizer from a file of another program, told by its name: `*.json` is a Hugging Face
    /// `tokenizer.json`, `*.model` a SentencePiece model, anything else a vocabulary list.
    ///
    /// A vocabulary list has one word per line, in the order of the ids; what follows the word after white space (a
    /// count) is ignored. `<unk>` and `<eos>` are appended where the list lacks them.
    pub fn import(path: &Path) -> Result<Tokenizer, DataError> {
        let content = fs::read(path).map_err(|e| DataError::read(path, e))?;
        let bad = |why: String| DataError::tokenizer(path, why);
        let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("json") => {
                let tokenizer = HuggingFaceTokenizer::from_json(content).map_err(bad)?;
                Ok(Tokenizer::new(TokenizerKind::Foreign, Model::HuggingFace(Box::new(tokenizer))))
            }
            Some("model") => {
                let pieces = SentencePiece::from_bytes(content).map_err(bad)?;
                Ok(Tokenizer::new(TokenizerKind::SentencePiece, Model::SentencePiece(Box::new(pieces))))
            }
            _ => {
                let words =
                    WordTokenizer::new(vocabulary_list(&content).map_err(bad)?, false).map_err(bad)?;
                Ok(Tokenizer::new(TokenizerKind::Word, Model::Words(words)))
            }
        }
    }
}

fn vocabulary_list(content: &[u8]) -> Result<Vec<Box<str>>, String> {
    let text = std::str::from_utf8(content)
        .map_err(|e| format!("it is not UTF-8 at byte {}: is it a vocabulary list?", e.valid_up_to()))?;
    let mut words: Vec<Box<str>> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let word = super::words::split_words(line).next();
        words.push(word.ok_or_else(|| format!("line {} is empty, so it names no word", number + 1))?.into());
    }
    if words.is_empty() {
        return Err("it is empty".into());
    }
    for special in [UNK, EOS] {
        if !words.iter().any(|word| **word == *special) {
            words.push(special.into());
        }
    }
    Ok(words)
}
