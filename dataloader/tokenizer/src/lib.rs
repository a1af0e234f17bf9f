//! Tokenizers: text to ids and back, training, import, and their files.

mod added;
mod byte_level;
mod bytes;
mod characters;
mod count;
mod cut;
mod detokenize;
mod file_info;
mod growth;
mod huggingface;
mod import;
mod interface;
mod merges;
mod offsets;
mod patterns;
mod scanner;
mod sequences;
mod spiece;
mod store;
mod subword;
mod text_stream;
mod train;
mod vocabulary;
mod words;

pub use count::Counts;
pub use cut::{CutPlaces, TextCut};
pub use detokenize::{detokenize, detokenize_after, running_text};
pub use file_info::FileInfo;
pub use interface::{EOS, Encoder, Tokenizer, TokenizerKind, UNK};
pub use offsets::Located;
pub use sequences::longest_sequence;
pub use spiece::XlnetNormalization;
pub use store::TOKENIZER_FILE;
pub use text_stream::TextStream;
pub use train::{TrainOptions, count_bytes, count_text, train_on_bytes, train_on_text};
pub use vocabulary::{Symbols, find_symbols};
