use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_data_error::DataError;
use segue_tokenizer::TextCut;
use serde::{Deserialize, Serialize};

use super::source::Source;

/// Text that is handled at once. Larger documents and lines are cut, where they may be.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// The longest line of a JSON-lines file: a record cannot be cut before it is parsed.
pub(crate) const LONGEST_RECORD: usize = 16 << 20;

/// Where text may be cut. What is longer than a chunk and has no such place in one goes on up to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// After a line break, but not after a line that starts with `=`; inside a line that is longer than a chunk, where the
    /// tokens stay the same.
    Lines(TextCut),
    /// Only after a line break.
    Records,
    /// Where the tokens stay the same.
    Documents(TextCut),
    /// Anywhere.
    Bytes,
}

/// A place in a list of sources, and what has to be known to go on from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Number of the source.
    pub(crate) source: usize,
    /// Offset in its unpacked text.
    pub(crate) offset: u64,
    /// Lines before this place, over all sources. The end of a source ends its last line.
    pub(crate) lines: u64,
    /// Whether this is the middle of a line that was cut.
    pub(crate) mid_line: bool,
    /// Whether only blank lines have come since the last blank line or the start of the file.
    pub(crate) after_blank: bool,
    /// Whether only blank lines have come since the start of the file.
    pub(crate) file_blank: bool,
}

impl Position {
    /// The start of a source.
    pub(crate) fn start_of(source: usize) -> Position {
        Position { source, after_blank: true, file_blank: true, ..Position::default() }
    }

    fn reached(&self, end: &Position) -> bool {
        (self.source, self.offset) >= (end.source, end.offset)
    }
}

/// A stretch of one source.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Where it lies in the chunk.
    pub(crate) bytes: Range<usize>,
    /// Where it begins in the source.
    pub(crate) begin: Position,
    /// Whether it begins where the source, or the stretch of it to be read, begins.
    pub(crate) starts_file: bool,
    /// Whether it ends where the source, or the stretch of it to be read, ends.
    pub(crate) ends_file: bool,
    /// Whether nothing comes before it.
    pub(crate) starts_all: bool,
    /// Whether nothing comes after it.
    pub(crate) ends_all: bool,
}

/// Text that is handled at once.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) text: Vec<u8>,
    pub(crate) parts: Vec<Part>,
    /// Where the next chunk begins.
    pub(crate) after: Position,
    /// Bytes read so far of the files as they lie on disk.
    pub(crate) file_bytes_read: u64,
}

/// Reads sources in chunks. Where a chunk ends depends on where it begins and on nothing else, so a reader that is
/// started at the end of any chunk goes on with the same chunks.
pub(crate) struct ChunkReader<'a> {
    sources: &'a [Source],
    cut: Cut,
    begin: Position,
    at: Position,
    end: Position,
    open: Option<Box<dyn Read + Send>>,
    /// Text from `at` on that has been read already.
    pending: Vec<u8>,
    exhausted: bool,
    read_of_file: Arc<AtomicU64>,
    read_of_files_before: u64,
}

impl<'a> ChunkReader<'a> {
    /// Reads `begin..end` from the place `at` on.
    pub(crate) fn new(sources: &'a [Source], cut: Cut, begin: Position, at: Position, end: Position) -> Self {
        ChunkReader {
            sources,
            cut,
            begin,
            at,
            end,
            open: None,
            pending: Vec::new(),
            exhausted: false,
            read_of_file: Arc::new(AtomicU64::new(0)),
            read_of_files_before: sources[..at.source.min(sources.len())].iter().map(|s| s.file_bytes).sum(),
        }
    }

