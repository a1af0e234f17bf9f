//! Data sets as text: a folder of files with one record a line.

mod read;

pub(crate) use read::{read, seen_nodes};
