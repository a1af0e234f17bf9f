use std::panic::resume_unwind;
use std::thread::{Builder, scope};

use segue_data_error::DataError;
use segue_tokenizer::{Encoder, Tokenizer, UNK};

use super::budget::{ENCODING_BYTES, MemoryBudget};
use super::encoders::Encoders;
use super::options::EOD;
use super::unit::{Content, Unit};
use super::units::{Reading, SourceSize, for_each_unit};
use crate::corpus::Dtype;
use crate::input::{Chunk, Source};
use crate::preset::{Documents, Layout};

/// Bytes of memory from which on a text is encoded on a thread of its own.
const OWN_THREAD: u64 = 64 << 20;

/// A chunk as it goes into a shard.
pub(crate) struct Encoded {
    /// Packed token ids.
    pub(crate) payload: Vec<u8>,
    /// Token offsets in the chunk at which documents begin.
    pub(crate) documents: Vec<u32>,
    /// Token offsets in the chunk at which sentences begin.
    pub(crate) sentences: Vec<u32>,
    /// Size of the source text.
    pub(crate) size: SourceSize,
    /// Tokens that stand for something outside the vocabulary.
    pub(crate) unknown: u64,
}

/// Encodes chunks, each by itself, on any number of threads.
pub(crate) struct ChunkEncoder<'a> {
    tokenizer: &'a Tokenizer,
    reading: Reading,
    sources: &'a [Source],
    dtype: Dtype,
    /// What ends a line: the end-of-sentence token, or the line break itself where a tokenizer has none.
    line_end: Vec<u32>,
    /// What ends a document of running text.
    document_end: Option<u32>,
    /// A character that the tokenizer takes for an unknown word, to be put where WikiText has one.
    unknown_word: Option<char>,
    encoders: Encoders<'a>,
    /// Memory that the texts in work share.
    budget: MemoryBudget,
}

