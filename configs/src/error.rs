use std::path::PathBuf;

use thiserror::Error;

use crate::{advice, exit_code, foreign, shipped};

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
    #[error("{origin} cannot be parsed: {}", advice::fact(.message))]
    Syntax {
        /// File or override.
        origin: String,
        /// The parser's own words, with line and column; or what is wrong, with [advice].
        message: String,
    },
    /// A key that no section knows.
    #[error("unknown key `{key}` in {origin}")]
    UnknownKey {
        /// Dotted name as written.
        key: String,
        /// File or override it stands in.
        origin: String,
        /// The known key with the most similar name.
        nearest: Option<String>,
        /// Whether it is meant for fine-tuning.
        tunes: bool,
    },
    /// A value of the wrong type.
    #[error("`{key}` in {origin} has a wrong value: {}", advice::fact(.message))]
    WrongType {
        /// Dotted name.
        key: String,
        /// File or override it stands in.
        origin: String,
        /// Found and expected, with [advice].
        message: String,
    },
    /// A value outside its range, or two values that contradict each other.
    #[error("`{key}` = {value} is invalid: {}", advice::fact(.why))]
    OutOfRange {
        /// Dotted name.
        key: String,
        /// The value found.
        value: String,
        /// The rule it breaks, with [advice].
        why: String,
    },
    /// A value that nothing looks at beside the others.
    #[error("`{key}` = {value} is invalid: {}", advice::fact(.why))]
    NoEffect {
        /// Dotted name.
        key: String,
        /// The value found.
        value: String,
        /// What it lacks, with [advice].
        why: String,
    },
    /// The model that a task begins with cannot be opened.
    #[error("`train.init_from`: {}", advice::fact(.message))]
    Model {
        /// What is wrong with it, with [advice].
        message: String,
        /// The exit code of that.
        code: u8,
    },
    /// Settings that a study would try.
    #[error("{at}: {error}")]
    Tried {
        /// Which of them.
        at: String,
        /// What is wrong with them.
        error: Box<ConfigError>,
    },
    /// An override that is not `key=value`.
    #[error("`{text}` is not an override")]
    NotAnOverride {
        /// The argument as written.
        text: String,
    },
}

/// Whether a name is a slip of the pen for a key: it stands in the same section and differs by a letter or two.
fn is_slip(key: &str, nearest: Option<&str>) -> bool {
    let sections =
        |nearest: &str| key.split_once('.').map(|(s, _)| s) == nearest.split_once('.').map(|(s, _)| s);
    nearest.is_some_and(|nearest| sections(nearest) && strsim::levenshtein(key, nearest) <= 2)
}

impl ConfigError {
    /// The process exit code documented for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            ConfigError::Missing { source, .. } => exit_code::of_read(source),
            ConfigError::Model { code, .. } => *code,
            _ => exit_code::BAD_CONFIG,
        }
    }

    /// What the user can do about it, where that is known: a sentence for a line of its own.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConfigError::Missing { path, .. } => shipped::hint(path).or_else(|| {
                // What is called by one word is meant for a recipe that came with the program.
                let is_name = path.components().count() == 1 && path.extension().is_none();
                let told = "name a file; `segue recipes` lists the recipes that come with the program";
                is_name.then(|| told.into())
            }),
            ConfigError::Syntax { message, .. }
            | ConfigError::WrongType { message, .. }
            | ConfigError::Model { message, .. } => advice::hint(message),
            ConfigError::UnknownKey { key, nearest, tunes, .. }
                if foreign::note_on(key, *tunes).is_some() && !is_slip(key, nearest.as_deref()) =>
            {
                foreign::note_on(key, *tunes).map(String::from)
            }
            ConfigError::UnknownKey { nearest: Some(key), .. } => Some(format!("did you mean `{key}`?")),
            ConfigError::UnknownKey { nearest: None, .. } => {
                Some("--print-config lists the known keys".into())
            }
            ConfigError::OutOfRange { why, .. } | ConfigError::NoEffect { why, .. } => advice::hint(why),
            ConfigError::Tried { error, .. } => {
                error.hint().or_else(|| Some("change the recipe, or the ends of the range".into()))
            }
            ConfigError::NotAnOverride { .. } => Some("write key=value, for example train.steps=100".into()),
        }
    }
}
