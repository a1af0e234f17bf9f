//! Single files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::PublishError;
use crate::disk::{hidden, parent_of, rename_durably};
use crate::flushed::FlushedFile;
use crate::lock::{Claim, claim_quietly};

/// What the names of files end in until they are whole.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// Writes a file whole or not at all, in place of the one that is there. Its folder has to be there.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("scores.json");
/// segue_publish::write_file(&path, b"[1]")?;
/// segue_publish::write_file(&path, b"[1, 2]")?;
/// assert_eq!(std::fs::read(&path)?, b"[1, 2]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// What the system refused, with `path`.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), PublishError> {
    let mut fresh = FreshFile::create(path)?;
    fresh.write_all(content).map_err(PublishError::at(path))?;
    fresh.publish()
}

/// Writes a file whole or not at all, like [`write_file`], but flushes nothing: for what is written anew every second and means nothing
/// after a power cut, which may leave it empty. A flush takes a disk many milliseconds, and each of its writes some of its life.
///
/// # Errors
///
/// What the system refused, with `path`.
pub fn write_passing_file(path: &Path, content: &[u8]) -> Result<(), PublishError> {
    let mut fresh = FreshFile::create(path)?;
    fresh.write_all(content).and_then(|()| fs::rename(&fresh.part, path)).map_err(PublishError::at(path))?;
    fresh.disposable = false;
    Ok(())
}

/// A file that is being written under a hidden name, `.NAME.PROCESS-NUMBER.tmp`. Dropped, it goes. Several may be written
/// for one place at once; the last one published stays.
pub struct FreshFile {
    target: PathBuf,
    part: PathBuf,
    file: FlushedFile,
    /// Whether the part goes with this.
    disposable: bool,
}

impl FreshFile {
    /// Begins a file that is to appear as `target`, and removes what killed writers of that file have left. Its folder has
    /// to be there.
    ///
    /// # Errors
    ///
    /// What the system refused, with `target`.
    pub fn create(target: &Path) -> Result<Self, PublishError> {
        remove_leftovers(target);
        let (part, file) = open_part(target).map_err(PublishError::at(target))?;
        Ok(Self { target: target.into(), part, file: file.into(), disposable: true })
    }

    /// Where the part is, for a writer that opens files itself. What it truncates and fills there is this file.
    pub fn path(&self) -> &Path {
        &self.part
    }

    /// The open file, for its permissions.
    pub fn file(&self) -> &File {
        self.file.file()
    }

    /// Flushes the file and gives it its name, in place of the one that is there.
    ///
    /// # Errors
    ///
    /// What the system refused, with the final path.
    pub fn publish(mut self) -> Result<(), PublishError> {
        rename_durably(self.file(), &self.part, &self.target)
            .map_err(|e| PublishError { path: self.target.clone(), source: e.source })?;
        self.disposable = false;
        Ok(())
    }
}

impl Write for FreshFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for FreshFile {
    fn drop(&mut self) {
        if self.disposable && !segue_world::is_killed() {
            // The error that led here is the one to tell.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Makes and locks a part that nobody else writes.
fn open_part(target: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = hidden(target, &format!(".{}-{number}{TEMPORARY_SUFFIX}", process::id()))?;
        let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&part) {
            // Processes of other machines that share the folder may have the same number.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        match claim_quietly(&file, &part)? {
            Claim::Ours | Claim::Unknown => return Ok((part, file)),
            // Somebody takes it for a leftover, as it had no lock for a moment.
            Claim::Taken | Claim::Gone => {}
        }
    }
}

/// Removes the parts of `target` that nobody writes any more, as far as that is known and allowed.
fn remove_leftovers(target: &Path) {
    let Ok(own) = hidden(target, ".") else { return };
    let Some(own) = own.file_name().and_then(|name| name.to_str()) else { return };
    let entries = fs::read_dir(parent_of(target)).into_iter().flatten().flatten();
    for entry in entries {
        let is_part = entry.file_name().to_str().is_some_and(|name| is_part(name, own));
        if !is_part || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        if let Ok(file) = File::open(&path)
            && let Ok(Claim::Ours) = claim_quietly(&file, &path)
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether `name` is `own` with two numbers and the ending.
fn is_part(name: &str, own: &str) -> bool {
    let numbers = name.strip_prefix(own).and_then(|rest| rest.strip_suffix(TEMPORARY_SUFFIX));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    numbers.and_then(|text| text.split_once('-')).is_some_and(|(a, b)| is_number(a) && is_number(b))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_is_not_published_leaves_the_old_one_and_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_file(&path, b"old").unwrap();
        let mut fresh = FreshFile::create(&path).unwrap();
        fresh.write_all(b"ne").unwrap();
        assert_eq!(names(dir.path()).len(), 2);
        drop(fresh);
        assert_eq!((names(dir.path()), fs::read(&path).unwrap()), (vec!["f".to_string()], b"old".to_vec()));
    }

    #[test]
    fn what_is_written_by_name_is_published() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_file(&path, b"old").unwrap();
        let fresh = FreshFile::create(&path).unwrap();
        fs::write(fresh.path(), b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        fresh.publish().unwrap();
        assert_eq!((names(dir.path()), fs::read(&path).unwrap()), (vec!["f".to_string()], b"new".to_vec()));
    }

    #[test]
    fn a_passing_file_is_whole_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for content in [&b"old"[..], b"new"] {
            write_passing_file(&path, content).unwrap();
            assert_eq!(
                (names(dir.path()), fs::read(&path).unwrap()),
                (vec!["f".to_string()], content.to_vec())
            );
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("in the way")).unwrap();
        assert_eq!(write_passing_file(&path, b"x").unwrap_err().path, path);
        assert_eq!(names(dir.path()), ["f"]);
    }

    #[test]
    fn a_failed_rename_removes_the_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::create_dir_all(path.join("in the way")).unwrap();
        let error = write_file(&path, b"new").unwrap_err();
        assert_eq!((error.path, names(dir.path())), (path, vec!["f".to_string()]));
    }

    #[test]
    fn parts_of_killed_writers_go_and_those_of_living_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let left = [".f.12-0.tmp", ".f.4711-33.tmp"];
        let foreign = [".f.tmp", ".f.1-a.tmp", ".f.-1.tmp", ".g.1-1.tmp", "f.1-1.tmp", ".f.1-1.tmp.txt"];
        for name in left.iter().chain(&foreign) {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        let living = FreshFile::create(&path).unwrap();
        write_file(&path, b"new").unwrap();
        let found = names(dir.path());
        assert!(left.iter().all(|name| !found.contains(&name.to_string())), "{found:?}");
        assert!(foreign.iter().all(|name| found.contains(&name.to_string())), "{found:?}");
        assert!(living.part.exists());
        living.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn many_writers_of_one_file_leave_it_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let contents: Vec<Vec<u8>> = (0..8u8).map(|i| vec![i; 10_000 + usize::from(i)]).collect();
        thread::scope(|scope| {
            for content in &contents {
                scope.spawn(|| (0..5).for_each(|_| write_file(&path, content).unwrap()));
            }
        });
        assert!(contents.contains(&fs::read(&path).unwrap()));
        assert_eq!(names(dir.path()), ["f"]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none/f");
        let error = write_file(&path, b"x").unwrap_err();
        assert_eq!((error.source.kind(), error.path), (io::ErrorKind::NotFound, path));
    }
}
