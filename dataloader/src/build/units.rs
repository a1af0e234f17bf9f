use std::borrow::Cow;

use segue_data_error::{DataError, without_mark};
use segue_tokenizer::TextCut;

use super::heading::is_heading;
use super::json_text::{repaired, text_of_record};
use super::options::{DEFAULT_TEXT_COLUMN, InvalidUtf8};
use super::running::for_each_sentence;
use super::split::RecordFilter;
use super::unit::{Content, Each, Unit};
use crate::input::{CHUNK_BYTES, Chunk, Cut, Part, Source};
use crate::preset::Layout;

/// Sizes of the source text that a chunk's units were made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceSize {
    pub(crate) bytes: u64,
    pub(crate) chars: u64,
    pub(crate) replaced: u64,
}

impl SourceSize {
    pub(crate) fn add(&mut self, text: &[u8]) {
        self.bytes += text.len() as u64;
        // Every byte that does not continue a UTF-8 sequence begins a character.
        self.chars += text.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64;
    }
}

/// How text is turned into units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) layout: Layout,
    pub(crate) invalid_utf8: InvalidUtf8,
    /// How a long text may be cut in parts.
    pub(crate) text_cut: TextCut,
    /// Whether text may be any bytes, because a byte tokenizer takes them.
    pub(crate) raw: bool,
    /// Whether white space at both ends of the whole stretch is left out.
    pub(crate) trim: bool,
    /// Which records belong to the split.
    pub(crate) filter: Option<RecordFilter>,
}

impl Reading {
    /// Where files may be cut.
    pub(crate) fn cut(&self) -> Cut {
        self.layout.cut(self.text_cut)
    }
}

/// Calls `each` with the units of a chunk in order. What `each` says of a unit becomes an error about the line where that begins.
pub(crate) fn for_each_unit(
    reading: &Reading,
    sources: &[Source],
    chunk: &Chunk,
    each: &mut dyn FnMut(Unit<'_>) -> Result<(), String>,
) -> Result<SourceSize, DataError> {
    let mut size = SourceSize::default();
    for part in &chunk.parts {
        let source = &sources[part.begin.source.min(sources.len() - 1)];
        let bytes = text_of(part, chunk, reading.layout);
        let offset = part.begin.offset + (part.bytes.len() - bytes.len()) as u64;
        let context = Context { reading, part, source, offset };
        let each: Each<'_> = &mut |unit| {
            let offset = unit.offset;
            each(unit).map_err(|why| source.bad_line(offset, why))
        };
        match reading.layout {
            Layout::Bytes => context.stream(bytes, &mut size, each)?,
            Layout::Lines { headings, blank_separates } if reading.raw => {
                size.add(bytes);
                context.lines(bytes, headings, blank_separates, each)?;
            }
            Layout::Lines { headings, blank_separates } => {
                let text = context.text(bytes, &mut size)?;
                context.lines(text.as_bytes(), headings, blank_separates, each)?;
            }
            Layout::Running { documents, split_sentences } => {
                let text = context.text(bytes, &mut size)?;
                for_each_sentence(part, offset, &text, documents, split_sentences, each)?;
            }
            Layout::Records => context.records(bytes, &mut size, each)?,
            Layout::Documents => context.document(bytes, &mut size, each)?,
        }
    }
    Ok(size)
}

/// The text of a part: without the byte-order mark of its file, but where every byte counts.
pub(crate) fn text_of<'c>(part: &Part, chunk: &'c Chunk, layout: Layout) -> &'c [u8] {
    let bytes = &chunk.text[part.bytes.clone()];
    if part.begin.offset == 0 && layout != Layout::Bytes { without_mark(bytes) } else { bytes }
}

struct Context<'a> {
    reading: &'a Reading,
    part: &'a Part,
    source: &'a Source,
    /// Where the text begins in its file.
    offset: u64,
}

