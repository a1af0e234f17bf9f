//! Recipes as `--config` names them: files, or those that come with the program by name.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

pub use segue_configs::shipped::{files, find, folder};

/// Parses `--config`.
pub fn parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(|named| find(&named))
}
