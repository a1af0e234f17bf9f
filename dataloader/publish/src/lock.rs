//! Who is still writing a part.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether a part is taken.
pub(crate) enum Claim {
    /// It is the caller's until the file is closed.
    Ours,
    /// Another writer is at work on it.
    Taken,
    /// It is not, or no longer, what its path names.
    Gone,
    /// The file system has no locks: nobody knows.
    Unknown,
}

/// Tries to take the lock of the open part `file` at `path`. The lock goes when the file is closed, however the process
/// ends.
pub(crate) fn claim(file: &File, path: &Path) -> io::Result<Claim> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Claim::Taken),
        Err(TryLockError::Error(_)) => return Ok(Claim::Unknown),
    }
    // Whoever held the lock until now may have removed or renamed what it stands for.
    let (held, found) = (file.metadata()?, path.symlink_metadata());
    match found {
        Ok(found) if (found.dev(), found.ino()) == (held.dev(), held.ino()) => Ok(Claim::Ours),
        Ok(_) => Ok(Claim::Gone),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Claim::Gone),
        Err(e) => Err(e),
    }
}
