use crate::corpus::Dtype;

/// The first eight bytes of every shard.
pub const SHARD_MAGIC: [u8; 8] = *b"SEGUESHD";
/// The version this code writes and the only one it reads.
pub const SHARD_VERSION: u32 = 1;
/// Bytes of the header; the payload starts here, so it is aligned to 64 bytes in a memory map.
pub const HEADER_BYTES: usize = 64;

/// What stands before a shard's token ids.
///
/// | bytes  | content                                              |
/// |--------|------------------------------------------------------|
/// | 0..8   | `SEGUESHD`                                           |
/// | 8..12  | version, u32                                         |
/// | 12..16 | bytes of one token id, u32: 2 or 4                   |
/// | 16..24 | number of token ids, u64                             |
/// | 24..56 | BLAKE3 of the payload                                |
/// | 56..64 | the first 8 bytes of BLAKE3 of bytes 0..56           |
///
/// All numbers are little-endian.
///
/// ```
/// use segue_dataloader::{Dtype, ShardHeader};
///
/// let header = ShardHeader { dtype: Dtype::U16, count: 3, payload_hash: [7; 32] };
/// assert_eq!(ShardHeader::parse(&header.to_bytes()).unwrap(), header);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardHeader {
    /// Width of a token id.
    pub dtype: Dtype,
    /// Number of token ids in the payload.
    pub count: u64,
    /// BLAKE3 of the payload.
    pub payload_hash: [u8; 32],
}

impl ShardHeader {
    /// The header as it stands on disk.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&SHARD_MAGIC);
        bytes[8..12].copy_from_slice(&SHARD_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.dtype.bytes() as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.count.to_le_bytes());
        bytes[24..56].copy_from_slice(&self.payload_hash);
        let checksum = blake3::hash(&bytes[..56]);
        bytes[56..64].copy_from_slice(&checksum.as_bytes()[..8]);
        bytes
    }

    /// Reads a header; the error says which promise it breaks.
    pub fn parse(bytes: &[u8]) -> Result<ShardHeader, String> {
        let bytes: &[u8; HEADER_BYTES] =
            bytes.get(..HEADER_BYTES).and_then(|head| head.try_into().ok()).ok_or_else(|| {
                format!("the file has {} bytes, less than the header's {HEADER_BYTES}", bytes.len())
            })?;
        if bytes[0..8] != SHARD_MAGIC {
            return Err("it does not start with SEGUESHD, so it is not a shard".into());
        }
        let version = u32_at(bytes, 8);
        if version != SHARD_VERSION {
            return Err(format!("its version is {version}, expected {SHARD_VERSION}"));
        }
        if blake3::hash(&bytes[..56]).as_bytes()[..8] != bytes[56..64] {
            return Err("the header's checksum does not match the header".into());
        }
        let width = u32_at(bytes, 12);
        let dtype = Dtype::from_bytes(width).ok_or_else(|| format!("token ids of {width} bytes (2 or 4)"))?;
        let count = u64_at(bytes, 16);
        if count.checked_mul(dtype.bytes() as u64).is_none_or(|payload| payload > i64::MAX as u64 - 64) {
            return Err(format!("the header promises {count} tokens, more than a file can hold"));
        }
        let mut payload_hash = [0; 32];
        payload_hash.copy_from_slice(&bytes[24..56]);
        Ok(ShardHeader { dtype, count, payload_hash })
    }

    /// Size of the whole file that this header promises.
    pub fn file_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.count * self.dtype.bytes() as u64
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> ShardHeader {
        ShardHeader { dtype: Dtype::U32, count: 12, payload_hash: *blake3::hash(b"payload").as_bytes() }
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let error = ShardHeader::parse(&[b'x'; 64]).unwrap_err();
        assert!(error.contains("SEGUESHD"), "{error}");
        assert!(ShardHeader::parse(b"SEGUESHD").unwrap_err().contains("8 bytes"));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = sample().to_bytes();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(ShardHeader::parse(&bad).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_header_survives_a_round_trip(wide: bool, count in 0..u64::MAX / 16, payload_hash: [u8; 32]) {
            let dtype = if wide { Dtype::U32 } else { Dtype::U16 };
            let header = ShardHeader { dtype, count, payload_hash };
            prop_assert_eq!(ShardHeader::parse(&header.to_bytes()).unwrap(), header);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..130)) {
            let _ = ShardHeader::parse(&bytes);
        }

        #[test]
        fn a_hostile_header_with_a_right_checksum_never_panics(mut bytes in proptest::array::uniform32(any::<u8>())) {
            let mut header = [0; HEADER_BYTES];
            bytes[0..8].copy_from_slice(&SHARD_MAGIC);
            bytes[8..12].copy_from_slice(&SHARD_VERSION.to_le_bytes());
            header[..32].copy_from_slice(&bytes);
            let checksum = blake3::hash(&header[..56]);
            header[56..].copy_from_slice(&checksum.as_bytes()[..8]);
            if let Ok(parsed) = ShardHeader::parse(&header) {
                prop_assert!(parsed.file_bytes() >= HEADER_BYTES as u64);
            }
        }
    }
}
