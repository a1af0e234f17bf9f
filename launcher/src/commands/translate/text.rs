//! The text that is translated, in blocks of lines.

use std::io::{BufReader, Read, stdin};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use segue_data_error::DataError;
use segue_sentences::{Sentence, Sentences};

use crate::failure::Failure;

/// Lines of a block for each thread of each rank: some groups of like length.
const LINES: usize = 128;
/// Most lines of a block, and most bytes.
const MOST_LINES: usize = 4096;
const MOST_BYTES: usize = 1 << 20;
/// Lines that are read ahead.
const AHEAD: usize = 64;

/// A line, or why it cannot be read.
pub type Line = Result<Sentence, DataError>;

/// Lines that a thread of its own reads.
pub struct Text {
    lines: Receiver<Line>,
    most: usize,
    /// Whether the text is a file, whose lines are waited for until a block is full.
    is_file: bool,
    /// How many lines a file has.
    pub count: Option<u64>,
}

impl Text {
    /// The text of a file, or of stdin for `-`, for so many threads of all ranks; for a translator that takes one line at a time, `many` is false.
    pub fn open(path: &Path, threads: usize, many: bool) -> Result<Self, Failure> {
        let is_file = path.is_file();
        let most = if many { LINES.saturating_mul(threads).min(MOST_LINES) } else { threads.min(MOST_LINES) };
        let (to, lines) = sync_channel(AHEAD);
        let mut count = None;
        if path == Path::new("-") {
            let stdin: Box<dyn Read + Send> = Box::new(stdin());
            send(Sentences::new(BufReader::new(stdin), Path::new("stdin")), to);
        } else {
            // What is no file of a disk is read once.
            if is_file {
                count = Some(Sentences::open(path)?.count() as u64);
            }
            send(Sentences::open(path)?, to);
        }
        Ok(Self { lines, most, is_file, count })
    }

    /// The next lines: of a file as many as a block has, else those that are there, once there is one. None at the end.
    pub fn block(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        let mut bytes = 0;
        while lines.len() < self.most && bytes < MOST_BYTES {
            let waits = self.is_file || lines.is_empty();
            let next = if waits { self.lines.recv().ok() } else { self.lines.try_recv().ok() };
            let Some(line) = next else { break };
            bytes += line.as_ref().map_or(0, |sentence| sentence.text.len());
            lines.push(line);
        }
        lines
    }
}

/// Reads on as long as somebody takes the lines.
fn send(mut text: Sentences<BufReader<Box<dyn Read + Send>>>, to: SyncSender<Line>) {
    thread::spawn(move || text.try_for_each(|line| to.send(line)));
}