impl<'a> ChunkEncoder<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer, reading: Reading, sources: &'a [Source], eod: bool) -> Self {
        let mut line_end = Vec::new();
        match tokenizer.eos_id() {
            Some(eos) => line_end.push(eos),
            None => tokenizer.encode("\n", &mut line_end),
        }
        let marks_unknown_words =
            matches!(reading.layout, Layout::Running { documents: Documents::BeginAtTitles, .. });
        ChunkEncoder {
            tokenizer,
            reading,
            sources,
            dtype: Dtype::for_vocabulary(tokenizer.vocab_size()),
            line_end,
            document_end: if eod { tokenizer.token_id(EOD) } else { None },
            unknown_word: marks_unknown_words.then(|| unknown_word(tokenizer)).flatten(),
            encoders: Encoders::new(tokenizer),
            budget: MemoryBudget::new(ENCODING_BYTES),
        }
    }

    pub(crate) fn encode(&self, chunk: &Chunk) -> Result<Encoded, DataError> {
        self.encoders.lend(|encoder| self.encode_with(encoder, chunk))
    }

    fn encode_with(&self, encoder: &mut Encoder<'a>, chunk: &Chunk) -> Result<Encoded, DataError> {
        let mut sink = Sink {
            dtype: self.dtype,
            unk: self.tokenizer.unk_id(),
            ids: Vec::new(),
            line_starts: Vec::new(),
            encoded: Encoded {
                payload: Vec::with_capacity(chunk.text.len() / 2),
                documents: Vec::new(),
                sentences: Vec::new(),
                size: SourceSize::default(),
                unknown: 0,
            },
        };
        let size = for_each_unit(&self.reading, self.sources, chunk, &mut |unit| {
            self.encode_unit(encoder, &unit, &mut sink)
        })?;
        let mut encoded = sink.finish();
        encoded.size = size;
        Ok(encoded)
    }

    fn encode_unit(&self, encoder: &mut Encoder<'a>, unit: &Unit<'_>, sink: &mut Sink) -> Result<(), String> {
        if unit.begins_document {
            sink.encoded.documents.push(sink.position());
        }
        let bytes = (unit.text.bytes() * self.tokenizer.memory_per_byte()) as u64;
        let _memory = self.budget.take(bytes);
        match bytes > OWN_THREAD {
            true => on_a_thread_of_its_own(|| self.encode_in_budget(encoder, unit, sink))?,
            false => self.encode_in_budget(encoder, unit, sink),
        }
    }

    fn encode_in_budget(
        &self,
        encoder: &mut Encoder<'a>,
        unit: &Unit<'_>,
        sink: &mut Sink,
    ) -> Result<(), String> {
        let unfit = |why: String| format!("the tokenizer cannot encode the text that begins here: {why}");
        match unit.text {
            Content::Line(line) => {
                sink.begin_line(unit);
                encoder.encode(line, &mut sink.ids).map_err(unfit)?;
                self.end_line(unit, sink);
                return Ok(());
            }
            Content::RawLine(line) => {
                sink.begin_line(unit);
                check_codes(encoder, line).map_err(unfit)?;
                encoder.encode_bytes(line, &mut sink.ids);
                self.end_line(unit, sink);
                return Ok(());
            }
            Content::Sentence(text) => {
                let begin = sink.position();
                match self.unknown_word.filter(|_| text.contains(UNK)) {
                    Some(unknown) => {
                        let text = text.replace(UNK, unknown.encode_utf8(&mut [0; 4]));
                        encoder.encode(&text, &mut sink.ids).map_err(unfit)?;
                    }
                    None => encoder.encode(text, &mut sink.ids).map_err(unfit)?,
                }
                // Text can come to nothing: lone accents, say.
                if unit.begins_sentence && sink.position() > begin {
                    sink.encoded.sentences.push(begin);
                }
                sink.pack_if_full();
                return Ok(());
            }
            Content::DocumentEnd => {
                // As in the reference, which may cut text here, too.
                if let Some(eod) = self.document_end {
                    sink.encoded.sentences.push(sink.position());
                    sink.ids.push(eod);
                }
                return Ok(());
            }
            Content::Text(text) => {
                sink.pack();
                encoder.encode_lines(text, &mut sink.ids, &mut sink.line_starts).map_err(unfit)?;
                sink.take_sentences(unit.begins_sentence || starts_blank(text.as_bytes()));
            }
            Content::Bytes(bytes) => {
                sink.pack();
                check_codes(encoder, bytes).map_err(unfit)?;
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    if !line.trim_ascii().is_empty() {
                        sink.line_starts.push(sink.ids.len() as u32);
                    }
                    encoder.encode_bytes(line, &mut sink.ids);
                }
                sink.take_sentences(unit.begins_sentence || starts_blank(bytes));
            }
        }
        if unit.ends {
            sink.ids.extend(self.tokenizer.eos_id());
        }
        sink.pack();
        Ok(())
    }

    fn end_line(&self, line: &Unit<'_>, sink: &mut Sink) {
        if line.ends {
            sink.ids.extend_from_slice(&self.line_end);
        }
        sink.pack_if_full();
    }
}

