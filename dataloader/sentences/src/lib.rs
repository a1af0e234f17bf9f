//! Sentences and pairs of sentences.
//!
//! [`SentencePairs`] reads a corpus that [`build_pairs`](segue_dataloader::build_pairs) has made. [`TokenBatches`] groups
//! its pairs into batches of about as many tokens each, which [`PairReader`] reads for a rank, padded, as [`PairBatch`].
//! [`Sentences`] reads text that is to be translated line by line, and [`group_by_length`] groups it, or a split that is
//! evaluated, in a fixed order. [`SentenceTexts`] reads the sentences of a corpus of lines. Nothing here knows tensors or ranks.

mod batch;
mod batches;
mod group;
mod lines;
mod pairs;
mod reader;
mod texts;

pub use batch::{PairBatch, PairSymbols};
pub use batches::{BatchBudget, TokenBatches};
pub use group::group_by_length;
pub use lines::{LONGEST_LINE, Sentence, Sentences};
pub use pairs::{Pair, SentencePairs, check_preset};
pub use reader::PairReader;
pub use texts::SentenceTexts;
