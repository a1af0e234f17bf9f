//! Vocabularies together with the tokens that files beside them add.

use std::path::Path;

use segue_data_error::DataError;
use segue_publish::read_regular;
use serde_json::{Value, json};

use super::named::{Flags, Named};
use super::siblings::{Known, Placed, Siblings};
use super::words::{AddedWord, AddedWords};
use crate::files::{HUGGING_FACE_FILE, read_object};
use crate::huggingface::HuggingFaceTokenizer;
use crate::interface::Tokenizer;
use crate::kind::TokenizerKind;
use crate::model::Model;
use crate::spiece::{SentencePiece, XlnetNormalization, package_json};
use crate::vocabulary::Vocabulary;
use crate::words::WordTokenizer;

/// The same vocabulary as that of a `tokenizer.json` of byte-pair encoding, by itself.
const VOCABULARY: &str = "vocab.json";

/// A tokenizer made of the file `path`, with what the files beside it add.
pub(crate) fn with_siblings(vocabulary: Vocabulary, path: &Path) -> Result<Tokenizer, DataError> {
    let Vocabulary { kind, model, beside } = vocabulary;
    let siblings = Siblings::of(path, &Value::Null)?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match model {
        Model::HuggingFace(base) => {
            let refused = |why: String| DataError::tokenizer(path, why);
            base.check_added()
                .and_then(|()| base.check_vocabulary(&read_vocabulary(path)?))
                .map_err(refused)?;
            let (placed, notes) = siblings.place(&Known {
                id: &|content| base.id(content),
                name: &|id| base.token(id),
                size: base.vocab_size(),
                file: &file,
            })?;
            let model = base.with_tokens(&placed).map_err(refused)?;
            Ok(Tokenizer::new(kind, Model::HuggingFace(Box::new(model))).with_notes(notes))
        }
        Model::Words(words) => {
            let (placed, notes) = siblings.place(&Known {
                id: &|content| words.id(content),
                name: &|id| words.word(id).map(String::from),
                size: words.words().len(),
                file: &file,
            })?;
            let words =
                with_added_words(words, &placed).map_err(|(named, why)| siblings.refused(&named, &why))?;
            let left_out = left_out(&words, &beside).map_err(|why| DataError::tokenizer(path, why))?;
            Ok(Tokenizer::new(kind, Model::Words(words)).with_notes([notes, left_out].concat()))
        }
        Model::SentencePiece(pieces) => {
            let why = "the pieces alone do not say how the package looks for it in a text\nhint: let transformers write a tokenizer.json, and import that; \
                       of an XLNet, add --xlnet";
            match siblings.first_other(|content| pieces.is_symbol(content)) {
                Some(named) => Err(siblings.refused(named, why)),
                None => Ok(Tokenizer::new(kind, Model::SentencePiece(pieces))),
            }
        }
        model @ (Model::Bytes(_) | Model::Characters(_) | Model::SubwordNmt(_) | Model::Marian(_)) => {
            let tokenizer = Tokenizer::new(kind, model);
            let known = |named: &Named| named.id.is_none() || tokenizer.token_id(&named.content) == named.id;
            match siblings.tokens().iter().find(|named| !known(named)) {
                Some(named) => {
                    let why = format!("a vocabulary of the {kind} kind holds no other tokens");
                    Err(siblings.refused(named, &why))
                }
                None => Ok(tokenizer),
            }
        }
    }
}

/// Tokens that a vocabulary was saved with and that no file beside it names.
fn left_out(words: &WordTokenizer, beside: &[(String, u32)]) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for (token, id) in beside {
        match words.id(token) {
            Some(own) if own == *id => {}
            Some(own) => return Err(format!("it was saved with `{token}` as {id}, and files beside it say {own}")),
            None => notes.push(format!(
                "`{token}`, {id} when the vocabulary was saved, is named by no file beside it: it is read as text"
            )),
        }
    }
    Ok(notes)
}

