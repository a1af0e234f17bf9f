//! Fine-tuning tasks (Yang 2019, §2.2.3): from their published files to sequences of token ids, and the records to
//! write answers with and to score them.
//!
//! [`TaskData::open`] reads a task by its name. Nothing here knows tensors.

mod adversarial;
mod choice;
mod columns;
mod conll;
mod csv;
mod data;
mod documents;
mod dream;
mod example;
mod glue;
mod gold;
mod inputs;
mod json;
mod labels;
mod open;
mod order;
mod packed;
mod predictions;
mod questions;
mod race;
mod ranking;
mod request;
mod reviews;
mod rows;
mod section;
mod sieve;
pub mod squad;
mod table;
mod template;
mod text;

pub use data::{Answer, Records, Row, Skipped, Split, TaggedSentence, TaskData, TaskSplits};
pub use documents::{Candidate, Placed, RankedQuery, Rankings, rank_documents, write_run};
pub use example::{Example, Kind, Sequence, Target};
pub use inputs::{InputExamples, InputFormat, InputOptions, InputText, Inputs};
pub use labels::listed_lines;
pub use order::{ExampleOrder, batches_of_pass};
pub use predictions::write_predictions;
pub use ranking::rank_answers;
pub use section::{TaskConfig, TaskLoss, TaskSummary};
pub use template::Template;
