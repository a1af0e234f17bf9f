//! Text from a model, one token at a time: one text, or many at once. Models implement [`Decoder`].

mod decoder;
mod sampling;
mod texts;

pub use decoder::Decoder;
pub use sampling::Sampling;
pub use texts::{Generator, Texts};
