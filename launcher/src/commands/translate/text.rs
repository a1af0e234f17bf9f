//! The text that is translated, in windows of lines.

use std::io::{BufReader, Read, stdin};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use segue_data_error::DataError;
use segue_sentences::{Sentence, Sentences};

use crate::failure::Failure;

/// Lines of a window for each thread of each rank: some groups of like length.
const WINDOW: usize = 128;

/// A line, or why it cannot be read.
pub type Line = Result<Sentence, DataError>;

/// Lines that a thread of its own reads.
pub struct Text {
    lines: Receiver<Line>,
    window: usize,
    /// Whether the text is a file: its lines are there, and are waited for.
    is_file: bool,
    /// How many lines a file has.
    pub count: Option<u64>,
}

impl Text {
    /// The text of a file, or of stdin for `-`, for so many threads of all ranks.
    pub fn open(path: &Path, threads: usize) -> Result<Self, Failure> {
        let is_file = path.is_file();
        let window = WINDOW * threads;
        let (to, lines) = sync_channel(window);
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
        Ok(Self { lines, window, is_file, count })
    }

    /// The next lines: of a file as many as a window has, else those that are there, once there is one. None at the end.
    pub fn window(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = self.lines.recv().into_iter().collect();
        while !lines.is_empty() && lines.len() < self.window {
            let next = if self.is_file { self.lines.recv().ok() } else { self.lines.try_recv().ok() };
            match next {
                Some(line) => lines.push(line),
                None => break,
            }
        }
        lines
    }
}

/// Reads on as long as somebody takes the lines.
fn send(mut text: Sentences<BufReader<Box<dyn Read + Send>>>, to: SyncSender<Line>) {
    thread::spawn(move || text.try_for_each(|line| to.send(line)));
}
