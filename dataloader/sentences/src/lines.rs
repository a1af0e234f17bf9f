use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use segue_data_error::{DataError, without_mark};
use segue_dataloader::open_text;

/// Bytes of the longest line that is read, as when a corpus of pairs is built.
pub const LONGEST_LINE: usize = 1 << 20;

/// A line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Number of the line, from 1.
    pub line: u64,
    /// The line without its end; it may be empty.
    pub text: String,
}

/// The sentences of a text, one a line; empty lines are kept, so that what is made of them stands at their lines. A line
/// that is not UTF-8 or longer than [`LONGEST_LINE`] is an error that names it, after which reading goes on with the next
/// one. After a failure of the system there is nothing more.
///
/// ```
/// use segue_sentences::Sentences;
///
/// let text = &b"ein Haus\n\na\xFF\nzwei"[..];
/// let lines: Vec<_> = Sentences::new(text, "stdin".as_ref()).collect();
/// assert_eq!(lines[0].as_ref().unwrap().text, "ein Haus");
/// assert_eq!(lines[1].as_ref().unwrap().text, "");
/// assert!(lines[2].as_ref().unwrap_err().to_string().starts_with("stdin, line 3: it is not UTF-8"));
/// assert_eq!(lines[3].as_ref().unwrap().line, 4);
/// ```
pub struct Sentences<R> {
    text: R,
    name: PathBuf,
    line: u64,
    failed: bool,
}

impl Sentences<BufReader<Box<dyn Read + Send>>> {
    /// Reads a file, which `.gz` and `.zst` at the end of its name say to decompress.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Ok(Sentences::new(BufReader::new(open_text(path)?), path))
    }
}

impl<R: BufRead> Sentences<R> {
    /// Reads a text that errors call `name`.
    pub fn new(text: R, name: &Path) -> Sentences<R> {
        Sentences { text, name: name.into(), line: 0, failed: false }
    }

    /// The next line with its end, as far as it is not too long; empty at the end of the text.
    fn read_line(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.text).take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut bytes)?;
        if is_too_long(&bytes) {
            skip_line(&mut self.text)?;
        }
        Ok(bytes)
    }

    fn sentence(&self, bytes: &[u8]) -> Result<Sentence, DataError> {
        let bad = |why: String| DataError::line(&self.name, self.line, why);
        if is_too_long(bytes) {
            return Err(bad(format!(
                "this line has more than {} MiB\nhint: put one sentence on a line",
                LONGEST_LINE >> 20
            )));
        }
        let bytes = if self.line == 1 { without_mark(bytes) } else { bytes };
        let bytes = bytes.strip_suffix(b"\n").map_or(bytes, |line| line.strip_suffix(b"\r").unwrap_or(line));
        let text = std::str::from_utf8(bytes).map_err(|e| {
            bad(format!(
                "it is not UTF-8 at byte {} of the line\nhint: convert it to UTF-8",
                e.valid_up_to() + 1
            ))
        })?;
        Ok(Sentence { line: self.line, text: text.into() })
    }
}

/// Whether a line was cut off.
fn is_too_long(bytes: &[u8]) -> bool {
    bytes.len() > LONGEST_LINE && !bytes.ends_with(b"\n")
}

/// Reads on to the end of a line, holding none of it.
fn skip_line(text: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = text.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let (length, over) = (end.map_or(buffer.len(), |end| end + 1), end.is_some() || buffer.is_empty());
        text.consume(length);
        if over {
            return Ok(());
        }
    }
}

impl<R: BufRead> Iterator for Sentences<R> {
    type Item = Result<Sentence, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.read_line() {
            Ok(bytes) if bytes.is_empty() => None,
            Ok(bytes) => {
                self.line += 1;
                Some(self.sentence(&bytes))
            }
            Err(error) => {
                self.failed = true;
                Some(Err(DataError::read(&self.name, error)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Vec<Result<Sentence, String>> {
        Sentences::new(text, Path::new("in")).map(|line| line.map_err(|e| e.to_string())).collect()
    }

    #[test]
    fn a_line_that_is_too_long_is_told_and_passed_over() {
        let long = "x".repeat(LONGEST_LINE);
        let lines = read(format!("a\n{long}\n{long}yz\nb\n{long}{long}").as_bytes());
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[1].as_ref().unwrap().text, long);
        for (place, line) in [(2, 3), (4, 5)] {
            assert_eq!(lines[place], Err(format!("in, line {line}: this line has more than 1 MiB")));
        }
        assert_eq!(lines[3].as_ref().unwrap(), &Sentence { line: 4, text: "b".into() });
    }

    #[test]
    fn a_failure_of_the_system_ends_the_text() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::PermissionDenied.into())
            }
        }
        let text = BufReader::new((&b"a\nb"[..]).chain(Fails));
        let lines: Vec<_> = Sentences::new(text, Path::new("in")).collect();
        assert_eq!((lines.len(), lines[0].is_ok(), lines[1].is_ok()), (2, true, false));
    }

    proptest! {
        #[test]
        fn lines_come_back_whatever_ends_them(
            lines in prop::collection::vec("[a-zä\r ]{0,8}[a-zä ]", 0..20), crlf: bool, ended: bool, marked: bool,
        ) {
            let end = if crlf { "\r\n" } else { "\n" };
            let mut text = String::from(if marked && !lines.is_empty() { "\u{FEFF}" } else { "" });
            text += &lines.join(end);
            if ended && !lines.is_empty() {
                text += end;
            }
            let found: Vec<_> = read(text.as_bytes()).into_iter().map(Result::unwrap).collect();
            prop_assert_eq!(found.iter().map(|line| &line.text).collect::<Vec<_>>(), lines.iter().collect::<Vec<_>>());
            prop_assert!(found.iter().zip(1..).all(|(line, number)| line.line == number));
        }
    }
}
