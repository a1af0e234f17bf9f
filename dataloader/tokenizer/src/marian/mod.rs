//! Tokenizers of Marian models in Hugging Face's folders: two SentencePiece models cut source and target into pieces, and one vocabulary gives both their ids.
//!
//! Follows `MarianTokenizer` of transformers 5.23, which leaves punctuation as it is.

mod export;
mod folder;
mod model;

pub(crate) use folder::{holds_marian, load_marian};
pub(crate) use model::{Marian, SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE};
