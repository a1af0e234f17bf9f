//! Files and folders that appear whole or not at all.
//!
//! A writer fills a hidden *part* beside the final place: [`FreshFolder`] for a folder, [`FreshFile`] or [`write_file`] for a
//! single file. Publishing flushes everything in the part to the disk, gives it its final name, and flushes the folder
//! around it, so that what has been published is still there after a power cut.
//!
//! A writer that fails removes its part. A writer holds a lock on its part for as long as it lives; a part without a lock was
//! left by a writer that was killed, and the next writer of the same name removes it.

mod disk;
#[cfg(test)]
mod faults;
mod file;
mod flushed;
mod folder;
mod lock;
mod regular;

use std::io;
use std::path::{Path, PathBuf};

pub use disk::{rename_durably, replace_link};
pub use file::{FreshFile, TEMPORARY_SUFFIX, write_file, write_passing_file};
pub use flushed::FlushedFile;
pub use folder::{FreshFolder, clean_up};
pub use lock::{Claim, Lock, claim, on_missing_locks};
pub use regular::{
    append_regular, empty_regular, make_own_folder, make_own_folders, open_lock, open_regular, read_regular,
    read_regular_text,
};

/// Something could not be published.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}")]
pub struct PublishError {
    /// The file or folder that the system refused to write.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl PublishError {
    /// For `map_err`: a refusal that concerns `path`.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self { path: path.into(), source }
    }
}