/// The system's allocator keeps what a thread has freed for that thread, or for one that begins after its end: were long texts encoded on
/// the workers themselves, each would keep the memory of its longest one, whatever the budget.
fn on_a_thread_of_its_own<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    scope(|threads| {
        let thread = Builder::new().name("segue-encode-long".into()).spawn_scoped(threads, work);
        let thread = thread.map_err(|e| format!("no thread can be started for it: {e}"))?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Refuses bytes that a byte tokenizer has no code for.
fn check_codes(encoder: &Encoder<'_>, bytes: &[u8]) -> Result<(), String> {
    match encoder.first_unknown_byte(bytes) {
        Some(at) => {
            Err(format!("byte 0x{:02X} has no code\nhint: train the tokenizer on all splits", bytes[at]))
        }
        None => Ok(()),
    }
}

/// A character for which the tokenizer gives its unknown token, with or without a space before it. Private use: no text
/// has a meaning for it.
fn unknown_word(tokenizer: &Tokenizer) -> Option<char> {
    const PRIVATE: char = '\u{E000}';
    let mut ids = Vec::new();
    tokenizer.encode(PRIVATE.encode_utf8(&mut [0; 4]), &mut ids);
    (ids.last().copied() == tokenizer.unk_id() && ids.len() <= 2).then_some(PRIVATE)
}

/// Whether the first line is blank, so that no sentence begins in it.
fn starts_blank(text: &[u8]) -> bool {
    let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
    text[..end].trim_ascii().is_empty()
}

/// Collects ids and packs them, so that no more than a unit's worth of them is held at full width.
struct Sink {
    dtype: Dtype,
    unk: Option<u32>,
    ids: Vec<u32>,
    /// Places in `ids` at which lines begin.
    line_starts: Vec<u32>,
    encoded: Encoded,
}

impl Sink {
    /// Ids held before they are packed.
    const HELD: usize = 1 << 14;

    /// Number of tokens so far.
    fn position(&self) -> u32 {
        (self.encoded.payload.len() / self.dtype.bytes() + self.ids.len()) as u32
    }

    fn begin_line(&mut self, line: &Unit<'_>) {
        if line.begins_sentence {
            self.encoded.sentences.push(self.position());
        }
    }

    /// Turns line starts into sentences; call with everything before the unit packed.
    fn take_sentences(&mut self, first_begins: bool) {
        let base = (self.encoded.payload.len() / self.dtype.bytes()) as u32;
        let skipped = usize::from(!first_begins);
        self.encoded.sentences.extend(self.line_starts.iter().skip(skipped).map(|start| base + start));
        self.line_starts.clear();
    }

    fn pack_if_full(&mut self) {
        if self.ids.len() >= Self::HELD {
            self.pack();
        }
    }

    fn pack(&mut self) {
        if let Some(unk) = self.unk {
            self.encoded.unknown += self.ids.iter().filter(|id| **id == unk).count() as u64;
        }
        self.dtype.pack(&self.ids, &mut self.encoded.payload);
        self.ids.clear();
    }

    fn finish(mut self) -> Encoded {
        self.pack();
        self.encoded
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::build::InvalidUtf8;
    use crate::input::{Files, Part, Position};

    /// A `tokenizer.json` that is not of the fast kind.
    fn foreign() -> Tokenizer {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": [],
            "pre_tokenizer": { "type": "WhitespaceSplit" }, "post_processor": null, "decoder": null,
            "model": { "type": "WordLevel", "vocab": { "<unk>": 0, "a": 1, "b": 2 }, "unk_token": "<unk>" },
        });
        std::fs::write(&path, json.to_string()).unwrap();
        Tokenizer::import(&path).unwrap()
    }

    /// A file that is one document.
    fn document(text: &str) -> Chunk {
        let part = Part {
            bytes: 0..text.len(),
            begin: Position::start_of(0),
            starts_file: true,
            ends_file: true,
            starts_all: true,
            ends_all: true,
        };
        Chunk { text: text.into(), parts: vec![part], after: Position::start_of(1), file_bytes_read: 0 }
    }

    #[test]
    fn a_long_document_waits_for_the_memory_that_others_hold() {
        let tokenizer = foreign();
        let file = tempfile::NamedTempFile::new().unwrap();
        let files = Files { extensions: &[], text_column: None };
        let sources = files.collect(&[file.path().into()]).unwrap();
        let (long, short) = (document(&"a b ".repeat(1 << 14)), document("a b"));
        let reading = Reading {
            layout: Layout::Documents,
            invalid_utf8: InvalidUtf8::Fail,
            text_cut: tokenizer.text_cut(),
            raw: false,
            trim: false,
            filter: None,
        };
        let encoder = ChunkEncoder::new(&tokenizer, reading, &sources, false);
        let others = encoder.budget.take(ENCODING_BYTES);
        scope(|threads| {
            let (done, wait) = channel();
            let encode_long = || encoder.encode(&long).unwrap().payload.len();
            threads.spawn(move || done.send(encode_long()).unwrap());
            // It needs hardly any.
            assert_eq!(encoder.encode(&short).unwrap().payload.len(), 2 * 2);
            // Time enough to be done, for one that does not wait.
            assert_eq!(wait.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
            drop(others);
            assert_eq!(wait.recv().unwrap(), 2 * (2 << 14));
        });
    }
}
