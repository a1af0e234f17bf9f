//! SentencePiece models of the unigram kind: reader, normaliser, best segmentation.
//!
//! Follows the SentencePiece library (its `EncodeOptimized`) so that the ids are the same, down to which of two equally
//! good segmentations wins. Nothing of it is trusted to be well formed: a model file may come from anywhere.

mod charsmap;
mod commas;
mod encode;
mod export;
mod lines;
mod model;
mod normalize;
mod origins;
mod segment;
mod trie;
mod xlnet;

pub(crate) use export::{package_json, tokenizer_config, tokenizer_json};
pub(crate) use model::SentencePiece;
pub(crate) use trie::Trie;
pub use xlnet::XlnetNormalization;
pub(crate) use xlnet::is_space;
