use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::DataError;

/// A piece of a file or buffer; cloning and cutting share the bytes.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl SharedBytes {
    /// Maps a whole file.
    pub fn map(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|e| DataError::read(path, e))?;
        let length = file.metadata().map_err(|e| DataError::read(path, e))?.len();
        if length == 0 {
            return Ok(Vec::new().into());
        }
        // SAFETY: the map is read-only and private to this process. A program that shortens the file while it is
        // converted would end this one; checkpoints are not written in place.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| DataError::read(path, e))?;
        let range = 0..map.len();
        Ok(Self { owner: Arc::new(map), range })
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
