use std::io::{self, BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use segue_data_error::DataError;

use super::chunks::Position;
use super::source::Source;

/// Sizes of the sources' unpacked texts. Packed ones are unpacked for it.
pub(crate) fn measure(sources: &[Source]) -> Result<Vec<u64>, DataError> {
    let size = |source: &Source| {
        if !source.is_packed() {
            return Ok(source.file_bytes);
        }
        let mut text = source.open_at(0, Arc::new(AtomicU64::new(0)))?;
        io::copy(&mut text, &mut io::sink()).map_err(|e| source.failed_at(0, e))
    };
    sources.iter().map(size).collect()
}

/// The place of a byte in the concatenation of the sources.
pub(crate) fn place_of(sizes: &[u64], byte: u64) -> Position {
    let mut before = 0;
    for (source, size) in sizes.iter().enumerate() {
        if byte < before + size {
            let start = Position::start_of(source);
            return Position { offset: byte - before, ..start };
        }
        before += size;
    }
    Position::start_of(sizes.len())
}

/// The first start of a line at or after a place.
pub(crate) fn align_to_line(sources: &[Source], place: Position) -> Result<Position, DataError> {
    let Some(source) = sources.get(place.source).filter(|_| place.offset > 0) else {
        return Ok(place);
    };
    // Starting one byte early: where that byte is a line break, the place is the start of a line already.
    let mut at = place.offset - 1;
    let mut text = BufReader::new(source.open_at(at, Arc::new(AtomicU64::new(0)))?);
    loop {
        let buffer = text.fill_buf().map_err(|e| source.failed_at(at, e))?;
        if buffer.is_empty() {
            return Ok(Position::start_of(place.source + 1));
        }
        if let Some(line_break) = memchr::memchr(b'\n', buffer) {
            return Ok(Position { offset: at + line_break as u64 + 1, ..place });
        }
        let length = buffer.len();
        text.consume(length);
        at += length as u64;
    }
}
