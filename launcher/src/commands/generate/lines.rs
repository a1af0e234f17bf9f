//! Where the lines of a conversation come from.

use std::io::{self, BufRead, Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{QueueSelector, tcflush};
use rustyline::config::Configurer;
use rustyline::error::{ReadlineError, Signal};
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};
use segue_cluster::signals::end_as_interrupted;

const PROMPT: &str = "> ";
/// Most bytes of a line: far more than anybody types, and not all that a program may send without a line break.
const LONGEST_LINE: usize = 1 << 16;
/// Terminals, by `TERM`, in which the editor edits nothing: it reads lines there, and Ctrl-C is a signal.
const WITHOUT_EDITING: [&str; 3] = ["dumb", "cons25", "emacs"];
/// A pause as long as this ends what is pasted.
const END_OF_PASTE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What a prompt is answered with.
#[derive(Debug, PartialEq)]
pub enum Line {
    /// A line without its end.
    Text(String),
    /// Nothing to go on from, and why.
    LeftOut(String),
    /// Nothing more: the input has ended.
    End,
}

impl Line {
    /// A line, unless it cannot be read.
    fn of(bytes: Vec<u8>) -> Self {
        let left_out = |what: &str| Self::LeftOut(format!("a line {what} is left out"));
        if bytes.len() > LONGEST_LINE {
            return left_out(&format!("of more than {LONGEST_LINE} bytes"));
        }
        match String::from_utf8(bytes) {
            Ok(text) if text.contains('\0') => left_out("with a NUL character"),
            Ok(text) => Self::Text(text),
            Err(_) => left_out("that is not UTF-8"),
        }
    }
}

/// Where typed lines come from.
pub trait Lines {
    /// Prompts on `output` and reads a line.
    fn next_line(&mut self, output: &mut impl Write) -> io::Result<Line>;
}

/// Lines as they are, for an output that is no terminal.
pub struct PlainLines<R> {
    input: R,
    /// Whether the input ended in the middle of the last line. A terminal would go on after that.
    ended: bool,
}

impl<R: BufRead> PlainLines<R> {
    /// Lines of `input`.
    pub fn new(input: R) -> Self {
        Self { input, ended: false }
    }
}

impl<R: BufRead> Lines for PlainLines<R> {
    fn next_line(&mut self, output: &mut impl Write) -> io::Result<Line> {
        write!(output, "{PROMPT}")?;
        output.flush()?;
        if self.ended {
            return Ok(Line::End);
        }
        let mut line = Vec::new();
        // Two bytes more for the end of the line.
        let read = self.input.by_ref().take(LONGEST_LINE as u64 + 2).read_until(b'\n', &mut line)?;
        self.ended = line.last() != Some(&b'\n');
        if read == LONGEST_LINE + 2 && self.ended {
            self.ended = self.input.skip_until(b'\n')? == 0;
        }
        if read == 0 {
            return Ok(Line::End);
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text).len();
        line.truncate(text);
        Ok(Line::of(line))
    }
}

/// Lines that are edited in a terminal, and recalled with the arrow keys while the conversation lasts.
pub struct LineEditor {
    editor: Editor<(), MemHistory>,
    /// Whether the last prompt was answered with Ctrl-C.
    interrupted: bool,
}

impl LineEditor {
    /// An editor on stdin and stdout, which are a terminal.
    pub fn new() -> io::Result<Self> {
        // Each line of what is pasted is a line, as it is without an editor.
        let mut config = Config::builder().auto_add_history(true);
        config.enable_bracketed_paste(false);
        let editor = Editor::with_history(config.build(), MemHistory::new()).map_err(io_error)?;
        Ok(Self { editor, interrupted: false })
    }
}

/// Whether an editor in a terminal of this kind, which `TERM` names, reads Ctrl-C as a key.
pub fn takes_keys(term: Option<&str>) -> bool {
    !term.is_some_and(|term| WITHOUT_EDITING.iter().any(|known| known.eq_ignore_ascii_case(term)))
}

