use std::path::{Path, PathBuf};

use memmap2::Mmap;
use segue_data_error::DataError;

use super::header::{HEADER_BYTES, ShardHeader};
use super::index::missing_part;
use crate::corpus::Dtype;

/// A shard in a memory map. Opening it reads the header alone.
#[derive(Debug)]
pub(crate) struct MappedShard {
    path: PathBuf,
    map: Mmap,
    header: ShardHeader,
}

impl MappedShard {
    /// Maps a shard after checking its header and its size.
    pub(crate) fn open(path: &Path) -> Result<MappedShard, DataError> {
        let file = segue_publish::open_regular(path).map_err(|e| missing_part(path, e))?;
        // SAFETY: the map is read-only; files of a finished corpus are never written in place (they are renamed
        // into it whole), so the bytes under the map do not change while it lives.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| DataError::read(path, e))?;
        let header = ShardHeader::parse(&map).map_err(|why| DataError::shard(path, why))?;
        let (expected, found) = (header.file_bytes(), map.len() as u64);
        if expected != found {
            let what = if found < expected { "truncated" } else { "too long" };
            let why = format!("it is {what}: {found} bytes where its header promises {expected}");
            return Err(DataError::shard(path, why));
        }
        Ok(MappedShard { path: path.into(), map, header })
    }

    pub(crate) fn header(&self) -> &ShardHeader {
        &self.header
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    pub(crate) fn file(&self) -> &[u8] {
        &self.map
    }

    /// The token ids as they stand on disk.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.map[HEADER_BYTES..]
    }

    /// Copies the tokens from `start` on; the caller has checked the range.
    pub(crate) fn read(&self, start: u64, out: &mut [i64]) {
        let width = self.header.dtype.bytes();
        let first = start as usize * width;
        let bytes = &self.payload()[first..first + out.len() * width];
        match self.header.dtype {
            Dtype::U16 => {
                for (id, raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *id = u16::from_le_bytes(*raw) as i64;
                }
            }
            Dtype::U32 => {
                for (id, raw) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *id = u32::from_le_bytes(*raw) as i64;
                }
            }
        }
    }
}
