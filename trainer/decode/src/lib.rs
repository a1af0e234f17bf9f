//! Text from a model, one token at a time with memory: one text, or many at once.

mod sampling;
mod texts;

pub use sampling::Sampling;
pub use texts::{Generator, Texts};
