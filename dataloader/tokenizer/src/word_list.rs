use super::bytes::ByteTokenizer;
use super::kind::TokenizerKind;
use super::model::Model;
use super::special_tokens::{EOS, UNK};
use super::words::{WordTokenizer, split_words};

/// Names for unknown words and the end of a sentence: WikiText's, then those of Billion Word's list. The first that a vocabulary has counts.
const UNKNOWN: [&str; 2] = [UNK, "<UNK>"];
const ENDS: [&str; 2] = [EOS, "<S>"];

/// The vocabulary in a list with a word at the start of each line. Names for unknown words and for the end of a sentence are appended where it
/// has none.
pub(super) fn vocabulary_list(content: &[u8]) -> Result<(TokenizerKind, Model), String> {
    let text = std::str::from_utf8(content)
        .map_err(|e| format!("it is not UTF-8 at byte {}: is it a vocabulary list?", e.valid_up_to()))?;
    let mut words: Vec<Box<str>> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let word = split_words(line).next();
        words.push(word.ok_or_else(|| format!("line {} is empty, so it names no word", number + 1))?.into());
    }
    if words.is_empty() {
        return Err("it is empty".into());
    }
    for names in [UNKNOWN, ENDS] {
        if first_of(names, &words).is_none() {
            words.push(names[0].into());
        }
    }
    word_model(words, false)
}

/// The first of some names that is among the words.
fn first_of(names: [&'static str; 2], words: &[Box<str>]) -> Option<&'static str> {
    names.into_iter().find(|name| words.iter().any(|word| **word == **name))
}

fn word_model(words: Vec<Box<str>>, lower_case: bool) -> Result<(TokenizerKind, Model), String> {
    let [unk, eos] = [UNKNOWN, ENDS].map(|names| first_of(names, &words).unwrap_or(names[0]));
    let words = WordTokenizer::with_specials(words, lower_case, unk, eos)?;
    Ok((TokenizerKind::Word, Model::Words(words)))
}

/// A vocabulary with exactly these ids. Character data comes as words, too: enwik8 as byte values in decimal, text8 as
/// single characters with `_` for the space.
pub(super) fn words_or_bytes(
    symbols: Vec<String>,
    lower_case: bool,
) -> Result<(TokenizerKind, Model), String> {
    let bytes: Option<Vec<u8>> = symbols.iter().map(|symbol| symbol.parse().ok()).collect();
    let characters = || {
        symbols.iter().map(|symbol| match symbol.as_bytes() {
            [b'_'] => Some(b' '),
            [byte] => Some(*byte),
            _ => None,
        })
    };
    if let Some(bytes) = bytes.or_else(|| characters().collect())
        && let Ok(tokenizer) = ByteTokenizer::coded(bytes)
    {
        return Ok((TokenizerKind::Byte, Model::Bytes(Box::new(tokenizer))));
    }
    word_model(symbols.into_iter().map(String::into_boxed_str).collect(), lower_case)
}
