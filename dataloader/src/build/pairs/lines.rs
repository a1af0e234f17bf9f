use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_data_error::{DataError, without_mark};

use crate::input::{CHUNK_BYTES, Source};

/// Bytes of the longest line: a sentence, or a record of two.
const LONGEST_LINE: usize = CHUNK_BYTES;

/// Reads a file line by line.
pub(super) struct LineReader<'a> {
    source: &'a Source,
    text: BufReader<Box<dyn Read + Send>>,
    /// Bytes read so far of the file as it lies on disk.
    read: Arc<AtomicU64>,
    /// Where the next line begins in the unpacked text.
    offset: u64,
    lines: u64,
}

impl<'a> LineReader<'a> {
    pub(super) fn open(source: &'a Source) -> Result<LineReader<'a>, DataError> {
        let read = Arc::new(AtomicU64::new(0));
        let text = BufReader::new(source.open_at(0, Arc::clone(&read))?);
        Ok(LineReader { source, text, read, offset: 0, lines: 0 })
    }

    /// The file.
    pub(super) fn source(&self) -> &'a Source {
        self.source
    }

    /// Lines read so far.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Bytes read so far of the file as it lies on disk.
    pub(super) fn file_bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Appends the next line without its end (`\n` or `\r\n`, which the last one need not have) and, at the start of the
    /// file, without a byte-order mark. Says whether there was one.
    pub(super) fn next_line(&mut self, out: &mut Vec<u8>) -> Result<bool, DataError> {
        let begin = out.len();
        let limit = LONGEST_LINE as u64 + 1;
        let filled = (&mut self.text).take(limit).read_until(b'\n', out);
        let filled = filled.map_err(|e| self.source.failed_at(self.offset, e))?;
        if filled == 0 {
            return Ok(false);
        }
        self.lines += 1;
        if filled > LONGEST_LINE && !out.ends_with(b"\n") {
            let why = format!("this line has more than {} MiB", LONGEST_LINE >> 20);
            return Err(DataError::line(&self.source.path, self.lines, why));
        }
        let marked = if self.offset == 0 { filled - without_mark(&out[begin..]).len() } else { 0 };
        self.offset += filled as u64;
        out.drain(begin..begin + marked);
        for end in [b'\n', b'\r'] {
            match out.last() {
                Some(last) if *last == end && out.len() > begin => _ = out.pop(),
                _ => break,
            }
        }
        Ok(true)
    }
}
