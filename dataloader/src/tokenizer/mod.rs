//! Tokenizers: text to ids and back, training, import, and their files.

mod byte_level;
mod bytes;
mod characters;
mod count;
mod detokenize;
mod huggingface;
mod import;
mod interface;
mod merges;
mod offsets;
mod scanner;
mod store;
mod subword;
mod train;
mod vocabulary;
mod words;

pub(crate) use detokenize::running_text;
pub use detokenize::{detokenize, detokenize_after};
pub use interface::{EOS, Encoder, Tokenizer, TokenizerKind, UNK};
pub use offsets::Located;
pub use store::TOKENIZER_FILE;
pub(crate) use train::train_on;
pub use train::{TrainOptions, train_tokenizer};
pub use vocabulary::{Symbols, find_symbols};
