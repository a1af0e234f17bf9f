//! Folders.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::PublishError;
use crate::disk::{
    NEW_LINK, cannot_exchange, exchange, hidden, is_mount_point, make_folders, parent_of, remove, sync_folder,
};
use crate::lock::{Claim, Lock, claim};

/// What the name of a folder that is being filled ends in.
const PART: &str = ".part";
/// What the name of a folder that is being replaced ends in, where the file system cannot exchange two folders.
const RETIRED: &str = ".old";

/// A folder that is being filled under a hidden name, `.NAME.part`. Dropped, it goes with all that is in it.
///
/// ```
/// use segue_publish::FreshFolder;
///
/// let place = tempfile::tempdir()?;
/// let target = place.path().join("model");
/// let fresh = FreshFolder::create(&target)?;
/// std::fs::write(fresh.path().join("config.json"), "{}")?;
/// assert!(!target.exists());
/// fresh.publish()?;
/// assert!(target.join("config.json").is_file());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FreshFolder {
    target: PathBuf,
    part: PathBuf,
    /// Whether a folder that is there gives way.
    replaces: bool,
    /// Tells other writers that this one lives.
    _lock: Option<Lock>,
    /// Whether the part goes with this.
    disposable: bool,
    before: Before,
}

/// Asked before each step; an error takes the place of the step. Tests let writers fail and die in it.
pub(crate) type Before = Box<dyn FnMut(Step) -> io::Result<()> + Send>;

/// What is asked of the system, one call each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    MakePart,
    LockPart,
    SyncFile,
    SyncFolder,
    /// The part takes the final name.
    Rename,
    /// The part and the folder that it replaces swap names.
    Exchange,
    /// Without exchange: the old folder makes room.
    Retire,
    SyncParent,
    RemoveOld,
}

impl Step {
    /// The point of faults on purpose before it.
    fn fault(self) -> io::Result<()> {
        segue_faults::io(match self {
            Self::MakePart => "folder.make",
            Self::LockPart => "folder.lock",
            Self::SyncFile => "folder.sync-file",
            Self::SyncFolder => "folder.sync",
            Self::Rename => "folder.rename",
            Self::Exchange => "folder.exchange",
            Self::Retire => "folder.retire",
            Self::SyncParent => "folder.sync-parent",
            Self::RemoveOld => "folder.remove-old",
        })
    }
}

impl FreshFolder {
    /// Begins a folder that is to appear as `target`, where nothing may be, or an empty folder, or a link to one. Folders
    /// above it are made where they are missing; what killed writers of this folder have left is removed.
    ///
    /// # Errors
    ///
    /// What the system refused; [`io::ErrorKind::ResourceBusy`] where another process is filling this folder,
    /// [`io::ErrorKind::CrossesDevices`] where it is a mount point, which cannot give way.
    pub fn create(target: &Path) -> Result<Self, PublishError> {
        Self::begin(target, false, Box::new(Step::fault))
    }

    /// The same for a folder that takes the place of the one that is there, if there is one. Whoever opens `target` finds
    /// the old folder or the new one; only on file systems that cannot exchange two names (some network file systems) is
    /// there a moment without either. A writer that is killed in that moment leaves the old one as `.NAME.old`, and the
    /// next one puts it back.
    ///
    /// # Errors
    ///
    /// Those of [`FreshFolder::create`].
    pub fn replacing(target: &Path) -> Result<Self, PublishError> {
        Self::begin(target, true, Box::new(Step::fault))
    }

    pub(crate) fn begin(target: &Path, replaces: bool, mut before: Before) -> Result<Self, PublishError> {
        // A link stays, and what it leads to gives way; where folders are replaced, the link itself does.
        let target = match target.is_symlink() && !replaces {
            true => target.canonicalize().map_err(PublishError::at(target))?,
            false => target.into(),
        };
        let part = hidden(&target, PART).map_err(PublishError::at(&target))?;
        if is_mount_point(&target) {
            let why = "it is a mount point\nhint: name a folder inside it";
            let source = io::Error::new(io::ErrorKind::CrossesDevices, why);
            return Err(PublishError { path: target, source });
        }
        make_folders(parent_of(&target))?;
        let lock = make_part(&part, &mut before)?;
        let fresh = Self { target, part, replaces, _lock: lock, disposable: true, before };
        if replaces {
            put_back(&fresh.target)?;
        }
        Ok(fresh)
    }

    /// Where the files go.
    pub fn path(&self) -> &Path {
        &self.part
    }

    /// Leaves the part behind, as a killed writer would: where others may still write into it, it must not go. The next writer of the same
    /// name removes it.
    pub fn leave(mut self) {
        self.disposable = false;
    }

    /// Flushes all that is in the folder to the disk and gives it its name.
    ///
    /// # Errors
    ///
    /// What the system refused. The old folder, if any, stays, or the new one is there whole.
    pub fn publish(mut self) -> Result<(), PublishError> {
        let part = self.part.clone();
        self.sync_tree(&part)?;
        let old = match self.replaces && self.target.symlink_metadata().is_ok() {
            true => Some(self.swap()?),
            false => {
                let target = self.target.clone();
                self.step(Step::Rename, &target, |target| fs::rename(&part, target))?;
                None
            }
        };
        // What is called `part` from here on is the folder that was replaced: where the disk fails now, better two than none.
        self.disposable = false;
        let parent = parent_of(&self.target).to_path_buf();
        (self.before)(Step::SyncParent).map_err(PublishError::at(&parent))?;
        sync_folder(&parent)?;
        match old {
            Some(old) => self.step(Step::RemoveOld, &old, |old| remove_unclaimed(old).map(|_| ())),
            None => Ok(()),
        }
    }

