//! The end of a file of lines that somebody else writes.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes before the place that was read to by which a file is known again: more than a number of its own and shorter than a row.
const ANCHOR: usize = 64;
/// Longest line that is kept, in bytes; rows of metrics have some hundred.
pub const LONGEST_LINE: u64 = 1 << 20;

/// What a look at the file brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The file is another one than before: what was read of it is void.
    pub fresh: bool,
    /// Whole lines, without their ends. A last line that is not ended yet waits for the next look.
    pub lines: Vec<String>,
    /// Number of whole lines that are longer than [`LONGEST_LINE`], which `lines` lacks.
    pub too_long: usize,
}

/// A reader that goes on where it was: by the inode, by the length, and by the bytes before its place, so that a file that is replaced,
/// cut or written anew in place is read from its beginning.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    /// Device and inode of the file that `offset` counts in.
    file: Option<(u64, u64)>,
    offset: u64,
    /// The bytes that end at `offset`.
    anchor: Vec<u8>,
}

impl Tail {
    /// For the file at `path`, which need not be there yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), file: None, offset: 0, anchor: Vec::new() }
    }

    /// Reads what is new.
    ///
    /// # Errors
    ///
    /// What the system refused. A file that is not there is none: it brings no lines, and where it was there before, it is fresh.
    pub fn read(&mut self) -> io::Result<News> {
        // What cannot be read to its end has not been read.
        let mut next = Self { path: self.path.clone(), anchor: self.anchor.clone(), ..*self };
        let news = next.read_on()?;
        *self = next;
        Ok(news)
    }

    fn read_on(&mut self) -> io::Result<News> {
        let mut file = match segue_publish::open_regular(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let fresh = self.file.is_some();
                *self = Self::new(&self.path);
                return Ok(News { fresh, ..News::default() });
            }
            opened => opened?,
        };
        let metadata = file.metadata()?;
        let fresh = !self.goes_on(&file, &metadata)?;
        let was_there = self.file.replace((metadata.dev(), metadata.ino())).is_some();
        if fresh {
            (self.offset, self.anchor) = (0, Vec::new());
        }
        file.seek(SeekFrom::Start(self.offset))?;
        Ok(News { fresh: fresh && was_there, ..self.lines(BufReader::new(file))? })
    }

    /// Whether the open file still has what was read of it.
    fn goes_on(&self, file: &File, metadata: &Metadata) -> io::Result<bool> {
        if self.file != Some((metadata.dev(), metadata.ino())) || metadata.len() < self.offset {
            return Ok(false);
        }
        let mut before = vec![0; self.anchor.len()];
        match file.read_exact_at(&mut before, self.offset - self.anchor.len() as u64) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            read => read.map(|()| before == self.anchor),
        }
    }

    fn lines(&mut self, mut reader: impl BufRead) -> io::Result<News> {
        let mut news = News::default();
        let mut line = Vec::new();
        // Whether the line that is being read is longer than any that is kept, and how long it is by now.
        let (mut too_long, mut length) = (false, 0);
        let mut recent = self.anchor.clone();
        loop {
            line.clear();
            let read = (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line)? as u64;
            length += read;
            recent.extend_from_slice(&line[line.len().saturating_sub(ANCHOR)..]);
            recent.drain(..recent.len().saturating_sub(ANCHOR));
            if line.last() != Some(&b'\n') {
                if read < LONGEST_LINE {
                    return Ok(news);
                }
                too_long = true;
                continue;
            }
            self.offset += std::mem::take(&mut length);
            self.anchor.clone_from(&recent);
            line.pop();
            match std::mem::take(&mut too_long) {
                true => news.too_long += 1,
                false => news.lines.push(String::from_utf8_lossy(&line).into_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn append(path: &Path, text: &str) {
        File::options().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_line_counts_when_it_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let mut tail = Tail::new(&path);
        assert_eq!(tail.read().unwrap(), News::default());
        append(&path, "one\ntw");
        assert_eq!(tail.read().unwrap(), News { fresh: false, lines: vec!["one".into()], too_long: 0 });
        append(&path, "o\n");
        assert_eq!(tail.read().unwrap().lines, ["two"]);
        // Another file of the same length under the name.
        fs::write(dir.path().join("n"), "one\nTWO\n").unwrap();
        fs::rename(dir.path().join("n"), &path).unwrap();
        assert_eq!(
            tail.read().unwrap(),
            News { fresh: true, lines: vec!["one".into(), "TWO".into()], too_long: 0 }
        );
        // The same file, written anew and longer.
        fs::write(&path, "other\nand longer\n").unwrap();
        assert_eq!(
            tail.read().unwrap(),
            News { fresh: true, lines: vec!["other".into(), "and longer".into()], too_long: 0 }
        );
        fs::remove_file(&path).unwrap();
        assert_eq!(tail.read().unwrap(), News { fresh: true, lines: vec![], too_long: 0 });
        assert_eq!(tail.read().unwrap(), News::default());
    }

    #[test]
    fn a_line_without_end_costs_no_memory_and_the_next_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let mut tail = Tail::new(&path);
        append(&path, &format!("a\n{}\nb\n", "x".repeat(3 << 20)));
        let news = tail.read().unwrap();
        assert_eq!((news.lines, news.too_long), (vec!["a".into(), "b".into()], 1));
        append(&path, "c\n");
        let news = tail.read().unwrap();
        assert_eq!((news.lines, news.too_long), (vec!["c".into()], 0));
    }

    /// What a writer does between looks.
    #[derive(Debug, Clone)]
    enum Act {
        /// Adds so many lines, and so many bytes of one more.
        Append(usize, usize),
        /// Keeps so many lines, in a new file of that name.
        Replace(usize),
        /// Keeps so many lines of the file itself.
        Cut(usize),
        Remove,
        Look,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => (0usize..4, 0usize..9).prop_map(|(lines, torn)| Act::Append(lines, torn)),
            1 => (0usize..6).prop_map(Act::Replace),
            1 => (0usize..6).prop_map(Act::Cut),
            1 => Just(Act::Remove),
            4 => Just(Act::Look),
        ];
        proptest::collection::vec(act, 1..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Whatever was written, torn, replaced and cut: after a look what was read is the whole lines of the file.
        #[test]
        fn what_was_read_is_what_is_there(acts in acts()) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("m");
            let mut tail = Tail::new(&path);
            let (mut seen, mut number): (Vec<String>, u32) = (Vec::new(), 0);
            for act in acts.into_iter().chain([Act::Look]) {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let kept = |lines: usize| text.split_inclusive('\n').take(lines).collect::<String>();
                match act {
                    Act::Append(lines, torn) => {
                        let mut more = String::new();
                        for _ in 0..lines {
                            number += 1;
                            more += &format!("row {number}\n");
                        }
                        number += 1;
                        append(&path, &(more + &format!("row {number}")[..torn.min(5)]));
                    }
                    Act::Replace(lines) => {
                        fs::write(dir.path().join("n"), kept(lines)).unwrap();
                        fs::rename(dir.path().join("n"), &path).unwrap();
                    }
                    Act::Cut(lines) if path.exists() => {
                        File::options().write(true).open(&path).unwrap().set_len(kept(lines).len() as u64).unwrap();
                    }
                    Act::Cut(_) => {}
                    Act::Remove => _ = fs::remove_file(&path),
                    Act::Look => {
                        let news = tail.read().unwrap();
                        if news.fresh {
                            seen.clear();
                        }
                        seen.extend(news.lines);
                        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                        let there: Vec<&str> = whole.map(|line| line.trim_end_matches('\n')).collect();
                        prop_assert_eq!(&seen, &there);
                    }
                }
            }
        }
    }
}
