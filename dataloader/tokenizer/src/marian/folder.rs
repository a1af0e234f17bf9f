//! Folders of Hugging Face's that hold the tokenizer of a Marian model.

use std::path::Path;

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;
use serde_json::Value;

use super::model::{Marian, SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE};
use crate::files::{HUGGING_FACE_CONFIG, HUGGING_FACE_FILE, read_object};
use crate::interface::Tokenizer;
use crate::kind::TokenizerKind;
use crate::model::Model;
use crate::store::read_pieces;

/// The package's class for them.
pub(super) const CLASS: &str = "MarianTokenizer";
/// The vocabulary of a target that has one of its own.
const TARGET_VOCABULARY: &str = "target_vocab.json";

/// Whether a folder holds such a tokenizer, or part of one.
pub(crate) fn holds_marian(dir: &Path) -> Result<bool, DataError> {
    if [SOURCE_FILE, TARGET_FILE].iter().any(|name| dir.join(name).is_file()) {
        return Ok(true);
    }
    let class = &read_object(&dir.join(HUGGING_FACE_CONFIG))?["tokenizer_class"];
    Ok(class == CLASS && !dir.join(HUGGING_FACE_FILE).is_file())
}

/// The tokenizer of such a folder.
pub(crate) fn load_marian(dir: &Path) -> Result<Tokenizer, DataError> {
    let files = [SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE];
    if let Some(missing) = files.iter().find(|name| !dir.join(name).is_file()) {
        let why = format!(
            "it has no {missing}, and a Marian model needs {}\nhint: copy {missing} from where the folder comes from",
            files.join(", ")
        );
        return Err(DataError::tokenizer(dir, why));
    }
    let separate = read_object(&dir.join(HUGGING_FACE_CONFIG))?["separate_vocabs"] == Value::Bool(true);
    if separate || dir.join(TARGET_VOCABULARY).is_file() {
        let why = "source and target have vocabularies of their own, and both share one here";
        return Err(DataError::tokenizer(dir, why));
    }
    let [source, target] = [SOURCE_FILE, TARGET_FILE].map(|name| read_pieces(&dir.join(name)));
    let path = dir.join(VOCABULARY_FILE);
    let vocabulary = read_regular(&path).map_err(|e| DataError::read(&path, e))?;
    let marian = Marian::new(source?, target?, without_mark(&vocabulary).to_vec())
        .map_err(|why| DataError::tokenizer(&path, why))?;
    let notes = notes_of(&marian);
    Ok(Tokenizer::new(TokenizerKind::Marian, Model::Marian(Box::new(marian))).with_notes(notes))
}

/// What is to be known of models that were not made with the vocabulary.
fn notes_of(marian: &Marian) -> Vec<String> {
    let unlisted = marian.unlisted().into_iter().filter(|(_, unlisted, _)| *unlisted > 0);
    let note = |(file, unlisted, all)| {
        format!(
            "{VOCABULARY_FILE} lacks {unlisted} of the {all} pieces of {file}: one that is in a text is read as `<unk>`"
        )
    };
    unlisted.map(note).collect()
}