/// The tokenizer of an XLNet: its pieces, in the file `path`, with XLNet's steps around them; where tokens are added, what the package's fast class makes
/// of them, as in the `tokenizer.json` that it wrote where `whole_folder` says that it counts, or as it would write one.
pub(crate) fn xlnet(
    path: &Path,
    pieces: SentencePiece,
    normalization: XlnetNormalization,
    whole_folder: bool,
) -> Result<Tokenizer, DataError> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let json_path = path.with_file_name(HUGGING_FACE_FILE);
    let mut siblings = Siblings::of(path, &Value::Null)?;
    if siblings.first_other(|content| pieces.is_symbol(content)).is_some() {
        siblings = Siblings::of(path, &of_xlnet())?;
    }
    let (placed, notes) = siblings.place(&Known {
        id: &|content| pieces.piece_id(content),
        name: &|id| pieces.piece(id).map(String::from),
        size: pieces.vocab_size(),
        file: &file,
    })?;
    if placed.iter().all(|token| pieces.is_symbol(&token.named.content)) {
        let model = Model::SentencePiece(Box::new(pieces.with_xlnet(normalization)));
        return Ok(Tokenizer::new(TokenizerKind::SentencePiece, model).with_notes(notes));
    }
    let (made_of, json) = match whole_folder && json_path.is_file() {
        true => (&*json_path, read_regular(&json_path).map_err(|e| DataError::read(&json_path, e))?),
        false => (path, package_json(&pieces, normalization).to_string().into_bytes()),
    };
    let refused = |why: String| DataError::tokenizer(made_of, why);
    let base = HuggingFaceTokenizer::from_json(json).map_err(refused)?;
    let model = base.with_tokens(&placed).map_err(refused)?;
    Ok(Tokenizer::new(TokenizerKind::Foreign, Model::HuggingFace(Box::new(model))).with_notes(notes))
}

/// Refuses a `tokenizer.json` beside the pieces of an XLNet that lists others.
pub(crate) fn check_pieces(json_path: &Path, pieces: &SentencePiece) -> Result<(), DataError> {
    let json = read_object(json_path)?;
    let refused = |why: String| Err(DataError::tokenizer(json_path, why));
    let Some(listed) = json["model"]["vocab"].as_array() else {
        return refused("it holds no unigram model, and the spiece.model beside it does".into());
    };
    for (id, entry) in listed.iter().enumerate() {
        let (own, other) =
            (entry[0].as_str().unwrap_or_default(), pieces.piece(id as u32).unwrap_or("no piece"));
        if own != other {
            return refused(format!(
                "the id {id} is `{own}` in it and `{other}` in the spiece.model beside it"
            ));
        }
    }
    match listed.len() == pieces.vocab_size() {
        true => Ok(()),
        false => refused(format!(
            "it has {} pieces, and the spiece.model beside it {}",
            listed.len(),
            pieces.vocab_size()
        )),
    }
}

/// The special tokens of the package's class for XLNet.
fn of_xlnet() -> Value {
    json!({
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "<sep>", "pad_token": "<pad>",
        "cls_token": "<cls>", "mask_token": { "content": "<mask>", "lstrip": true, "normalized": true },
        "additional_special_tokens": ["<eop>", "<eod>"],
    })
}

/// The list of ids by token that lies beside a `tokenizer.json`; null where none does.
fn read_vocabulary(path: &Path) -> Result<Value, String> {
    let vocabulary = path.with_file_name(VOCABULARY);
    match vocabulary == path {
        true => Ok(Value::Null),
        false => read_object(&vocabulary).map_err(|e| e.to_string()),
    }
}

/// Words with tokens that are looked for before the text is cut into words; a token that cannot be, and why.
fn with_added_words(words: WordTokenizer, placed: &[Placed]) -> Result<WordTokenizer, (Named, String)> {
    if placed.iter().all(|token| token.is_known) {
        return Ok(words);
    }
    let mut added = Vec::new();
    for Placed { id, named, .. } in placed {
        let why = match named {
            Named { flags: Some(Flags { single_word: true, .. }), .. } => "looked for as a word of its own",
            Named { content, .. } if content.contains('\n') => "a line break",
            _ => {
                added.push(AddedWord { id: *id, content: named.content.clone(), special: named.special });
                continue;
            }
        };
        return Err((named.clone(), format!("a list of words takes no token that is {why}")));
    }
    for id in [words.unk(), words.eos()] {
        let content = words.word(id).unwrap_or_default().to_string();
        if added.iter().all(|word| word.content != content) {
            added.push(AddedWord { id, content, special: true });
        }
    }
    let lower_case = words.lower_case();
    Ok(words.with_added(AddedWords::new(added, lower_case)))
}
