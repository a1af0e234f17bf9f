//! Builds a corpus from text: in parallel, in bounded memory, and resumable after an interruption.

mod budget;
mod encode;
mod encoders;
mod heading;
mod inputs;
mod journal;
mod json_text;
mod observer;
mod options;
mod pairs;
mod pipeline;
mod plan;
mod published;
mod records;
mod row_text;
mod run;
mod running;
mod series;
mod shards;
mod split;
mod train;
mod unit;
mod units;

pub use observer::{BuildObserver, Stage};
pub use options::{BuildOptions, DEFAULT_SHARD_TOKENS, DEFAULT_TEXT_COLUMN, InvalidUtf8, TokenizerChoice};
pub use pairs::{PairBuild, PairFilter, build_pairs};
pub(crate) use pipeline::worker_pool;
pub use published::Published;
pub use records::{RecordImport, import_records};
pub use run::build;
pub use train::{TrainingText, train_tokenizer};
