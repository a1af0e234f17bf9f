//! Parquet and Arrow files as the JSON lines that their rows would be, so that whatever reads JSON lines reads them.
//!
//! [`TextLines`] streams the one column that a corpus is made from, in bounded memory; [`table_lines`] gives every
//! column of a task's table. Sizes that a file states are checked against the bytes that are there before anything is
//! allocated, and a panic of the crates underneath becomes an error.

mod column;
mod contents;
mod damage;
mod file;
mod json;
mod lines;
mod messages;
mod row_groups;
mod thrift;

pub use file::Format;
pub use lines::{TextLines, table_lines};
