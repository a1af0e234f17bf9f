use std::fmt;

use crate::corpus::Split;

/// A stretch of work that reads its input once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the text to train a tokenizer.
    Counting,
    /// Training the tokenizer from what was counted; its length is not known.
    Training,
    /// Encoding a split into shards.
    Encoding(Split),
    /// Taking over a split from records of another program.
    Importing(Split),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Counting => f.write_str("counting"),
            Stage::Training => f.write_str("training the tokenizer"),
            Stage::Encoding(split) => write!(f, "encoding {split}"),
            Stage::Importing(split) => write!(f, "importing {split}"),
        }
    }
}

/// Is told how a build goes on, and may stop it. All methods have a default that does nothing; `()` observes nothing.
pub trait BuildObserver: Sync {
    /// A stage begins; it will read `total_bytes` of files as they lie on disk.
    fn stage(&self, stage: Stage, total_bytes: u64) {
        let _ = (stage, total_bytes);
    }

    /// So many bytes of the stage are done.
    fn progress(&self, done_bytes: u64) {
        let _ = done_bytes;
    }

    /// Something that the user should know.
    fn note(&self, message: &str) {
        let _ = message;
    }

    /// Asked after every published shard, with the number published by this call so far: `true` stops the build, which
    /// then fails with [`segue_data_error::DataError::Stopped`] and can be taken up again.
    fn stops_after(&self, shards: u64) -> bool {
        let _ = shards;
        false
    }
}

impl BuildObserver for () {}
