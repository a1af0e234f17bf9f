//! One file a command: arguments, a call into the crates, words for the result.

pub mod bench;
pub mod data;
pub mod eval;
pub mod generate;
pub mod parity;
pub mod pretrain;
pub mod score;
pub mod tokenizer;