    /// The next chunk, or `None` at the end.
    pub(crate) fn next_chunk(&mut self) -> Result<Option<Chunk>, DataError> {
        let mut text = Vec::new();
        let mut parts: Vec<Part> = Vec::new();
        while text.len() < CHUNK_BYTES && !self.at.reached(&self.end) {
            let room = CHUNK_BYTES - text.len();
            self.fill(room + 1)?;
            let whole = self.exhausted && self.pending.len() <= room;
            if !whole && !parts.is_empty() {
                break;
            }
            let length = if whole { self.pending.len() } else { self.cut_length()? };
            let begin = text.len();
            text.extend_from_slice(&self.pending[..length]);
            self.pending.drain(..length);
            let before = self.at;
            let ends_file = whole || self.exhausted && self.pending.is_empty();
            self.advance(&text[begin..], ends_file);
            let starts_all = (before.source, before.offset) == (self.begin.source, self.begin.offset);
            parts.push(Part {
                bytes: begin..text.len(),
                begin: before,
                starts_file: before.offset == 0 || starts_all,
                starts_all,
                ends_file,
                ends_all: self.at.reached(&self.end),
            });
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let file_bytes_read = self.read_of_files_before + self.read_of_file.load(Ordering::Relaxed);
        Ok(Some(Chunk { text, parts, after: self.at, file_bytes_read }))
    }

    /// Reads on until `pending` has at least `wanted` bytes or the source ends.
    fn fill(&mut self, wanted: usize) -> Result<(), DataError> {
        let source = &self.sources[self.at.source];
        if self.open.is_none() {
            let text = source.open_at(self.at.offset, self.read_of_file.clone())?;
            let ends_here = self.at.source == self.end.source;
            let limit = if ends_here { self.end.offset - self.at.offset } else { u64::MAX };
            self.open = Some(Box::new(text.take(limit)));
            self.exhausted = false;
        }
        let Some(open) = self.open.as_mut().filter(|_| !self.exhausted && self.pending.len() < wanted) else {
            return Ok(());
        };
        let missing = (wanted - self.pending.len()) as u64;
        let filled = open.by_ref().take(missing).read_to_end(&mut self.pending);
        let filled = filled.map_err(|e| source.failed_at(self.at.offset + self.pending.len() as u64, e))?;
        self.exhausted = (filled as u64) < missing;
        Ok(())
    }

    /// Length of the next part of a source that does not fit a chunk as a whole.
    fn cut_length(&mut self) -> Result<usize, DataError> {
        if let Some(length) = self.cut.last(&self.pending[..CHUNK_BYTES]) {
            return Ok(length);
        }
        let mut searched = CHUNK_BYTES;
        loop {
            if let Some(length) = self.cut.first(&self.pending, searched) {
                return Ok(length);
            }
            if self.exhausted {
                return Ok(self.pending.len());
            }
            if self.pending.len() >= self.cut.longest() {
                return Err(self.too_long());
            }
            searched = self.pending.len();
            self.fill(searched + CHUNK_BYTES)?;
        }
    }

    fn too_long(&self) -> DataError {
        let longest = self.cut.longest() >> 20;
        let parts = |what| {
            format!(
                "this {what} cannot be encoded in parts to the same tokens, and has more than {longest} MiB\nhint: divide it \
                 (a file a document, or a line each with --preset jsonl), or choose another tokenizer"
            )
        };
        let why = match self.cut {
            Cut::Documents(_) => parts("document"),
            Cut::Lines(_) => parts("line"),
            Cut::Records | Cut::Bytes => format!("this line has more than {longest} MiB"),
        };
        self.sources[self.at.source].bad_line(self.at.offset, why)
    }

    /// Moves `at` over a part.
    fn advance(&mut self, part: &[u8], ends_file: bool) {
        let ends_line = ends_file && !part.is_empty() && !part.ends_with(b"\n");
        let line_breaks = memchr::memchr_iter(b'\n', part).count() as u64;
        let lines = self.at.lines + line_breaks + u64::from(ends_line);
        if ends_file {
            self.read_of_files_before += self.sources[self.at.source].file_bytes;
            self.read_of_file = Arc::new(AtomicU64::new(0));
            self.open = None;
            self.exhausted = false;
            let next = Position { lines, ..Position::start_of(self.at.source + 1) };
            self.at = match self.at.source == self.end.source {
                true => Position { lines, ..self.end },
                false => next,
            };
            return;
        }
        let whole_lines = part.ends_with(b"\n");
        let blank = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().is_empty();
        let without_end = part.strip_suffix(b"\n").unwrap_or(part);
        let last_line = memchr::memrchr(b'\n', without_end).map_or(without_end, |at| &without_end[at + 1..]);
        let last_is_part_of_cut = last_line.len() == without_end.len() && self.at.mid_line;
        self.at = Position {
            offset: self.at.offset + part.len() as u64,
            lines,
            mid_line: !whole_lines,
            after_blank: blank(last_line) && !last_is_part_of_cut,
            file_blank: self.at.file_blank && blank(part),
            ..self.at
        };
    }
}

impl Cut {
    /// The last place to cut a text that is longer than it may be, if there is one.
    fn last(self, text: &[u8]) -> Option<usize> {
        let line_break = || memchr::memrchr(b'\n', text).map(|at| at + 1);
        match self {
            Cut::Bytes => Some(text.len()),
            Cut::Lines(inside) => line_break().map(|at| before_title(text, at)).or_else(|| inside.last(text)),
            Cut::Records => line_break(),
            Cut::Documents(inside) => inside.last(text),
        }
    }

    /// The first such place from `from` on, before which there is none.
    fn first(self, text: &[u8], from: usize) -> Option<usize> {
        let line_break = || memchr::memchr(b'\n', &text[from..]).map(|at| from + at + 1);
        match self {
            Cut::Bytes => Some(from),
            Cut::Lines(inside) => {
                // Before a line break is as good as after it.
                let end = line_break();
                inside.first(&text[..end.map_or(text.len(), |end| end - 1)], from).or(end)
            }
            Cut::Records => line_break(),
            Cut::Documents(inside) => inside.first(text, from),
        }
    }

    /// Bytes of the longest part.
    fn longest(self) -> usize {
        match self {
            Cut::Lines(inside) | Cut::Documents(inside) => inside.longest,
            Cut::Records | Cut::Bytes => LONGEST_RECORD,
        }
    }
}

/// Moves a cut at the end of a line to its start where the line may be a title: whether it is one shows in the next line.
fn before_title(text: &[u8], line_end: usize) -> usize {
    let line_start = memchr::memrchr(b'\n', &text[..line_end - 1]).map_or(0, |at| at + 1);
    match line_start > 0 && text[line_start..line_end].trim_ascii_start().starts_with(b"=") {
        true => line_start,
        false => line_end,
    }
}
