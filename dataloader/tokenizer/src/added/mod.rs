//! Tokens that files beside a vocabulary add to it, in every layout that Hugging Face's `transformers` has written.

mod apply;
mod files;
mod named;
mod siblings;
mod words;

pub(crate) use apply::{check_pieces, with_siblings, xlnet};
pub(crate) use named::Flags;
pub(crate) use siblings::Placed;
pub(crate) use words::{AddedWord, AddedWords, Part};