    /// Puts the part in place of the old folder; gives where the old one is now.
    fn swap(&mut self) -> Result<PathBuf, PublishError> {
        let (part, target) = (self.part.clone(), self.target.clone());
        match (self.before)(Step::Exchange).and_then(|()| exchange(&part, &target)) {
            Ok(()) => return Ok(part),
            Err(e) if cannot_exchange(&e) => {}
            Err(e) => return Err(PublishError { path: target, source: e }),
        }
        let old = hidden(&target, RETIRED).map_err(PublishError::at(&target))?;
        self.step(Step::Retire, &target, |target| fs::rename(target, &old))?;
        if let Err(error) = self.step(Step::Rename, &target, |target| fs::rename(&part, target)) {
            // Where even this fails, the next writer tries again.
            let _ = fs::rename(&old, &target);
            return Err(error);
        }
        Ok(old)
    }

    /// Flushes every file and folder of the part, folders after what is in them.
    fn sync_tree(&mut self, folder: &Path) -> Result<(), PublishError> {
        for entry in fs::read_dir(folder).map_err(PublishError::at(folder))? {
            let entry = entry.map_err(PublishError::at(folder))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(PublishError::at(folder))?);
            if kind.is_dir() {
                self.sync_tree(&path)?;
            } else if kind.is_file() {
                segue_world::flush(|| self.step(Step::SyncFile, &path, |path| File::open(path)?.sync_all()))?;
                segue_world::synced(&path);
            }
        }
        (self.before)(Step::SyncFolder).map_err(PublishError::at(folder))?;
        sync_folder(folder)
    }

    fn step<T>(
        &mut self,
        step: Step,
        path: &Path,
        call: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<T, PublishError> {
        (self.before)(step).and_then(|()| call(path)).map_err(PublishError::at(path))
    }
}

impl Drop for FreshFolder {
    fn drop(&mut self) {
        if self.disposable && !segue_world::is_killed() {
            // What is there of the part is worthless, and its space may be what is lacking. The error that led here is
            // the one to tell.
            let _ = fs::remove_dir_all(&self.part);
        }
    }
}

/// Removes the parts that killed writers have left in `folder` of the folders and links whose names `is_ours`, and puts folders back
/// that were being replaced. Writers do this themselves for the name they write; this is for names that nobody may
/// write again. A `folder` that is not there is fine.
///
/// # Errors
///
/// What the system refused.
pub fn clean_up(folder: &Path, is_ours: impl Fn(&str) -> bool) -> Result<(), PublishError> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(PublishError::at(folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(PublishError::at(folder))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix('.')) else { continue };
        let path = entry.path();
        if name.strip_suffix(PART).is_some_and(&is_ours) {
            remove_unclaimed(&path).map_err(PublishError::at(&path))?;
        } else if let Some(name) = name.strip_suffix(RETIRED).filter(|name| is_ours(name)) {
            put_back(&folder.join(name))?;
        } else if name.strip_suffix(NEW_LINK).is_some_and(&is_ours) && path.is_symlink() {
            remove(&path).map_err(PublishError::at(&path))?;
        }
    }
    Ok(())
}

/// Ends a replacement by two renames whose writer was killed: the old folder comes back where there is no new one.
fn put_back(target: &Path) -> Result<(), PublishError> {
    let old = hidden(target, RETIRED).map_err(PublishError::at(target))?;
    if old.symlink_metadata().is_err() {
        return Ok(());
    }
    if target.symlink_metadata().is_ok() {
        return remove_unclaimed(&old).map(|_| ()).map_err(PublishError::at(&old));
    }
    fs::rename(&old, target).map_err(PublishError::at(target))?;
    sync_folder(parent_of(target))
}

/// Makes and locks the part.
fn make_part(part: &Path, before: &mut Before) -> Result<Option<Lock>, PublishError> {
    let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing it");
    let mut make = || -> io::Result<Option<Lock>> {
        loop {
            if !remove_unclaimed(part)? {
                return Err(busy());
            }
            before(Step::MakePart)?;
            match fs::create_dir(part) {
                // Another writer was faster; it may be done by now.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let locked = before(Step::LockPart).and_then(|()| {
                let lock = File::open(part)?;
                Ok((claim(&lock, part)?, lock))
            });
            match locked {
                Ok((Claim::Ours, lock)) => return Ok(Some(lock.into())),
                Ok((Claim::Unknown, _)) => return Ok(None),
                Ok((Claim::Taken, _)) => return Err(busy()),
                Ok((Claim::Gone, _)) => {}
                Err(error) => {
                    let _ = fs::remove_dir(part);
                    return Err(error);
                }
            }
        }
    };
    make().map_err(PublishError::at(part))
}

/// Removes what is at `path` unless a living writer has it; says whether it is gone.
///
/// It may be a folder that was replaced, by an exchange that is not on the disk yet: were the power to fail after the removal and before that is, the
/// old folder would be back under its name, and empty. So names are flushed first.
fn remove_unclaimed(path: &Path) -> io::Result<bool> {
    loop {
        let lock = match path.symlink_metadata() {
            Ok(found) if found.is_dir() => File::open(path),
            Ok(_) => return remove(path).map(|()| true),
            Err(e) => Err(e),
        };
        let lock = match lock {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            lock => lock?,
        };
        match claim(&lock, path)? {
            Claim::Ours | Claim::Unknown => {
                sync_folder(parent_of(path)).map_err(|e| e.source)?;
                return remove(path).map(|()| true);
            }
            Claim::Taken => return Ok(false),
            // Another one has that name by now.
            Claim::Gone => {}
        }
    }
}
