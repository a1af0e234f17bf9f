use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use segue_data_error::DataError;

/// A piece of a file or buffer; cloning and cutting share the bytes.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl SharedBytes {
    /// Maps a whole file.
    pub fn map(path: &Path) -> Result<Self, DataError> {
        segue_publish::open_regular(path).and_then(Self::of_file).map_err(|e| DataError::read(path, e))
    }

    /// Maps a file, or reads it where it cannot be mapped: pipes, and some file systems' files.
    pub fn of_file(mut file: File) -> io::Result<Self> {
        let found = file.metadata()?;
        if found.is_file() && found.len() > 0 {
            // SAFETY: the map is read-only and private to this process. A program that shortens the file while it is
            // read would end this one; checkpoints are not written in place.
            if let Ok(map) = unsafe { Mmap::map(&file) } {
                let range = 0..map.len();
                return Ok(Self { owner: Arc::new(map), range });
            }
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }

    /// The bytes of `range`, counted from the start of this piece; `None` where it reaches past the end.
    pub fn cut(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start;
        Some(Self { owner: self.owner.clone(), range: start + range.start..start + range.end })
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { owner: Arc::new(bytes), range }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_mapped_and_what_is_no_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in [("full", "abc"), ("empty", "")] {
            fs::write(dir.path().join(name), content).unwrap();
            assert_eq!(&SharedBytes::map(&dir.path().join(name)).unwrap()[..], content.as_bytes());
        }
        let (read, mut write) = io::pipe().unwrap();
        io::Write::write_all(&mut write, b"abc").unwrap();
        drop(write);
        let file = File::from(std::os::fd::OwnedFd::from(read));
        assert_eq!(&SharedBytes::of_file(file).unwrap()[..], b"abc");
        assert_eq!(SharedBytes::map(dir.path()).unwrap_err().exit_code(), 66);
        assert_eq!(SharedBytes::map(&dir.path().join("none")).unwrap_err().exit_code(), 66);
    }
}
