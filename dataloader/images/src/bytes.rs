//! Bytes of a file, plain or compressed: never more of them than the file can stand for.

use std::io::{self, Read};
use std::path::Path;

use segue_data_error::DataError;

/// Bytes that one byte of a DEFLATE stream can stand for: a match of 258 bytes takes two bits at least (RFC 1951, §3.2.5).
pub(crate) const MOST_PER_BYTE: usize = 1032;

/// The error of a file that is wrong at byte `offset`, of its content where it is compressed.
pub(crate) fn bad(path: &Path, offset: usize, why: impl Into<String>) -> DataError {
    DataError::BadInput { path: path.into(), offset: offset as u64, why: why.into() }
}

/// The next bytes of a stream, `count` or as many as there are. What is held grows with what has come.
pub(crate) fn read_up_to(stream: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Number of elements of an array; `None` where there are more than a number holds.
pub(crate) fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1usize, |count, size| count.checked_mul(*size))
}

/// Sizes of an array, for a message: `60000 x 28 x 28`.
pub(crate) fn spelled(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_that_overflow_are_none() {
        assert_eq!((product(&[2, 3]), product(&[])), (Some(6), Some(1)));
        assert_eq!(product(&[1 << 32, 1 << 31, 2]), None);
    }

    /// Zeros are what DEFLATE packs most densely.
    #[test]
    fn no_deflate_stream_is_denser_than_its_limit() {
        let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        io::Write::write_all(&mut packer, &vec![0; 1 << 20]).unwrap();
        let packed = packer.finish().unwrap().len();
        assert!(packed * MOST_PER_BYTE >= 1 << 20 && packed * (MOST_PER_BYTE - 32) < 1 << 20, "{packed}");
    }
}
