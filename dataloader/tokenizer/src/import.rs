use std::path::Path;

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;

use super::added;
use super::files::read_object;
use super::huggingface::HuggingFaceTokenizer;
use super::interface::Tokenizer;
use super::kind::TokenizerKind;
use super::model::Model;
use super::store::read_pieces;
use super::vocabulary::{Vocabulary, import_vocabulary};
use super::word_list::vocabulary_list;
use crate::spiece::{SentencePiece, XlnetNormalization};
use crate::subword_nmt::{Codes, Dictionary, HEADER, SubwordNmt};

/// Endings of files that Python has pickled.
const PYTHON: [&str; 4] = ["bin", "pkl", "pt", "pickle"];
/// How files of other endings begin that Python has pickled, such as `corpus.HASH.data`: a pickle, and a zip container. No list of words does.
const PICKLED: [&[u8]; 2] = [b"\x80", b"PK\x03\x04"];
/// What the TensorFlow programs write beside a prepared corpus.
const CORPUS_INFO: &str = "corpus-info.json";
const CORPUS_CACHE: &str = "cache.pkl";

impl Tokenizer {
    /// Makes a tokenizer from a file of another program, told by its name: `*.json` is a Hugging Face
    /// `tokenizer.json`, `*.model` a SentencePiece model, `*.bin`, `*.pkl`, `*.pt` and `*.pickle` what Python has
    /// saved of a vocabulary or with it (nothing in it is run), also under any other name that a pickle of today begins like; anything else
    /// a vocabulary list. `corpus-info.json`
    /// leads to the `cache.pkl` beside it.
    ///
    /// A vocabulary list has one word per line, in the order of the ids; what follows the word after white space (a
    /// count) is ignored. `<UNK>` and `<S>` count as `<unk>` and `<eos>` where those are missing; `<unk>` and `<eos>` are
    /// appended where the list has neither. Merges of subword-nmt need a dictionary: [`Tokenizer::import_subword_nmt`].
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

impl Tokenizer {
    /// Makes a tokenizer from merges of subword-nmt and a dictionary of fairseq. The ids are fairseq's; nothing else beside the files is read.
    pub fn import_subword_nmt(
        codes: &Path,
        dictionary: &Path,
        lower_case: bool,
    ) -> Result<Tokenizer, DataError> {
        let content = |path: &Path| {
            let content = read_regular(path).map_err(|e| DataError::read(path, e))?;
            Ok::<_, DataError>(without_mark(&content).to_vec())
        };
        let merges = Codes::read(content(codes)?).map_err(|why| DataError::tokenizer(codes, why))?;
        let symbols =
            Dictionary::read(content(dictionary)?).map_err(|why| DataError::tokenizer(dictionary, why))?;
        let words = SubwordNmt::new(merges, symbols, lower_case);
        let notes = notes_of(&words, dictionary);
        Ok(Tokenizer::new(TokenizerKind::SubwordNmt, Model::SubwordNmt(Box::new(words))).with_notes(notes))
    }
}

/// What is to be known of merges and a dictionary that were not made of each other.
fn notes_of(words: &SubwordNmt, dictionary: &Path) -> Vec<String> {
    let (unlisted, all) = (words.unlisted_merges(), words.codes().merges.len());
    let note = || {
        format!(
            "{} lacks the pieces of {unlisted} of {all} merges: one that is left in a text is read as `<unk>`",
            dictionary.display()
        )
    };
    (unlisted > 0).then(note).into_iter().collect()
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
        _ if without_mark(&content).starts_with(HEADER.as_bytes()) => {
            Err("it holds merges of subword-nmt, without ids\nhint: add the dictionary of its pieces, --dictionary dict.txt".into())
        }
        _ => vocabulary_list(without_mark(&content)),
    };
    let (kind, model) = made.map_err(|why| DataError::tokenizer(path, why))?;
    Ok(Vocabulary { kind, model, beside: Vec::new() })
}
