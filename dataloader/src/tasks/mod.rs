//! Tasks that models are fine-tuned on (thesis 2.2.4; spec 2.10): from their files, as they are published, to
//! sequences of token ids, and the records that answers are written down and scored with.
//!
//! [`TaskData::open`] reads a task by its name. Nothing here knows tensors.

mod data;
mod example;
mod order;
pub mod squad;
mod template;

pub use data::{Answer, Records, Row, Skipped, Split, TaggedSentence, TaskData, Wanted};
pub use example::{Example, Kind, Sequence, Target};
pub use order::ExampleOrder;
pub use template::Template;
