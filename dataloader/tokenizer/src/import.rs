use std::path::Path;

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;

use super::added;
use super::bytes::ByteTokenizer;
use super::huggingface::HuggingFaceTokenizer;
use super::interface::{EOS, Model, Tokenizer, TokenizerKind, UNK};
use super::store::{read_object, read_pieces};
use super::vocabulary::import_vocabulary;
use super::words::WordTokenizer;
use crate::spiece::{SentencePiece, XlnetNormalization};

/// Endings of files that Python has pickled.
const PYTHON: [&str; 4] = ["bin", "pkl", "pt", "pickle"];
/// How files of other endings begin that Python has pickled, such as `corpus.HASH.data`: a pickle, and a zip container. No list of words does.
const PICKLED: [&[u8]; 2] = [b"\x80", b"PK\x03\x04"];
/// What the TensorFlow programs write beside a prepared corpus.
const CORPUS_INFO: &str = "corpus-info.json";
const CORPUS_CACHE: &str = "cache.pkl";
/// Names for unknown words and the end of a sentence: WikiText's, then those of Billion Word's list. The first that a vocabulary has counts.
const UNKNOWN: [&str; 2] = [UNK, "<UNK>"];
const ENDS: [&str; 2] = [EOS, "<S>"];

impl Tokenizer {
    /// Makes a tokenizer from a file of another program, told by its name: `*.json` is a Hugging Face
    /// `tokenizer.json`, `*.model` a SentencePiece model, `*.bin`, `*.pkl`, `*.pt` and `*.pickle` what Python has
    /// saved of a vocabulary or with it (nothing in it is run), also under any other name that a pickle of today begins like; anything else
    /// a vocabulary list. `corpus-info.json`
    /// leads to the `cache.pkl` beside it.
    ///
    /// A vocabulary list has one word per line, in the order of the ids; what follows the word after white space (a
    /// count) is ignored. `<UNK>` and `<S>` count as `<unk>` and `<eos>` where those are missing; `<unk>` and `<eos>` are
    /// appended where the list has neither.
    pub fn import(path: &Path) -> Result<Tokenizer, DataError> {
        if path.file_name().is_some_and(|name| name == CORPUS_INFO) {
            let tokenizer = Tokenizer::import(&path.with_file_name(CORPUS_CACHE))?;
            let (names, said) = (tokenizer.vocab_size(), &read_object(path)?["vocab_size"]);
            if said.as_u64().is_some_and(|said| said != names as u64) {
                let why =
                    format!("it says that there are {said} words, and {CORPUS_CACHE} beside it has {names}");
                return Err(DataError::tokenizer(path, why));
            }
            return Ok(tokenizer);
        }
        added::with_siblings(vocabulary_of(path)?, path)
    }

    /// Makes a tokenizer from a SentencePiece model with what XLNet does to text around it. Tokens that files beside it add are found as Hugging Face's
    /// package finds them.
    pub fn import_xlnet(path: &Path, normalization: XlnetNormalization) -> Result<Tokenizer, DataError> {
        added::xlnet(path, read_pieces(path)?, normalization, false)
    }
}

/// What one file holds.
pub(super) struct Vocabulary {
    pub(super) kind: TokenizerKind,
    pub(super) model: Model,
    /// Tokens that it was saved with, and that its program looks for in other files.
    pub(super) beside: Vec<(String, u32)>,
}

fn vocabulary_of(path: &Path) -> Result<Vocabulary, DataError> {
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    if extension.as_deref().is_some_and(|extension| PYTHON.contains(&extension)) {
        return import_vocabulary(path);
    }
    let content = read_regular(path).map_err(|e| DataError::read(path, e))?;
    if PICKLED.iter().any(|start| content.starts_with(start)) {
        return import_vocabulary(path);
    }
    let made = match extension.as_deref() {
        Some("json") => HuggingFaceTokenizer::from_json(without_mark(&content).to_vec())
            .map(|tokenizer| (TokenizerKind::Foreign, Model::HuggingFace(Box::new(tokenizer)))),
        Some("model") => SentencePiece::from_bytes(content)
            .map(|pieces| (TokenizerKind::SentencePiece, Model::SentencePiece(Box::new(pieces)))),
        _ => vocabulary_list(without_mark(&content)).and_then(|words| word_model(words, false)),
    };
    let (kind, model) = made.map_err(|why| DataError::tokenizer(path, why))?;
    Ok(Vocabulary { kind, model, beside: Vec::new() })
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
    for names in [UNKNOWN, ENDS] {
        if first_of(names, &words).is_none() {
            words.push(names[0].into());
        }
    }
    Ok(words)
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