impl Context<'_> {
    /// Checks that bytes are text and counts them.
    fn text<'b>(&self, bytes: &'b [u8], size: &mut SourceSize) -> Result<Cow<'b, str>, DataError> {
        size.add(bytes);
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => return Ok(Cow::Borrowed(text)),
            Err(error) => error,
        };
        if self.reading.invalid_utf8 == InvalidUtf8::Fail {
            let offset = self.offset + error.valid_up_to() as u64;
            return Err(DataError::NotUtf8 { path: self.source.path.clone(), offset });
        }
        size.replaced += bytes.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count() as u64;
        Ok(String::from_utf8_lossy(bytes))
    }

    fn stream(&self, bytes: &[u8], size: &mut SourceSize, each: Each<'_>) -> Result<(), DataError> {
        let mut bytes = bytes;
        if self.reading.trim && self.part.starts_all {
            bytes = bytes.trim_ascii_start();
        }
        if self.reading.trim && self.part.ends_all {
            bytes = bytes.trim_ascii_end();
        }
        size.add(bytes);
        each(Unit {
            text: Content::Bytes(bytes),
            offset: self.offset,
            begins_document: self.part.starts_all,
            begins_sentence: !self.part.begin.mid_line,
            ends: false,
        })
    }

    /// Cuts bytes into lines. Where they are not text, what is not UTF-8 counts as letters.
    fn lines(
        &self,
        bytes: &[u8],
        headings: bool,
        blank_separates: bool,
        each: Each<'_>,
    ) -> Result<(), DataError> {
        let begin = &self.part.begin;
        let mut continues = begin.mid_line;
        // Whether the next line that holds text begins a document, whatever it says.
        let mut document_waits = match blank_separates {
            true => begin.after_blank || self.part.starts_file,
            false => begin.file_blank || self.part.starts_file,
        };
        let mut after_blank = begin.after_blank || self.part.starts_file;
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').peekable();
        let mut after = self.offset;
        while let Some(whole) = lines.next() {
            let offset = after;
            after += whole.len() as u64;
            let complete = whole.strip_suffix(b"\n");
            let raw = complete.map_or(whole, |line| line.strip_suffix(b"\r").unwrap_or(line));
            let line = String::from_utf8_lossy(raw);
            // A line that is cut goes on in the next chunk, unless the file ends with it.
            let ends = complete.is_some() || lines.peek().is_none() && self.part.ends_file;
            let blank = line.trim().is_empty();
            let separates = blank_separates && blank && !continues;
            if separates {
                document_waits = true;
                continue;
            }
            // A title stands between blank lines; no title is the last line of a chunk, unless the file ends with it.
            let stands_alone = after_blank && lines.peek().is_none_or(|next| is_blank(next));
            let is_title = headings && stands_alone && is_heading(&line);
            let begins_document = !blank && !continues && (document_waits || is_title);
            each(Unit {
                text: if self.reading.raw { Content::RawLine(raw) } else { Content::Line(&line) },
                offset,
                begins_document,
                begins_sentence: !blank && !continues,
                ends,
            })?;
            document_waits &= blank;
            after_blank = blank && !continues;
            continues = !ends;
        }
        Ok(())
    }

    fn records(&self, bytes: &[u8], size: &mut SourceSize, each: Each<'_>) -> Result<(), DataError> {
        let mut offset = self.offset;
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let at = offset;
            offset += line.len() as u64;
            let number = self.part.begin.lines + number as u64;
            if line.trim_ascii().is_empty() || self.reading.filter.is_some_and(|filter| !filter.takes(number))
            {
                continue;
            }
            let text = self.record(line, at, size)?;
            size.add(text.as_bytes());
            self.whole_document(&text, at, each)?;
        }
        Ok(())
    }

    /// The text of the record on a line that begins at `offset`.
    fn record<'b>(
        &self,
        line: &'b [u8],
        offset: u64,
        size: &mut SourceSize,
    ) -> Result<Cow<'b, str>, DataError> {
        let column = self.source.text_column.as_deref().unwrap_or(DEFAULT_TEXT_COLUMN);
        let error = match text_of_record(line, column) {
            Ok(text) => return Ok(text),
            Err(error) => error,
        };
        let (line_of_text, replaced) = repaired(line);
        let mut why = format!("it is not a JSON object with a string under \"{column}\": {error}");
        if let Ok(text) = text_of_record(line_of_text.as_bytes(), column) {
            if self.reading.invalid_utf8 == InvalidUtf8::Replace {
                size.replaced += replaced;
                return Ok(Cow::Owned(text.into_owned()));
            }
            let fault = match std::str::from_utf8(line) {
                Err(e) => format!("it is not UTF-8 at byte {} of the line", e.valid_up_to() + 1),
                Ok(_) => "an escape in it is half a surrogate pair".into(),
            };
            why = format!("{fault}\nhint: pass --invalid-utf8 replace");
        }
        Err(self.source.bad_line(offset, why))
    }

    fn document(&self, bytes: &[u8], size: &mut SourceSize, each: Each<'_>) -> Result<(), DataError> {
        let Part { starts_file, ends_file, .. } = *self.part;
        if bytes.is_empty() && starts_file && ends_file {
            return Ok(());
        }
        // A document is cut before white space: what follows is the end of a line, or goes on with one.
        let begins_sentence = starts_file || bytes.starts_with(b"\n");
        let offset = self.offset;
        if self.reading.raw {
            size.add(bytes);
            let (text, begins_document) = (Content::Bytes(bytes), starts_file);
            return each(Unit { text, offset, begins_document, begins_sentence, ends: ends_file });
        }
        let text = self.text(bytes, size)?;
        each(Unit {
            text: Content::Text(&text),
            offset,
            begins_document: starts_file,
            begins_sentence,
            ends: ends_file,
        })
    }

    /// Calls `each` with a document that is held as a whole: one unit, or several where it is longer than a chunk and may be cut.
    fn whole_document(&self, text: &str, offset: u64, each: Each<'_>) -> Result<(), DataError> {
        let text_cut = self.reading.text_cut;
        let mut rest = text;
        let mut begins_document = true;
        while !rest.is_empty() {
            let place = match rest.as_bytes().get(..CHUNK_BYTES) {
                Some(head) => text_cut.last(head).or_else(|| text_cut.first(rest.as_bytes(), CHUNK_BYTES)),
                None => None,
            };
            let (now, later) = rest.split_at(place.unwrap_or(rest.len()));
            each(Unit {
                text: Content::Text(now),
                offset,
                begins_document,
                begins_sentence: begins_document || now.starts_with('\n'),
                ends: later.is_empty(),
            })?;
            begins_document = false;
            rest = later;
        }
        Ok(())
    }
}

/// Whether a line holds only white space.
fn is_blank(line: &[u8]) -> bool {
    String::from_utf8_lossy(line).trim().is_empty()
}
