//! Text to tokens, shards on disk, lanes and batches.
//!
//! Raw text goes through a [`Tokenizer`](segue_tokenizer::Tokenizer) into a [`Corpus`]: a folder of checksummed, memory-mapped shards, made by
//! [`build`]. Training reads it in [`StreamLanes`],
//! [`SentenceLanes`] or [`PairLanes`], ahead of time through a [`Prefetcher`]; evaluation in [`EvalLanes`].
//! Nothing here knows tensors or ranks.

mod bench;
mod build;
mod corpus;
mod input;
mod lanes;
mod prefetch;
mod preset;
pub mod sections;
mod shard;

pub use bench::{Encoded, bench_encode};
pub use build::{
    BuildObserver, BuildOptions, DEFAULT_SHARD_TOKENS, DEFAULT_TEXT_COLUMN, InvalidUtf8, PairBuild,
    PairFilter, Published, RecordImport, Stage, TokenizerChoice, TrainingText, build, build_pairs,
    import_records, train_tokenizer,
};
pub use corpus::{
    BadBlock, Boundaries, CORPUS_FILE, CORPUS_VERSION, Corpus, CorpusInfo, Dtype, FaultyPairs, PairCounts,
    PairFault, PairSides, ShardInfo, Split, SplitInfo, Symbol, TokenStream, TokenizerInfo, VerifyReport,
};
pub use input::open_text;
pub use lanes::{
    Batch, Documents, EvalBatch, EvalLanes, Heads, LaneCursor, Lanes, Lengths, PADDING_ID, PairLanes,
    PairOptions, PairSource, Pairs, RecordLanes, RecordRow, RecordSteps, Segments, SentenceLanes,
    StreamLanes,
};
pub use prefetch::{LaneReader, Mapped, Prefetcher, Reader};
pub use preset::Preset;
pub use shard::{
    BLOCK_BYTES, HEADER_BYTES, INDEX_HEADER_BYTES, INDEX_MAGIC, INDEX_VERSION, IndexHeader, SHARD_MAGIC,
    SHARD_VERSION, ShardHeader,
};
