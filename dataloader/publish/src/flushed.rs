//! Files that go to the disk while they are written.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Bytes that are written between two flushes: a second's work of a slow disk, and far more than a flush costs by itself.
const PIECE: usize = 64 << 20;

/// A file that is flushed every 64 MiB. Each flush is a sign that its writer gets on, and the last one has little left to wait for, however
/// large the file is and however much memory the system would have filled with it.
///
/// ```
/// use std::io::Write;
/// use segue_publish::FlushedFile;
///
/// let folder = tempfile::tempdir()?;
/// let mut file = FlushedFile::create(&folder.path().join("table"))?;
/// file.write_all(b"values")?;
/// file.sync_all()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FlushedFile {
    file: File,
    piece: usize,
    /// Bytes since the last flush.
    pending: usize,
}

impl FlushedFile {
    /// Makes the file, in place of the bytes that are there.
    ///
    /// # Errors
    ///
    /// What the system refused.
    pub fn create(path: &Path) -> io::Result<Self> {
        File::create(path).map(Self::from)
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Waits until all of it is on the disk.
    ///
    /// # Errors
    ///
    /// What the system refused.
    pub fn sync_all(&self) -> io::Result<()> {
        segue_world::flush(|| self.file.sync_all())
    }
}

impl From<File> for FlushedFile {
    fn from(file: File) -> Self {
        Self { file, piece: PIECE, pending: 0 }
    }
}

impl Write for FlushedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(&bytes[..bytes.len().min(self.piece - self.pending)])?;
        self.pending += written;
        if self.pending == self.piece {
            segue_world::flush(|| self.file.sync_data())?;
            segue_faults::gets_on();
            self.pending = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_flushed_in_pieces_and_has_all_of_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..=255).cycle().take(2600).collect();
        let mut file = FlushedFile { piece: 1000, ..FlushedFile::create(&path).unwrap() };
        let before = segue_faults::visits();
        for (part, pending) in [(0..400, 400), (400..2500, 500), (2500..2600, 600)] {
            file.write_all(&bytes[part]).unwrap();
            assert_eq!(file.pending, pending);
        }
        assert!(segue_faults::visits() >= before + 2);
        file.sync_all().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
