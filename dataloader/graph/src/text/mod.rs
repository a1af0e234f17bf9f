//! Data sets as text: a folder of files with one record a line.

mod read;
mod write;

pub use read::read_index;
pub(crate) use read::{read, read_distinct};
pub use write::GraphForm;
