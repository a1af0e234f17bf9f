use std::path::PathBuf;

use thiserror::Error;

/// What can be wrong with a configuration. The message says where and what to do.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The recipe file cannot be read.
    #[error("cannot read the configuration file {path}: {source}")]
    Missing {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is not TOML (or JSON, for a checkpoint's `config.json`).
    #[error("{origin} cannot be parsed: {message}")]
    Syntax {
        /// File or override.
        origin: String,
        /// The parser's own words, with line and column.
        message: String,
    },
    /// A key that no section knows.
    #[error("unknown key `{key}` in {origin}{}", hint(.nearest))]
    UnknownKey {
        /// Dotted name as written.
        key: String,
        /// File or override it stands in.
        origin: String,
        /// The known key with the most similar name.
        nearest: Option<String>,
    },
    /// A value of the wrong type.
    #[error("`{key}` (from {origin}) has a wrong value: {message}")]
    WrongType {
        /// Dotted name.
        key: String,
        /// File or override it stands in.
        origin: String,
        /// Found and expected.
        message: String,
    },
    /// A value outside its range, or two values that contradict each other.
    #[error("`{key}` = {value} is not possible: {why}")]
    OutOfRange {
        /// Dotted name.
        key: String,
        /// The value found.
        value: String,
        /// The rule it breaks and what to do.
        why: String,
    },
    /// An override that is not `key=value`.
    #[error("`{text}` is not an override; write key=value, for example train.steps=100")]
    NotAnOverride {
        /// The argument as written.
        text: String,
    },
}

fn hint(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map(|key| format!("; did you mean `{key}`?"))
        .unwrap_or_else(|| "; `--print-config` lists the known ones".into())
}

impl ConfigError {
    /// The process exit code documented for this error: 66 for a missing file, else 78.
    pub fn exit_code(&self) -> u8 {
        match self {
            ConfigError::Missing { .. } => 66,
            _ => 78,
        }
    }
}
