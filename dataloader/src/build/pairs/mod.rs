//! Builds a corpus of sentence pairs, for translation: a pair is a document, each side of it a sentence, which ends in the
//! end-of-sentence token.

mod encode;
mod faults;
mod input;
mod lines;
mod lockstep;
mod options;
mod run;
mod text;
mod train;

pub use options::{PairBuild, PairFilter};
pub use run::build_pairs;
