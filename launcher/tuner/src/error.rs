use std::io;
use std::path::PathBuf;

use segue_configs::exit_code;
use segue_publish::PublishError;
use thiserror::Error;

/// What can be wrong with a journal.
#[derive(Debug, Error)]
pub enum TunerError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The journal.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write {}: {}", .0.path.display(), .0.source)]
    Write(PublishError),
    /// A line that no study writes.
    #[error("line {line} of {path} is not one of a study: {why}")]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// It is that of other parameters, another recipe or another corpus.
    #[error("{path} is the journal of another study{}", because(.differences))]
    OtherStudy {
        /// The journal.
        path: PathBuf,
        /// The values in which it differs; empty where they are not known.
        differences: String,
    },
}

fn because(differences: &str) -> String {
    if differences.is_empty() { String::new() } else { format!(": {differences}") }
}

impl TunerError {
    /// The process exit code documented for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            TunerError::Read { source, .. } => exit_code::of_read(source),
            TunerError::Write(error) => exit_code::of_write(&error.source),
            TunerError::Damaged { .. } => exit_code::BAD_DATA,
            TunerError::OtherStudy { .. } => exit_code::BAD_CONFIG,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            TunerError::Read { .. } => None,
            TunerError::Write(_) => Some("free some space, or choose another --output".into()),
            TunerError::Damaged { line: 1, .. } => Some("remove the file: all trials are made again".into()),
            TunerError::Damaged { .. } => {
                Some("remove that line and those below it; their trials are made again".into())
            }
            TunerError::OtherStudy { differences, .. } if differences.is_empty() => Some(
                "give back the parameters, recipe and corpus it began with, or choose another --output; one begun by an earlier version, whose \
                 configuration had other keys, can only go on with that"
                    .into(),
            ),
            TunerError::OtherStudy { .. } => Some(
                "give back the parameters, recipe and corpus it began with, or choose another --output"
                    .into(),
            ),
        }
    }
}
