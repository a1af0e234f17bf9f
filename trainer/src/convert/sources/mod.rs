//! The programs that checkpoints come from.

mod hugging_face;
mod kimiyoung;
mod names;
mod nvidia;
mod source;
mod tensorflow;

pub use source::{Source, Variable, detect};
pub(super) use tensorflow::rules as tensorflow_rules;
