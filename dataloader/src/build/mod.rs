//! Builds a corpus from text: in parallel, in bounded memory, and resumable after an interruption.

mod encode;
mod inputs;
mod journal;
mod observer;
mod options;
mod pipeline;
mod plan;
mod records;
mod row_text;
mod run;
mod running;
mod shards;
mod split;
mod units;

pub(crate) use inputs::Stretch;
pub use observer::{BuildObserver, Stage};
pub use options::{BuildOptions, DEFAULT_SHARD_TOKENS, InvalidUtf8, TokenizerChoice};
pub(crate) use pipeline::{Next, in_order, worker_pool};
pub use records::{RecordImport, import_records};
pub use run::build;
pub(crate) use running::Documents;
pub(crate) use units::{Content, Reading, Unit, for_each_unit};
