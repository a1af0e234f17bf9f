use std::ops::Range;

use segue_configs::counted;
use segue_data_error::DataError;

use super::input::{PairInput, PairSplit, Taken};
use super::lines::LineReader;
use crate::build::pipeline::Chunks;
use crate::input::CHUNK_BYTES;

/// Where a pair stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairPlace {
    /// Its number, from 1, in all inputs of a split.
    pub(super) number: u64,
    /// Number of its input.
    pub(super) input: usize,
    /// Its line there, from 1.
    pub(super) line: u64,
}

/// The bytes of a pair in a chunk.
#[derive(Clone, Debug)]
pub(super) struct RawPair {
    pub(super) place: PairPlace,
    /// The source, or a whole record.
    pub(super) first: Range<usize>,
    /// The target; empty of a record.
    pub(super) second: Range<usize>,
}

/// Pairs that are handled at once.
#[derive(Debug)]
pub(super) struct PairChunk {
    pub(super) text: Vec<u8>,
    pub(super) pairs: Vec<RawPair>,
    /// Bytes read so far of the files as they lie on disk.
    file_bytes_read: u64,
}

impl PairChunk {
    /// Bytes of memory that it takes: empty lines are no text, and many of them still fill a chunk.
    fn size(&self) -> usize {
        self.text.len() + self.pairs.len() * size_of::<RawPair>()
    }
}

/// Reads the inputs of a split pair by pair, two files in lockstep. Where a chunk ends depends on the text alone.
pub(super) struct LockstepReader<'a> {
    inputs: &'a [PairInput],
    taken: Taken,
    open: Option<OpenInput<'a>>,
    /// Number of the input that is open, or comes next.
    input: usize,
    /// Pairs read so far, taken or not.
    number: u64,
    bytes_of_inputs_before: u64,
}

/// An input that is being read.
enum OpenInput<'a> {
    Files(LineReader<'a>, LineReader<'a>),
    Records(LineReader<'a>),
}

impl<'a> LockstepReader<'a> {
    pub(super) fn new(split: &'a PairSplit) -> LockstepReader<'a> {
        let (inputs, taken) = (&split.inputs, split.taken);
        LockstepReader { inputs, taken, open: None, input: 0, number: 0, bytes_of_inputs_before: 0 }
    }

    /// Appends the next pair of the split to a chunk; `false` at the end of all inputs.
    fn read_pair(&mut self, chunk: &mut PairChunk) -> Result<bool, DataError> {
        while let Some(input) = self.inputs.get(self.input) {
            let open = match &mut self.open {
                Some(open) => open,
                None => self.open.insert(OpenInput::new(input)?),
            };
            let begin = chunk.text.len();
            let Some(middle) = open.next_pair(&mut chunk.text)? else {
                self.bytes_of_inputs_before += input.file_bytes();
                (self.open, self.input) = (None, self.input + 1);
                continue;
            };
            self.number += 1;
            if self.taken.takes(self.number) {
                let place = PairPlace { number: self.number, input: self.input, line: open.line() };
                let (first, second) = (begin..middle, middle..chunk.text.len());
                chunk.pairs.push(RawPair { place, first, second });
                return Ok(true);
            }
            chunk.text.truncate(begin);
        }
        Ok(false)
    }
}

impl Chunks for LockstepReader<'_> {
    type Chunk = PairChunk;
    /// Bytes read so far of the files as they lie on disk.
    type End = u64;

    fn next_chunk(&mut self) -> Result<Option<PairChunk>, DataError> {
        let mut chunk = PairChunk { text: Vec::new(), pairs: Vec::new(), file_bytes_read: 0 };
        while chunk.size() < CHUNK_BYTES && self.read_pair(&mut chunk)? {}
        let of_open = self.open.as_ref().map_or(0, OpenInput::file_bytes_read);
        chunk.file_bytes_read = self.bytes_of_inputs_before + of_open;
        Ok(Some(chunk).filter(|chunk| !chunk.pairs.is_empty()))
    }

    fn size_of(chunk: &PairChunk) -> usize {
        chunk.size()
    }

    fn end_of(chunk: &PairChunk) -> u64 {
        chunk.file_bytes_read
    }
}

impl<'a> OpenInput<'a> {
    fn new(input: &'a PairInput) -> Result<OpenInput<'a>, DataError> {
        Ok(match input {
            PairInput::Files { source, target } => {
                OpenInput::Files(LineReader::open(source)?, LineReader::open(target)?)
            }
            PairInput::Records(records) => OpenInput::Records(LineReader::open(records)?),
        })
    }

    /// Appends the next pair, and tells where its second side begins; `None` at the end.
    fn next_pair(&mut self, text: &mut Vec<u8>) -> Result<Option<usize>, DataError> {
        match self {
            OpenInput::Files(source, target) => {
                let has_source = source.next_line(text)?;
                let middle = text.len();
                match (has_source, target.next_line(text)?) {
                    (true, true) => Ok(Some(middle)),
                    (false, false) => Ok(None),
                    (true, false) => Err(unequal(source, target)?),
                    (false, true) => Err(unequal(target, source)?),
                }
            }
            OpenInput::Records(records) => {
                let begin = text.len();
                while records.next_line(text)? {
                    if !text[begin..].trim_ascii().is_empty() {
                        return Ok(Some(text.len()));
                    }
                    text.truncate(begin);
                }
                Ok(None)
            }
        }
    }

    /// Number of the line that was read last.
    fn line(&self) -> u64 {
        match self {
            OpenInput::Files(lines, _) | OpenInput::Records(lines) => lines.lines(),
        }
    }

    fn file_bytes_read(&self) -> u64 {
        match self {
            OpenInput::Files(source, target) => source.file_bytes_read() + target.file_bytes_read(),
            OpenInput::Records(records) => records.file_bytes_read(),
        }
    }
}

/// Two files of unequal length, of which the shorter is at its end: reads the longer to its own, to tell how many lines it has.
fn unequal(longer: &mut LineReader<'_>, shorter: &LineReader<'_>) -> Result<DataError, DataError> {
    let alone = longer.lines();
    let mut line = Vec::new();
    while longer.next_line(&mut line)? {
        line.clear();
    }
    let (path, partner) = (&longer.source().path, shorter.source().path.display());
    let (found, of_partner) = (counted(longer.lines(), "line"), counted(shorter.lines(), "line"));
    let why = format!(
        "it has no partner: this file has {found}, {partner} {of_partner}\nhint: look for a file that was cut off, or align \
         them anew line by line"
    );
    Ok(DataError::line(path, alone, why))
}
