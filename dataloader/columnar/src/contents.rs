use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// What is read at once where it is not known how much is needed.
const READ_BYTES: usize = 1 << 16;

/// The bytes of a file, on disk or in memory.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    File { file: Arc<File>, size: u64 },
    Memory(Bytes),
}

impl Contents {
    /// An open file, with the size it has now.
    pub(crate) fn of_file(file: File) -> io::Result<Contents> {
        let size = file.metadata()?.len();
        Ok(Contents::File { file: Arc::new(file), size })
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Contents::File { size, .. } => *size,
            Contents::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Reads from an offset on.
    pub(crate) fn reader(&self, offset: u64) -> BufReader<ContentsReader> {
        BufReader::with_capacity(READ_BYTES, ContentsReader { contents: self.clone(), offset })
    }

    /// A stretch of the file, which has to lie within it.
    pub(crate) fn range(&self, offset: u64, length: u64) -> io::Result<Bytes> {
        if offset.checked_add(length).is_none_or(|end| end > self.size()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Contents::Memory(bytes) = self {
            return Ok(bytes.slice(offset as usize..(offset + length) as usize));
        }
        let mut bytes = vec![0; length as usize];
        ContentsReader { contents: self.clone(), offset }.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reads contents from an offset on; several readers do not disturb each other.
pub(crate) struct ContentsReader {
    contents: Contents,
    offset: u64,
}

impl Read for ContentsReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let filled = match &self.contents {
            Contents::File { file, .. } => file.read_at(buffer, self.offset)?,
            Contents::Memory(bytes) => {
                let begin = bytes.len().min(usize::try_from(self.offset).unwrap_or(usize::MAX));
                (&bytes[begin..]).read(buffer)?
            }
        };
        self.offset += filled as u64;
        Ok(filled)
    }
}

impl Length for Contents {
    fn len(&self) -> u64 {
        self.size()
    }
}

impl ChunkReader for Contents {
    type T = BufReader<ContentsReader>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.reader(start))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.range(start, length as u64).map_err(ParquetError::from)
    }
}
