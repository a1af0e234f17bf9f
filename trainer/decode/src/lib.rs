//! Text from a model, one token at a time: one text, or many at once, drawn or searched for. Models implement [`Decoder`].

mod beam;
mod decoder;
mod sampling;
mod texts;

pub use beam::{BeamSettings, Finish, Hypothesis, LengthPenalty, Symbols, beam_search};
pub use decoder::{Attention, Decoder, Decoding};
pub use sampling::Sampling;
pub use texts::{Drawn, Generator, Texts, draw_texts};
