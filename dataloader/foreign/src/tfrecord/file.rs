use std::path::{Path, PathBuf};

use segue_data_error::DataError;

use crate::SharedBytes;
use crate::checksum::masked_crc32c;

/// Bytes before a payload: its length and the length's checksum.
const HEADER_BYTES: usize = 12;
/// Bytes after a payload: its checksum.
const FOOTER_BYTES: usize = 4;

/// A TFRecord file in a memory map: a list of byte strings, each with checksums.
///
/// A record is its length (u64), the length's masked CRC-32C (u32), the payload, and the payload's masked CRC-32C (u32),
/// all little-endian.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    bytes: SharedBytes,
    /// Where payloads begin and how long they are.
    places: Vec<(usize, usize)>,
}

impl RecordFile {
    /// Maps a file and finds its records. Every length is checked against its checksum and the file's size; payloads are
    /// checked when they are read.
    pub fn open(path: &Path) -> Result<RecordFile, DataError> {
        RecordFile::from_bytes(path.into(), SharedBytes::map(path)?)
    }

    /// A file in memory; errors name `path`.
    pub fn from_bytes(path: PathBuf, bytes: SharedBytes) -> Result<RecordFile, DataError> {
        let places = find_records(&bytes).map_err(|(offset, why)| DataError::BadInput {
            path: path.clone(),
            offset: offset as u64,
            why,
        })?;
        Ok(RecordFile { path, bytes, places })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The bytes of a record, counted from 0, checked against their checksum.
    pub fn payload(&self, record: usize) -> Result<&[u8], DataError> {
        let Some((start, length)) = self.places.get(record).copied() else {
            let total = self.places.len() as u64;
            return Err(DataError::OutOfRange { start: record as u64, end: record as u64 + 1, total });
        };
        let (payload, after) = self.bytes[start..].split_at(length);
        match masked_crc32c(payload).to_le_bytes() == after[..FOOTER_BYTES] {
            true => Ok(payload),
            false => Err(self.bad(record, "it does not match its checksum, so it is damaged".into())),
        }
    }

    /// An error about a record.
    pub fn bad(&self, record: usize, why: String) -> DataError {
        let offset = self.places.get(record).map_or(0, |(start, _)| (start - HEADER_BYTES) as u64);
        DataError::BadInput { path: self.path.clone(), offset, why: format!("record {record}: {why}") }
    }
}

/// Where the payloads lie; the error says at which byte what is wrong.
fn find_records(bytes: &[u8]) -> Result<Vec<(usize, usize)>, (usize, String)> {
    let mut places = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let cut_short = || (at, format!("record {} is cut short: the file is truncated", places.len()));
        let Some((length, rest)) = bytes[at..].split_first_chunk::<8>() else { return Err(cut_short()) };
        let Some((crc, rest)) = rest.split_first_chunk::<4>() else { return Err(cut_short()) };
        if masked_crc32c(length) != u32::from_le_bytes(*crc) {
            let why = match places.is_empty() {
                true => "it is not a TFRecord file, or is damaged: its first length does not match its \
                     checksum"
                    .into(),
                false => format!("the length of record {} does not match its checksum", places.len()),
            };
            return Err((at, why));
        }
        let length = usize::try_from(u64::from_le_bytes(*length)).ok();
        let length = length.filter(|length| rest.len().checked_sub(*length) >= Some(FOOTER_BYTES));
        let length = length.ok_or_else(cut_short)?;
        places.push((at + HEADER_BYTES, length));
        at += HEADER_BYTES + length + FOOTER_BYTES;
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u64).to_le_bytes();
        let (head, foot) = (masked_crc32c(&length).to_le_bytes(), masked_crc32c(payload).to_le_bytes());
        [&length[..], &head, payload, &foot].concat()
    }

    fn open(bytes: Vec<u8>) -> Result<RecordFile, DataError> {
        RecordFile::from_bytes("records".into(), bytes.into())
    }

    /// CRC-32C of 32 zero bytes is 0x8A9136AA (RFC 3720, appendix B.4); the disguise is TensorFlow's.
    #[test]
    fn the_checksum_is_that_of_the_standard_in_tensorflows_disguise() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(masked_crc32c(&[0; 32]), 0x0FD7_FFFA);
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let good = [record(b"first"), record(b""), record(b"third")].concat();
        let file = open(good.clone()).unwrap();
        assert_eq!(
            (file.len(), file.payload(0).unwrap(), file.payload(1).unwrap()),
            (3, &b"first"[..], &b""[..])
        );
        let second = record(b"first").len();
        let mut bad = good.clone();
        bad[second] ^= 1;
        let error = open(bad).unwrap_err().to_string();
        assert!(error.contains(&format!("at byte {second}")) && error.contains("record 1"), "{error}");
        let mut bad = good.clone();
        bad[HEADER_BYTES] ^= 1;
        let error = open(bad).unwrap().payload(0).unwrap_err();
        assert!(error.exit_code() == 65 && error.to_string().contains("checksum"), "{error}");
        let borders = [0, second, second + record(b"").len()];
        for length in 0..good.len() {
            assert_eq!(open(good[..length].to_vec()).is_ok(), borders.contains(&length), "{length}");
        }
        let absurd = u64::MAX.to_le_bytes();
        assert!(open([&absurd[..], &masked_crc32c(&absurd).to_le_bytes(), &[0; 40]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn no_flipped_bit_goes_unnoticed(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..5), place: usize,
        ) {
            let mut bytes: Vec<u8> = payloads.iter().flat_map(|payload| record(payload)).collect();
            let bit = place % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = open(bytes).and_then(|file| {
                (0..file.len()).map(|i| file.payload(i).map(<[u8]>::to_vec)).collect::<Result<Vec<_>, _>>()
            });
            prop_assert!(read.is_err());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(bytes.is_empty() == open(bytes).is_ok());
        }
    }
}
