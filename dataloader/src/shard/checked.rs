use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_data_error::DataError;

use super::header::HEADER_BYTES;
use super::index::{BLOCK_BYTES, MappedIndex};
use super::mapped::MappedShard;

/// A shard whose blocks are checked against the hashes in its index when they are first read. Hashing a block takes some
/// tenths of a millisecond, once in the life of the map; reading on over damaged bytes would train on them.
#[derive(Debug)]
pub(crate) struct CheckedShard {
    shard: MappedShard,
    index: Arc<MappedIndex>,
    /// One bit a block: whether it has been checked. Two threads that race check it twice.
    checked: Vec<AtomicU64>,
    /// What to do where a block is damaged.
    remedy: &'static str,
}

impl CheckedShard {
    /// `remedy`: what to do where a block is damaged, in the imperative.
    pub(crate) fn new(shard: MappedShard, index: Arc<MappedIndex>, remedy: &'static str) -> CheckedShard {
        let blocks = shard.payload().len().div_ceil(BLOCK_BYTES);
        let checked = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        CheckedShard { shard, index, checked, remedy }
    }

    /// Copies the tokens from `start` on; the caller has checked the range.
    pub(crate) fn read(&self, start: u64, out: &mut [i64]) -> Result<(), DataError> {
        let width = self.shard.header().dtype.bytes();
        let first = start as usize * width;
        for block in first / BLOCK_BYTES..(first + out.len() * width).div_ceil(BLOCK_BYTES) {
            self.check(block)?;
        }
        self.shard.read(start, out);
        Ok(())
    }

    fn check(&self, block: usize) -> Result<(), DataError> {
        let (word, bit) = (&self.checked[block / 64], 1 << (block % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        match block_fault(&self.shard, &self.index, block) {
            None => _ = word.fetch_or(bit, Ordering::Relaxed),
            Some(why) => {
                let why = format!("{why}\nhint: {}", self.remedy);
                return Err(DataError::shard(self.shard.path(), why));
            }
        }
        Ok(())
    }
}

/// What is wrong with a block of a shard, if anything is.
pub(crate) fn block_fault(shard: &MappedShard, index: &MappedIndex, block: usize) -> Option<String> {
    let payload = shard.payload();
    let bytes = &payload[block * BLOCK_BYTES..payload.len().min((block + 1) * BLOCK_BYTES)];
    if index.block_hash(block as u64) == Some(blake3::hash(bytes).as_bytes().as_slice()) {
        return None;
    }
    let offset = HEADER_BYTES + block * BLOCK_BYTES;
    let token = block * BLOCK_BYTES / shard.header().dtype.bytes();
    Some(format!(
        "the block of {} bytes at offset {offset} (token {token} of the shard on) does not match its hash",
        bytes.len()
    ))
}
