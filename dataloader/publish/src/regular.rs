//! Files of fixed names in folders that somebody else may have made, such as the folder of a run: none is written or emptied
//! through a link, and pipes and devices are refused before anybody waits for them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// Permissions of a new file, less the process's mask.
const MODE: u32 = 0o666;

/// Makes the folder at `path`, and those above it, where they are missing. What is put there by fixed names stays in the folder around it.
///
/// # Errors
///
/// What the system refused; `AlreadyExists` for a link to a folder.
pub fn make_own_folder(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    fs::create_dir_all(path)?;
    match path.is_symlink() {
        true => Err(is_a_link()),
        false => Ok(()),
    }
}

/// Makes the folder at `root`, which may be a link, and each folder of `below` in it, of which none may.
///
/// # Errors
///
/// See [`make_own_folder`].
pub fn make_own_folders(root: impl AsRef<Path>, below: impl AsRef<Path>) -> io::Result<()> {
    let mut folder = root.as_ref().to_path_buf();
    fs::create_dir_all(&folder)?;
    below.as_ref().components().try_for_each(|part| {
        folder.push(part);
        make_own_folder(&folder)
    })
}

/// Opens the regular file at `path`, or the one that a link there leads to, for reading.
///
/// # Errors
///
/// What the system refused; `InvalidInput` for what is not a regular file.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    open_with(path.as_ref(), OFlags::RDONLY)
}

/// The bytes of the regular file at `path`: as many as it had when it was opened.
///
/// # Errors
///
/// See [`open_regular`].
pub fn read_regular(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let (length, mut bytes) = (file.metadata()?.len(), Vec::new());
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of the regular file at `path`.
///
/// # Errors
///
/// See [`open_regular`]; `InvalidData` for what is not UTF-8.
pub fn read_regular_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read_regular(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

/// Opens the regular file at `path` to append to it, and makes it where there is none.
///
/// # Errors
///
/// What the system refused; `AlreadyExists` for a link, `InvalidInput` for what is not a regular file.
pub fn append_regular<P: AsRef<Path>>(path: P) -> io::Result<File> {
    let path = path.as_ref();
    refuse_link(path, open_with(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW))
}

/// Opens the regular file at `path` for writing, empty, and makes it where there is none.
///
/// # Errors
///
/// See [`append_regular`].
pub fn empty_regular<P: AsRef<Path>>(path: P) -> io::Result<File> {
    let path = path.as_ref();
    let file = refuse_link(path, open_with(path, OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW))?;
    file.set_len(0)?;
    Ok(file)
}

/// Opens the file of a lock at `path`, whose content stays as it is, and makes it where there is none. It may be a link to a file where there
/// are locks.
///
/// # Errors
///
/// What the system refused; `AlreadyExists` for a link to nothing, `InvalidInput` for what is not a regular file.
pub fn open_lock(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    match open_with(path, OFlags::WRONLY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    open_with(path, OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW).map_err(|error| {
        match path.is_symlink() {
            true => io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it is a symbolic link to nothing\nhint: make the file that it leads to",
            ),
            false => error,
        }
    })
}

/// Without waiting for the other end of a pipe.
fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let irregular = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    let file = match open(path, flags, Mode::from_raw_mode(MODE)) {
        // A pipe that nobody reads, a socket, or a device without a driver.
        Err(Errno::NXIO) => return Err(irregular()),
        opened => File::from(opened?),
    };
    match file.metadata()? {
        found if found.is_file() => Ok(file),
        found if found.is_dir() => Err(Errno::ISDIR.into()),
        _ => Err(irregular()),
    }
}

/// Names the link at `path` where it is why `opened` failed.
fn refuse_link(path: &Path, opened: io::Result<File>) -> io::Result<File> {
    opened.map_err(|error| match path.is_symlink() {
        true => is_a_link(),
        false => error,
    })
}

fn is_a_link() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it is a symbolic link")
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A folder with a link to a file, to a pipe, to an endless device, and to nothing.
    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "kept").unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        for (link, target) in
            [("to-file", "file"), ("to-pipe", "pipe"), ("to-zeros", "/dev/zero"), ("to-none", "none")]
        {
            symlink(target, dir.path().join(link)).unwrap();
        }
        dir
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let dir = folder();
        for link in ["to-file", "to-pipe", "to-zeros", "to-none"] {
            for open in [append_regular::<PathBuf>, empty_regular::<PathBuf>] {
                let error = open(dir.path().join(link)).unwrap_err();
                assert_eq!(
                    (error.kind(), error.to_string().as_str()),
                    (ErrorKind::AlreadyExists, "it is a symbolic link")
                );
            }
        }
        assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "kept");
        assert!(!dir.path().join("none").exists());
    }

    #[test]
    fn a_folder_of_ones_own_is_no_link_to_another() {
        let dir = folder();
        make_own_folder(dir.path().join("a/b")).unwrap();
        make_own_folder(dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("to-folder")).unwrap();
        let error = make_own_folder(dir.path().join("to-folder")).unwrap_err();
        assert_eq!(error.to_string(), "it is a symbolic link");
    }

    #[test]
    fn of_folders_below_a_root_the_root_alone_may_be_a_link() {
        let dir = folder();
        make_own_folder(dir.path().join("a/b")).unwrap();
        symlink("a", dir.path().join("root")).unwrap();
        symlink("../../a", dir.path().join("a/b/linked")).unwrap();
        make_own_folders(dir.path().join("root"), "b/c/d").unwrap();
        assert!(dir.path().join("a/b/c/d").is_dir());
        let error = make_own_folders(dir.path().join("root"), "b/linked/e").unwrap_err();
        assert_eq!(error.to_string(), "it is a symbolic link");
        assert!(!dir.path().join("a/e").exists());
    }

    #[test]
    fn a_lock_may_be_a_link_and_empties_nothing() {
        let dir = folder();
        for link in ["file", "to-file", "new"] {
            open_lock(dir.path().join(link)).unwrap();
        }
        assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "kept");
        for link in ["pipe", "to-pipe", "to-zeros"] {
            let error = open_lock(dir.path().join(link)).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{link}");
        }
    }

    #[test]
    fn a_lock_that_is_a_link_to_nothing_makes_nothing() {
        let dir = folder();
        let error = open_lock(dir.path().join("to-none")).unwrap_err();
        assert!(error.to_string().starts_with("it is a symbolic link to nothing\nhint: "), "{error}");
        assert!(!dir.path().join("none").exists());
    }

    #[test]
    fn pipes_and_devices_are_refused_without_waiting() {
        let dir = folder();
        for link in ["pipe", "to-pipe", "to-zeros"] {
            let error = read_regular(dir.path().join(link)).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{link}");
        }
        for open in [append_regular::<PathBuf>, empty_regular::<PathBuf>] {
            let error = open(dir.path().join("pipe")).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file");
        }
        assert_eq!(read_regular(dir.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read_regular_text(dir.path().join("to-file")).unwrap(), "kept");
    }

    #[test]
    fn files_are_made_appended_to_and_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for _ in 0..2 {
            append_regular(&path).unwrap().write_all(b"a").unwrap();
        }
        assert_eq!(read_regular(&path).unwrap(), b"aa");
        empty_regular(&path).unwrap().write_all(b"b").unwrap();
        assert_eq!(read_regular(&path).unwrap(), b"b");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
