use std::path::{Path, PathBuf};

use memmap2::Mmap;
use segue_data_error::DataError;

use super::header::{u32_at, u64_at};

/// The first eight bytes of every index.
pub const INDEX_MAGIC: [u8; 8] = *b"SEGUEIDX";
/// The version this code writes and the only one it reads.
pub const INDEX_VERSION: u32 = 1;
/// Bytes of the header of an index.
pub const INDEX_HEADER_BYTES: usize = 128;
/// Payload bytes that one block hash covers; the last block of a shard may be shorter.
pub const BLOCK_BYTES: usize = 1 << 20;

/// What stands before an index: the side file of a shard with its block hashes, and with the token offsets
/// at which documents and sentences begin.
///
/// | bytes    | content                                        |
/// |----------|------------------------------------------------|
/// | 0..8     | `SEGUEIDX`                                     |
/// | 8..12    | version, u32                                   |
/// | 12..16   | payload bytes per block, u32                   |
/// | 16..24   | number of blocks, u64                          |
/// | 24..32   | number of documents, u64                       |
/// | 32..40   | number of sentences, u64                       |
/// | 40..72   | BLAKE3 of the shard's payload                  |
/// | 72..104  | BLAKE3 of this file's body                     |
/// | 104..120 | zero                                           |
/// | 120..128 | the first 8 bytes of BLAKE3 of bytes 0..120    |
///
/// The body: one BLAKE3 per block (32 bytes each), then the documents' and then the sentences' offsets
/// (u64 each, ascending, in tokens from the start of this shard). All numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHeader {
    /// Number of block hashes.
    pub blocks: u64,
    /// Number of documents that begin in the shard.
    pub documents: u64,
    /// Number of sentences that begin in the shard.
    pub sentences: u64,
    /// BLAKE3 of the payload of the shard that this index belongs to.
    pub payload_hash: [u8; 32],
    /// BLAKE3 of everything after this header.
    pub body_hash: [u8; 32],
}

impl IndexHeader {
    /// The header as it stands on disk.
    pub fn to_bytes(&self) -> [u8; INDEX_HEADER_BYTES] {
        let mut bytes = [0; INDEX_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&INDEX_MAGIC);
        bytes[8..12].copy_from_slice(&INDEX_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.documents.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.sentences.to_le_bytes());
        bytes[40..72].copy_from_slice(&self.payload_hash);
        bytes[72..104].copy_from_slice(&self.body_hash);
        let checksum = blake3::hash(&bytes[..120]);
        bytes[120..128].copy_from_slice(&checksum.as_bytes()[..8]);
        bytes
    }

    /// Reads a header; the error says which promise it breaks.
    pub fn parse(bytes: &[u8]) -> Result<IndexHeader, String> {
        let Some(bytes) = bytes.get(..INDEX_HEADER_BYTES) else {
            return Err(format!("the file has {} bytes, less than its header", bytes.len()));
        };
        if bytes[0..8] != INDEX_MAGIC {
            return Err("it does not start with SEGUEIDX, so it is not an index".into());
        }
        let version = u32_at(bytes, 8);
        if version != INDEX_VERSION {
            return Err(format!("its version is {version}, expected {INDEX_VERSION}"));
        }
        if blake3::hash(&bytes[..120]).as_bytes()[..8] != bytes[120..128] {
            return Err("the header's checksum does not match the header".into());
        }
        if u32_at(bytes, 12) as usize != BLOCK_BYTES {
            return Err(format!("blocks of {} bytes, expected {BLOCK_BYTES}", u32_at(bytes, 12)));
        }
        let (mut payload_hash, mut body_hash) = ([0; 32], [0; 32]);
        payload_hash.copy_from_slice(&bytes[40..72]);
        body_hash.copy_from_slice(&bytes[72..104]);
        let header = IndexHeader {
            blocks: u64_at(bytes, 16),
            documents: u64_at(bytes, 24),
            sentences: u64_at(bytes, 32),
            payload_hash,
            body_hash,
        };
        match header.checked_file_bytes() {
            Some(_) => Ok(header),
            None => Err("the header promises more entries than a file can hold".into()),
        }
    }

