//! What the operating system is asked to do.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, RenameFlags, StatxAttributes, StatxFlags, renameat_with, statx};
use rustix::io::Errno;

use crate::PublishError;

/// What the name of a link that is to replace another one ends in.
pub(crate) const NEW_LINK: &str = ".new";

/// Flushes a file that was written under the name `from`, renames it to `to` in place of what is there, and flushes the
/// folder.
///
/// # Errors
///
/// What the system refused: of flushing the file names `from`, of renaming `to`, of flushing the folder that one.
pub fn rename_durably(file: &File, from: &Path, to: &Path) -> Result<(), PublishError> {
    segue_world::flush(|| segue_faults::io("file.sync").and_then(|()| file.sync_all()))
        .map_err(PublishError::at(from))?;
    segue_world::synced(from);
    segue_faults::io("file.rename").and_then(|()| fs::rename(from, to)).map_err(PublishError::at(to))?;
    sync_folder(parent_of(to))
}

/// Points the symbolic link at `path` to `target`, in one step, and flushes the folder.
///
/// # Errors
///
/// What the system refused; the link is the old one then, or the new one.
pub fn replace_link(path: &Path, target: &Path) -> Result<(), PublishError> {
    let fresh = hidden(path, NEW_LINK).map_err(PublishError::at(path))?;
    let swap = || {
        if fresh.symlink_metadata().is_ok() {
            fs::remove_file(&fresh)?;
        }
        segue_faults::io("link.make")?;
        std::os::unix::fs::symlink(target, &fresh)?;
        segue_faults::io("link.rename")?;
        fs::rename(&fresh, path)?;
        segue_faults::io("link.sync-parent")
    };
    swap().map_err(PublishError::at(path))?;
    sync_folder(parent_of(path))
}

/// The folder that `path` lies in.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The hidden place `.NAME` + `ending` beside `path`.
pub(crate) fn hidden(path: &Path, ending: &str) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(ending);
    Ok(parent_of(path).join(hidden))
}

/// Whether something is mounted at `path`: nothing can be renamed to it.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    let told = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    // Kernels before 5.8 do not tell. Another device than that of the folder around it does, where there are two.
    told.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
        || match (path.symlink_metadata(), parent_of(path).metadata()) {
            (Ok(found), Ok(around)) => found.dev() != around.dev(),
            _ => false,
        }
}

/// Makes a folder and those above it where they are missing, so that they last.
pub(crate) fn make_folders(path: &Path) -> Result<(), PublishError> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    fs::create_dir_all(path).map_err(PublishError::at(path))?;
    missing.iter().rev().try_for_each(|made| sync_folder(parent_of(made)))
}

/// Waits until a folder's entries are on the disk.
pub(crate) fn sync_folder(path: &Path) -> Result<(), PublishError> {
    let synced = File::open(path).and_then(|folder| segue_world::flush(|| folder.sync_all()));
    match synced {
        // Some network file systems have no such call for folders, which they write at once.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        Ok(()) => {
            segue_world::synced(path);
            Ok(())
        }
        synced => synced.map_err(PublishError::at(path)),
    }
}

/// Lets two names swap what they stand for, in one step.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// Whether the kernel or the file system does not know [`exchange`].
pub(crate) fn cannot_exchange(error: &io::Error) -> bool {
    let known = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP].map(|code| Some(code.raw_os_error()));
    known.contains(&error.raw_os_error())
}

/// Removes a folder with everything in it, or whatever else has that name.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_whatever_a_killed_writer_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("latest");
        replace_link(&link, Path::new("one")).unwrap();
        std::os::unix::fs::symlink("half", dir.path().join(".latest.new")).unwrap();
        replace_link(&link, Path::new("two")).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("two"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_mount_point_is_told_from_folders_links_and_what_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        assert!(is_mount_point(Path::new("/proc")));
        for other in [dir.path(), &link, &dir.path().join("none"), Path::new("/proc/self")] {
            assert!(!is_mount_point(other), "{}", other.display());
        }
    }

    #[test]
    fn names_without_a_folder_lie_in_the_current_one() {
        assert_eq!(hidden(Path::new("a"), ".part").unwrap(), Path::new("./.a.part"));
        assert_eq!(hidden(Path::new("/a/b"), ".part").unwrap(), Path::new("/a/.b.part"));
        assert!(hidden(Path::new("/"), ".part").is_err() && hidden(Path::new("a/.."), ".part").is_err());
    }
}