impl Lines for LineEditor {
    /// Ctrl-C leaves the line; a second one ends the process as it does without an editor, the terminal being as it was.
    fn next_line(&mut self, output: &mut impl Write) -> io::Result<Line> {
        output.flush()?;
        let before = std::mem::take(&mut self.interrupted);
        match self.editor.readline(PROMPT) {
            Ok(line) => Ok(Line::of(line.into_bytes())),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(ReadlineError::Interrupted) if !before => {
                self.interrupted = true;
                Ok(Line::LeftOut("Ctrl-C again ends, as Ctrl-D does".into()))
            }
            Err(ReadlineError::Interrupted | ReadlineError::Signal(Signal::Interrupt)) => {
                end_as_interrupted()
            }
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                discard_paste()?;
                Ok(Line::LeftOut(
                    "a line that is not UTF-8 is left out, with what was pasted behind it".into(),
                ))
            }
            Err(error) => Err(io_error(error)),
        }
    }
}

/// Reads what has been typed ahead and forgets it: the editor drops what it has read behind a character that is none, and the rest, which may begin
/// anywhere, is no line of its own.
fn discard_paste() -> io::Result<()> {
    let input = io::stdin();
    loop {
        let more = poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&END_OF_PASTE));
        // After the wait too: a line without its end is there, and not told of.
        tcflush(&input, QueueSelector::IFlush)?;
        match more {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn io_error(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What prompts are answered with, and how many there are.
    fn answers(input: &[u8]) -> Vec<Line> {
        let (mut lines, mut output, mut answers) = (PlainLines::new(input), Vec::new(), Vec::new());
        while answers.last() != Some(&Line::End) {
            answers.push(lines.next_line(&mut output).unwrap());
        }
        assert_eq!(output, PROMPT.repeat(answers.len()).as_bytes());
        answers
    }

    #[test]
    fn ctrl_c_is_a_key_where_lines_are_edited() {
        for (term, keys) in [
            (None, true),
            (Some("xterm"), true),
            (Some("dumb"), false),
            (Some("Cons25"), false),
            (Some("emacs"), false),
        ] {
            assert_eq!(takes_keys(term), keys, "{term:?}");
        }
    }

    fn text(text: &str) -> Line {
        Line::Text(text.into())
    }

    fn left_out(what: &str) -> Line {
        Line::LeftOut(format!("a line {what} is left out"))
    }

    #[test]
    fn lines_that_cannot_be_read_are_left_out() {
        let expected = [
            text("a"),
            left_out("that is not UTF-8"),
            left_out("with a NUL character"),
            text(""),
            text("é"),
            Line::End,
        ];
        assert_eq!(answers(b"a\nb\xff\nc\0d\n\r\n\xc3\xa9\r\n"), expected);
    }

    #[test]
    fn the_longest_line_is_read_and_a_longer_one_is_skipped_to_its_end() {
        let (longest, longer) = ("x".repeat(LONGEST_LINE), "x".repeat(3 * LONGEST_LINE));
        let too_long = || left_out("of more than 65536 bytes");
        let all = format!("{longest}\n{longest}\r\n{longest}x\n{longest}xx\n{longer}\na\n{longer}");
        let (read, after) = ([text(&longest), text(&longest)], [text("a"), too_long(), Line::End]);
        let expected = read.into_iter().chain([too_long(), too_long(), too_long()]).chain(after);
        assert!(answers(all.as_bytes()).into_iter().eq(expected));
    }

    /// Input in parts. An empty one is an end, as Ctrl-D makes it: a terminal goes on after that.
    struct Terminal(Vec<&'static str>);

    impl Read for Terminal {
        fn read(&mut self, mut buffer: &mut [u8]) -> io::Result<usize> {
            buffer.write(self.0.remove(0).as_bytes())
        }
    }

    #[test]
    fn an_end_in_the_middle_of_a_line_is_an_end() {
        let input = io::BufReader::new(Terminal(vec!["a\n", "b", "", "c\n"]));
        let (mut lines, mut output) = (PlainLines::new(input), Vec::new());
        let mut next = || lines.next_line(&mut output).unwrap();
        assert_eq!([next(), next(), next()], [text("a"), text("b"), Line::End]);
    }
}
