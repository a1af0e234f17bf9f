use std::path::Path;

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;
use serde::Serialize;
use serde_json::Value;

use super::file_info::FileInfo;

/// The file that says of what kind the tokenizer in a folder is and names its other files.
pub const TOKENIZER_FILE: &str = "segue_tokenizer.json";

/// Names that other programs expect for these files.
pub(crate) const HUGGING_FACE_FILE: &str = "tokenizer.json";
/// Where a model keeps the `tokenizer.json` that it was trained with, if other programs find another under that name.
pub(crate) const ORIGINAL_FILE: &str = "tokenizer.original.json";
pub(crate) const SENTENCE_PIECE_FILE: &str = "spiece.model";
/// Where Hugging Face's programs look for a tokenizer's class and special tokens.
pub(crate) const HUGGING_FACE_CONFIG: &str = "tokenizer_config.json";

/// A file of a tokenizer, held in memory: what is saved is what was loaded, byte for byte.
#[derive(Clone, Debug)]
pub(crate) struct StoredFile {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

impl StoredFile {
    pub(crate) fn info(&self) -> FileInfo {
        FileInfo {
            name: self.name.clone(),
            bytes: self.content.len() as u64,
            blake3: blake3::hash(&self.content).to_hex().to_string(),
        }
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists of them always have a JSON form.
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The JSON of a file; null where there is no such file.
pub(crate) fn read_object(path: &Path) -> Result<Value, DataError> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let text = read_regular(path).map_err(|e| DataError::read(path, e))?;
    serde_json::from_slice(without_mark(&text)).map_err(|e| DataError::tokenizer(path, e.to_string()))
}
