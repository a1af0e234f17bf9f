//! Data sets as text: a folder of files with one record a line.

mod read;
mod write;

pub(crate) use read::read;
pub use read::read_index;
pub use write::GraphForm;
