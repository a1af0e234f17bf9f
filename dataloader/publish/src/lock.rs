//! Who is still writing.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Whether what is being written is taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is the caller's until the file is closed.
    Ours,
    /// Another writer is at work on it.
    Taken,
    /// It is not, or no longer, what its path names.
    Gone,
    /// The file system has no locks: nobody knows.
    Unknown,
}

/// A file whose lock is given back with it. A program that another thread starts has all files of this process open until it is loaded, and a lock that is
/// left to the closing of its file lasts as long as one of them is.
#[derive(Debug)]
pub struct Lock(File);

impl From<File> for Lock {
    fn from(file: File) -> Self {
        Self(file)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Where there are no locks, there is none to give back.
        let _ = self.0.unlock();
    }
}

type Tell = Box<dyn FnOnce(&Path) + Send>;

/// Whom to tell of the first file without locks.
static TELL: Mutex<Option<Tell>> = Mutex::new(None);

/// Lets `tell` hear of the first path of this process that [`claim`] finds on a file system without locks, where writers cannot see each other. Of
/// single files it does not: each writer has a part of its own.
/// Libraries print nothing: it is for whoever speaks to people.
pub fn on_missing_locks(tell: impl FnOnce(&Path) + Send + 'static) {
    *TELL.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tell));
}

fn tell_of(path: &Path) {
    let tell = TELL.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(tell) = tell {
        tell(path);
    }
}

/// Tries to take the lock of `file`, which was opened at `path`. The lock goes when the file is closed, however the process
/// ends, or as soon as a [`Lock`] of it goes.
///
/// # Errors
///
/// What the system refused; that it has no locks is [`Claim::Unknown`], and told by [`on_missing_locks`].
pub fn claim(file: &File, path: &Path) -> io::Result<Claim> {
    let claim = claim_quietly(file, path)?;
    if claim == Claim::Unknown {
        tell_of(path);
    }
    Ok(claim)
}

/// [`claim`], where nothing can be damaged without locks.
pub(crate) fn claim_quietly(file: &File, path: &Path) -> io::Result<Claim> {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::fs::{Mode, OFlags, open};

    use super::*;

    #[test]
    fn a_claim_holds_until_the_file_is_closed_and_only_for_what_has_the_name() {
        let _guard = crate::faults::no_children();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = File::create(&path).unwrap();
        let claimed = |file: &File| claim(file, &path).unwrap();
        assert_eq!(claimed(&first), Claim::Ours);
        let second = File::create(&path).unwrap();
        assert_eq!(claimed(&second), Claim::Taken);
        drop(first);
        assert_eq!(claimed(&second), Claim::Ours);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(claimed(&second), Claim::Gone);
    }

    /// A child between its fork and its exec has what its parent has open.
    #[test]
    fn a_lock_is_given_back_while_others_have_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = File::create(&path).unwrap();
        let of_child = first.try_clone().unwrap();
        assert_eq!(claim(&first, &path).unwrap(), Claim::Ours);
        let lock = Lock::from(first);
        let second = File::create(&path).unwrap();
        assert_eq!(claim(&second, &path).unwrap(), Claim::Taken);
        drop(lock);
        assert_eq!(claim(&second, &path).unwrap(), Claim::Ours);
        drop(of_child);
    }

    #[test]
    fn a_lock_that_the_system_does_not_have_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        // Such a descriptor has no locks, like files of some network file systems.
        let descriptor = File::from(open(dir.path(), OFlags::PATH, Mode::empty()).unwrap());
        let (tell, told) = mpsc::channel();
        on_missing_locks(move |path: &Path| tell.send(path.to_path_buf()).unwrap());
        assert_eq!(claim_quietly(&descriptor, dir.path()).unwrap(), Claim::Unknown);
        assert_eq!(told.try_iter().count(), 0);
        assert_eq!(claim(&descriptor, dir.path()).unwrap(), Claim::Unknown);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [dir.path()]);
    }
}
