use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_schema_from_flatbuffer_bytes;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::{Endianness, Message, MessageHeader, root_as_message};
use arrow_schema::{Schema, SchemaRef};

use super::contents::{Contents, ContentsReader};
use super::damage::{damage, invalid};

/// The mark at both ends of a file of the file format; those of the stream format have none.
const MARK: &[u8; 6] = b"ARROW1";
/// The mark at the start with what pads it, at least.
const PADDED_MARK: u64 = 8;
/// The mark of what pandas wrote as Feather before version 2, another format.
const FEATHER_1: &[u8; 4] = b"FEA1";
/// What stands before the length of a message.
const CONTINUATION: u32 = u32::MAX;
/// The longest buffer that is unpacked: what offsets of 32 bits reach.
const LONGEST_BUFFER: i64 = 1 << 31;

/// The messages of an Arrow file, from the first to the last. The file format is the stream format between two marks,
/// with an index behind that nobody needs who reads from start to end.
pub(crate) struct Messages {
    input: BufReader<ContentsReader>,
    size: u64,
    read: u64,
    /// Whether the mark of the end has come.
    ended: bool,
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
    /// Numbers of the columns that are wanted.
    selected: Vec<usize>,
}

impl Messages {
    pub(crate) fn open(contents: &Contents) -> io::Result<Messages> {
        let mut messages = Messages {
            input: contents.reader(0),
            size: contents.size(),
            read: 0,
            ended: false,
            schema: Arc::new(Schema::empty()),
            dictionaries: HashMap::new(),
            selected: Vec::new(),
        };
        let mark = contents.range(0, messages.size.min(MARK.len() as u64))?;
        if mark.starts_with(FEATHER_1) {
            return Err(invalid("it is a file of Feather 1\nhint: write it as Feather 2, which is Arrow"));
        }
        let mut word = 0;
        if mark == MARK[..] {
            let end = messages.size - MARK.len() as u64;
            if end < PADDED_MARK || contents.range(end, MARK.len() as u64)? != MARK[..] {
                return Err(truncated());
            }
            messages.bytes(PADDED_MARK)?;
            // Some writers pad to 64 bytes.
            while word == 0 {
                word = messages.word()?;
            }
        } else {
            word = messages.word()?;
        }
        let (header, _) = messages.message(word)?.ok_or_else(|| invalid("it holds no schema"))?;
        let schema = parse(&header)?.header_as_schema();
        if schema.is_some_and(|schema| schema.endianness() != Endianness::Little) {
            return Err(invalid("its numbers are big-endian"));
        }
        messages.schema = Arc::new(try_schema_from_flatbuffer_bytes(&header).map_err(damage)?);
        Ok(messages)
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Bytes of the file that have been read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Leaves out all columns but those that the paths begin with.
    pub(crate) fn select(&mut self, paths: &[Vec<String>]) {
        let fields = self.schema.fields();
        let wanted = |name: &String| paths.iter().any(|path| path.first() == Some(name));
        self.selected = (0..fields.len()).filter(|place| wanted(fields[*place].name())).collect();
    }

    pub(crate) fn next_batch(&mut self) -> io::Result<Option<RecordBatch>> {
        while !self.ended {
            let word = self.word()?;
            let Some((header, body)) = self.message(word)? else { break };
            let message = parse(&header)?;
            let version = message.version();
            match message.header_type() {
                MessageHeader::RecordBatch => {
                    let batch = message.header_as_record_batch().ok_or_else(|| damage("no record batch"))?;
                    check_buffers(batch, &body)?;
                    let (schema, selected) = (self.schema.clone(), Some(&self.selected[..]));
                    let read =
                        read_record_batch(&body, batch, schema, &self.dictionaries, selected, &version);
                    return read.map(Some).map_err(damage);
                }
                MessageHeader::DictionaryBatch => {
                    let batch = message.header_as_dictionary_batch();
                    let batch = batch.ok_or_else(|| damage("no dictionary"))?;
                    check_buffers(batch.data().ok_or_else(|| damage("an empty dictionary"))?, &body)?;
                    read_dictionary(&body, batch, &self.schema, &mut self.dictionaries, &version)
                        .map_err(damage)?;
                }
                _ => return Err(damage("a message that is not expected")),
            }
        }
        Ok(None)
    }

    /// The description and the content of the message that begins with a word; `None` at the mark of the end, which every
    /// writer makes: without it, nobody knew whether the file is whole.
    fn message(&mut self, word: u32) -> io::Result<Option<(Vec<u8>, Buffer)>> {
        // Before version 0.15 of the format, messages began with their lengths.
        let length = if word == CONTINUATION { self.word()? } else { word };
        self.ended = length == 0;
        if self.ended {
            return Ok(None);
        }
        let header = self.bytes(length.into())?;
        let body = u64::try_from(parse(&header)?.bodyLength()).map_err(damage)?;
        let body = self.bytes(body)?;
        Ok(Some((header, Buffer::from_vec(body))))
    }

    fn word(&mut self) -> io::Result<u32> {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes(4)?);
        Ok(u32::from_le_bytes(word))
    }

    fn bytes(&mut self, count: u64) -> io::Result<Vec<u8>> {
        if count > self.size - self.read {
            return Err(truncated());
        }
        let mut bytes = vec![0; count as usize];
        self.input.read_exact(&mut bytes)?;
        self.read += count;
        Ok(bytes)
    }
}

fn parse(header: &[u8]) -> io::Result<Message<'_>> {
    root_as_message(header).map_err(damage)
}

/// Checks what the crate takes as it comes: where buffers lie, and how long unpacked ones are.
fn check_buffers(batch: arrow_ipc::RecordBatch<'_>, body: &[u8]) -> io::Result<()> {
    for buffer in batch.buffers().iter().flatten() {
        let begin = usize::try_from(buffer.offset()).map_err(damage)?;
        let length = usize::try_from(buffer.length()).map_err(damage)?;
        let end = begin.checked_add(length).ok_or_else(|| damage("a buffer without an end"))?;
        let bytes = body.get(begin..end).ok_or_else(|| damage("a buffer outside its message"))?;
        if let (Some(_), Some(unpacked)) = (batch.compression(), bytes.first_chunk::<8>())
            && i64::from_le_bytes(*unpacked) > LONGEST_BUFFER
        {
            return Err(damage("a buffer that is too long"));
        }
    }
    Ok(())
}

fn truncated() -> io::Error {
    invalid("it ends too early, so it is truncated")
}
