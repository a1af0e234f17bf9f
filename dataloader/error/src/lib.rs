//! What can go wrong between raw text and a batch.
//!
//! The crates that read data share one type of error. They call each other: a task is read through a tokenizer, which may
//! lie in a file of another program. So one `?` carries an error all the way up, and what a user sees of a damaged file
//! (message, hint, exit code) is the same whoever reads it, and stands in one place.

use std::path::{Path, PathBuf};

use segue_configs::{advice, counted, exit_code};
use thiserror::Error;

/// What can go wrong between raw text and a batch. Each `why` may come with [advice].
#[derive(Debug, Error)]
pub enum DataError {
    /// A file or folder that was asked for is not there.
    #[error("{path} is missing{}", because(.why))]
    Missing {
        /// What was looked for.
        path: PathBuf,
        /// What it is needed for; may be empty.
        why: String,
    },
    /// The system refused to read something.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system refused to write something.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The output folder cannot take the result.
    #[error("{path} cannot take the output: {}", advice::fact(.why))]
    Output {
        /// The folder.
        path: PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// Input text that is not UTF-8.
    #[error("{path} is not UTF-8 at byte {offset}")]
    NotUtf8 {
        /// The input file.
        path: PathBuf,
        /// Offset of the first bad byte in the (decompressed) text.
        offset: u64,
    },
    /// Input that is damaged or not of the format its name or preset says.
    #[error("{path}, at byte {offset}: {}", advice::fact(.why))]
    BadInput {
        /// The input file.
        path: PathBuf,
        /// Offset in the (decompressed) text.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// A line of a task's file that cannot be used.
    #[error("{path}, line {line}: {}", advice::fact(.why))]
    BadLine {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1; where a record has several, that of its first.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// A record of a task's file that cannot be used.
    #[error("{path}, {record}: {}", advice::fact(.why))]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// Which record: its number from 1, or what the file calls it.
        record: String,
        /// What is wrong.
        why: String,
    },
    /// There is no text, or none of the form that is asked for.
    #[error("no text to read: {}", advice::fact(.why))]
    EmptyInput {
        /// Which input is empty.
        why: String,
    },
    /// A shard or one of its side files is damaged.
    #[error("{path} is damaged: {}", advice::fact(.why))]
    BadShard {
        /// The file.
        path: PathBuf,
        /// Which promise of the format it breaks, with found and expected values.
        why: String,
    },
    /// `corpus.json` cannot be used.
    #[error("{path} is not a usable corpus: {}", advice::fact(.why))]
    BadCorpus {
        /// The corpus folder or its `corpus.json`.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The corpus has no tokens in the split asked for.
    #[error("the corpus {path} has no {split} text")]
    EmptySplit {
        /// The corpus folder.
        path: PathBuf,
        /// The split's name.
        split: &'static str,
    },
    /// A tokenizer file is damaged or of a kind that is not supported.
    #[error("{path} is not a usable tokenizer: {}", advice::fact(.why))]
    BadTokenizer {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A tokenizer lacks a special token.
    #[error("the {kind} tokenizer has no {symbol}, which sequences of pairs need")]
    NoSymbol {
        /// The token.
        symbol: &'static str,
        /// Kind of the tokenizer.
        kind: &'static str,
    },
    /// A file of another program is damaged, or holds what is not understood.
    #[error("{path} cannot be read: {}", advice::fact(.why))]
    BadForeign {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        why: String,
    },
    /// A tokenizer cannot be trained from this text with these options.
    #[error("cannot train the {kind} tokenizer: {}", advice::fact(.why))]
    Training {
        /// The kind asked for.
        kind: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Options that contradict each other or are out of range.
    #[error("{}", advice::fact(.0))]
    Usage(String),
    /// A lane is shorter than one segment.
    #[error("a lane has {lane_tokens} tokens, but a segment of {segment} needs {needed}")]
    LaneTooShort {
        /// Tokens in each lane.
        lane_tokens: u64,
        /// Number of lanes over the whole job.
        lanes: usize,
        /// Tokens a lane yields per step.
        segment: usize,
        /// Tokens a lane needs: one segment and one more target.
        needed: u64,
        /// Tokens in the stream.
        total: u64,
    },
    /// A read past the end of a token stream.
    #[error("tokens {start}..{end} were asked for, but the stream ends at {total}")]
    OutOfRange {
        /// First token asked for.
        start: u64,
        /// One past the last token asked for.
        end: u64,
        /// Length of the stream.
        total: u64,
    },
    /// The build was asked to stop; what is finished is kept.
    #[error("the build was stopped after {}", counted(*shards, "finished shard"))]
    Stopped {
        /// Shards that are whole on disk.
        shards: u64,
    },
    /// A thread of ours could not be started or ended without saying why.
    #[error("the thread that builds batches {0}")]
    Thread(String),
}

impl DataError {
    /// The process exit code documented for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            DataError::Usage(_) => exit_code::USAGE,
            DataError::NotUtf8 { .. }
            | DataError::BadInput { .. }
            | DataError::BadLine { .. }
            | DataError::BadRecord { .. }
            | DataError::EmptyInput { .. }
            | DataError::BadShard { .. }
            | DataError::BadCorpus { .. }
            | DataError::EmptySplit { .. }
            | DataError::BadTokenizer { .. }
            | DataError::BadForeign { .. }
            | DataError::NoSymbol { .. }
            | DataError::Training { .. }
            | DataError::LaneTooShort { .. } => exit_code::BAD_DATA,
            DataError::Missing { .. } => exit_code::NO_INPUT,
            DataError::OutOfRange { .. } | DataError::Thread(_) => exit_code::BUG,
            DataError::Output { .. } => exit_code::CANNOT_CREATE,
            DataError::Read { source, .. } => exit_code::of_read(source),
            DataError::Write { source, .. } => exit_code::of_write(source),
            DataError::Stopped { .. } => exit_code::PREEMPTED,
        }
    }

    /// What the user can do about it, where that is known: a sentence in the imperative, for a line of its own.
    pub fn hint(&self) -> Option<String> {
        match self {
            DataError::Missing { why, .. }
            | DataError::Output { why, .. }
            | DataError::BadInput { why, .. }
            | DataError::BadLine { why, .. }
            | DataError::BadRecord { why, .. }
            | DataError::EmptyInput { why }
            | DataError::BadShard { why, .. }
            | DataError::BadCorpus { why, .. }
            | DataError::BadTokenizer { why, .. }
            | DataError::BadForeign { why, .. }
            | DataError::Training { why, .. }
            | DataError::Usage(why) => advice::hint(why),
            DataError::NotUtf8 { .. } => Some("convert it to UTF-8, or pass --invalid-utf8 replace".into()),
            DataError::EmptySplit { split, .. } => {
                Some(format!("build the corpus with --{split} FILE or with --split"))
            }
            DataError::NoSymbol { .. } => Some(
                "train one with --special \"<cls>,<sep>,<pad>,<mask>,<eod>,<eop>\", or import one that has it".into(),
            ),
            DataError::LaneTooShort { lanes, total, .. } => Some(format!(
                "use fewer lanes (now {lanes}), a shorter segment, or more text (now {total} tokens)"
            )),
            DataError::Stopped { .. } => Some("run the same command again to resume".into()),
            DataError::Read { .. }
            | DataError::Write { .. }
            | DataError::OutOfRange { .. }
            | DataError::Thread(_) => None,
        }
    }

    /// The same about a line or record, with this advice where it has none.
    pub fn advised(mut self, hint: &str) -> Self {
        if let DataError::BadLine { why, .. } | DataError::BadRecord { why, .. } = &mut self
            && advice::hint(why).is_none()
        {
            *why = advice::joined(why, Some(hint.to_owned()));
        }
        self
    }

    /// A failed read: a missing file is told apart from one that cannot be read.
    pub fn read(path: &Path, source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::NotFound => DataError::Missing { path: path.into(), why: String::new() },
            _ => DataError::Read { path: path.into(), source },
        }
    }

    /// A failed write.
    pub fn write(path: &Path, source: std::io::Error) -> Self {
        DataError::Write { path: path.into(), source }
    }

    /// Refuses an output folder with files in it: what somebody works with may be among them.
    pub fn refuse_files(folder: &Path) -> Result<(), Self> {
        let refused = |why: String| DataError::Output { path: folder.into(), why };
        if folder.exists() && folder.read_dir().map_err(|e| refused(e.to_string()))?.next().is_some() {
            return Err(refused("it is not empty\nhint: choose an empty or a new folder".into()));
        }
        Ok(())
    }

    /// Begins an output folder before any work is done: a new one, or an empty one in its place. It appears whole or not at all.
    pub fn begin_folder(output: &Path) -> Result<segue_publish::FreshFolder, Self> {
        Self::refuse_files(output)?;
        if output.file_name().is_none() {
            let why = "it names no folder\nhint: name a new folder".into();
            return Err(DataError::Output { path: output.into(), why });
        }
        segue_publish::FreshFolder::create(output).map_err(|error| match error.source.kind() {
            std::io::ErrorKind::CrossesDevices => error.into(),
            _ => Self::folder(&error.path, error.source),
        })
    }

    /// An output folder that cannot be made.
    pub fn folder(path: &Path, source: std::io::Error) -> Self {
        DataError::Output { path: path.into(), why: format!("the folder cannot be made: {source}") }
    }

    /// A bad line of a task's file, by its number from 1.
    pub fn line(path: &Path, line: u64, why: impl Into<String>) -> Self {
        DataError::BadLine { path: path.into(), line, why: why.into() }
    }

    /// A bad record of a task's file.
    pub fn record(path: &Path, record: impl Into<String>, why: impl Into<String>) -> Self {
        DataError::BadRecord { path: path.into(), record: record.into(), why: why.into() }
    }

    /// A damaged shard.
    pub fn shard(path: &Path, why: impl Into<String>) -> Self {
        DataError::BadShard { path: path.into(), why: why.into() }
    }

    /// A corpus that cannot be used.
    pub fn corpus(path: &Path, why: impl Into<String>) -> Self {
        DataError::BadCorpus { path: path.into(), why: why.into() }
    }

    /// A file of another program that cannot be read.
    pub fn foreign(path: &Path, why: impl Into<String>) -> Self {
        DataError::BadForeign { path: path.into(), why: why.into() }
    }

    /// A tokenizer that cannot be used.
    pub fn tokenizer(path: &Path, why: impl Into<String>) -> Self {
        DataError::BadTokenizer { path: path.into(), why: why.into() }
    }
}

impl From<segue_publish::PublishError> for DataError {
    fn from(error: segue_publish::PublishError) -> Self {
        match error.source.kind() {
            std::io::ErrorKind::CrossesDevices => {
                DataError::Output { path: error.path, why: error.source.to_string() }
            }
            _ => DataError::Write { path: error.path, source: error.source },
        }
    }
}

/// A text without the byte-order mark that some programs write at the beginning of a file: it is no part of the text.
///
/// ```
/// assert_eq!(segue_data_error::without_mark(b"\xEF\xBB\xBFa"), b"a");
/// ```
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// The reason at the end of a sentence, where there is one.
fn because(why: &str) -> String {
    match advice::fact(why) {
        "" => String::new(),
        fact => format!(": {fact}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_folder_that_cannot_be_published_there_is_a_matter_of_the_output() {
        let from =
            |source: io::Error| DataError::from(segue_publish::PublishError { path: "out".into(), source });
        let mount = io::Error::new(io::ErrorKind::CrossesDevices, "it is a mount point\nhint: name another");
        let error = from(mount);
        assert_eq!(error.to_string(), "out cannot take the output: it is a mount point");
        assert_eq!((error.exit_code(), error.hint().unwrap().as_str()), (73, "name another"));
        assert_eq!(from(io::ErrorKind::StorageFull.into()).exit_code(), 74);
    }
}