    /// Size of the whole file that this header promises, where it can be a size.
    pub fn checked_file_bytes(&self) -> Option<u64> {
        let hashes = self.blocks.checked_mul(32)?;
        let offsets = self.documents.checked_add(self.sentences)?.checked_mul(8)?;
        hashes
            .checked_add(offsets)?
            .checked_add(INDEX_HEADER_BYTES as u64)
            .filter(|all| *all < i64::MAX as u64)
    }
}

/// An index in a memory map. Opening it reads the header alone.
#[derive(Debug)]
pub(crate) struct MappedIndex {
    path: PathBuf,
    map: Mmap,
    header: IndexHeader,
}

impl MappedIndex {
    pub(crate) fn open(path: &Path) -> Result<MappedIndex, DataError> {
        let file = segue_publish::open_regular(path).map_err(|e| missing_part(path, e))?;
        // SAFETY: the map is read-only; files of a finished corpus are never written in place (they are renamed
        // into it whole), so the bytes under the map do not change while it lives.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| DataError::read(path, e))?;
        let header = IndexHeader::parse(&map).map_err(|why| DataError::shard(path, why))?;
        let (expected, found) = (header.checked_file_bytes().unwrap_or(u64::MAX), map.len() as u64);
        if expected != found {
            let why = format!("it has {found} bytes where its header promises {expected}");
            return Err(DataError::shard(path, why));
        }
        Ok(MappedIndex { path: path.into(), map, header })
    }

    pub(crate) fn header(&self) -> &IndexHeader {
        &self.header
    }

    /// Checks every byte of the body against the header.
    pub(crate) fn verify(&self) -> Result<(), DataError> {
        let body = blake3::hash(&self.map[INDEX_HEADER_BYTES..]);
        if *body.as_bytes() == self.header.body_hash {
            return Ok(());
        }
        let why = "its content does not match the hash in its header\nhint: copy the file back, or build the corpus again";
        Err(DataError::shard(&self.path, why))
    }

    pub(crate) fn block_hash(&self, block: u64) -> Option<&[u8]> {
        if block >= self.header.blocks {
            return None;
        }
        let at = INDEX_HEADER_BYTES + block as usize * 32;
        self.map.get(at..at + 32)
    }

    pub(crate) fn document(&self, document: u64) -> Option<u64> {
        (document < self.header.documents).then(|| self.offset(document))
    }

    pub(crate) fn sentence(&self, sentence: u64) -> Option<u64> {
        (sentence < self.header.sentences).then(|| self.offset(self.header.documents + sentence))
    }

    fn offset(&self, entry: u64) -> u64 {
        u64_at(&self.map, INDEX_HEADER_BYTES + (self.header.blocks * 32 + entry * 8) as usize)
    }
}

/// A file that the corpus names and that is not there: part of a damaged corpus, told as such.
pub(crate) fn missing_part(path: &Path, source: std::io::Error) -> DataError {
    match source.kind() {
        std::io::ErrorKind::NotFound => DataError::Missing {
            path: path.into(),
            why: "the corpus lists it\nhint: copy it back, or run `segue data build` again".into(),
        },
        _ => DataError::Read { path: path.into(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_index_header_survives_a_round_trip(
            blocks in 0..1u64 << 40, documents in 0..1u64 << 40, sentences in 0..1u64 << 40,
            payload_hash: [u8; 32], body_hash: [u8; 32],
        ) {
            let header = IndexHeader { blocks, documents, sentences, payload_hash, body_hash };
            prop_assert_eq!(IndexHeader::parse(&header.to_bytes()).unwrap(), header);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = IndexHeader::parse(&bytes);
        }
    }

    #[test]
    fn counts_that_overflow_are_refused() {
        let header = IndexHeader {
            blocks: u64::MAX / 2,
            documents: 0,
            sentences: 0,
            payload_hash: [0; 32],
            body_hash: [0; 32],
        };
        assert!(IndexHeader::parse(&header.to_bytes()).is_err());
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let header =
            IndexHeader { blocks: 1, documents: 2, sentences: 3, payload_hash: [4; 32], body_hash: [5; 32] };
        for bit in 0..INDEX_HEADER_BYTES * 8 {
            let mut bad = header.to_bytes();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(IndexHeader::parse(&bad).is_err(), "bit {bit}");
        }
    }
}
