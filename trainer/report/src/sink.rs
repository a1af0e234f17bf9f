//! Where rows of `metrics.jsonl` go besides, for people who keep their runs with other programs.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use segue_kernels::TrainError;

/// A row of `metrics.jsonl` as its numbers.
#[derive(Debug, Clone, Copy)]
pub struct MetricRow<'a> {
    /// `train` or `eval`.
    pub kind: &'a str,
    /// After this step.
    pub step: u64,
    /// In this attempt.
    pub attempt: u64,
    /// When, in seconds since 1970.
    pub time: f64,
    /// Names and values.
    pub values: &'a [(String, f64)],
}

/// What rows are written to. Opened for a run that goes on after a step, it takes rows past it back, as `metrics.jsonl` does.
pub trait Sink {
    /// Adds a row.
    ///
    /// # Errors
    ///
    /// A file that cannot be written.
    fn row(&mut self, row: &MetricRow) -> Result<(), TrainError>;

    /// Says that all steps of the run are made.
    ///
    /// # Errors
    ///
    /// A file that cannot be written.
    fn done(&mut self) -> Result<(), TrainError> {
        Ok(())
    }
}

/// The last steps that a run which goes on has made and has been evaluated at: rows past them are made again.
#[derive(Debug, Clone, Copy)]
pub struct GoesOn {
    /// The last step.
    pub step: u64,
    /// The last that was evaluated.
    pub evaluated: u64,
}

impl GoesOn {
    /// The last step that rows of this kind keep.
    pub fn last(self, kind: &str) -> u64 {
        if kind == "eval" { self.evaluated } else { self.step }
    }
}

/// Keeps the lines of the file at `path` that `stays`, whose last line may be torn and is none then. A file that loses none is left alone.
pub(super) fn keep_lines(path: &Path, stays: impl Fn(&str) -> bool) -> Result<(), TrainError> {
    let read_error = |source| TrainError::Read { path: path.into(), source };
    let mut reader = match segue_publish::open_regular(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => BufReader::new(opened.map_err(read_error)?),
    };
    let (mut kept, mut line, mut lost) = (String::new(), Vec::new(), false);
    while reader.read_until(b'\n', &mut line).map_err(read_error)? > 0 {
        match std::str::from_utf8(&line) {
            Ok(text) if text.ends_with('\n') && stays(text.trim_end()) => kept.push_str(text),
            _ => lost = true,
        }
        line.clear();
    }
    match lost {
        true => segue_publish::write_file(path, kept.as_bytes())
            .map_err(|error| TrainError::Write { path: path.into(), source: error.source }),
        false => Ok(()),
    }
}

/// Opens the file `name` in the folder `root` to append to it, and makes the folders that it lies in where they are not there. Of all of these
/// `root` alone may be a link.
pub(super) fn open_to_append(root: &Path, name: impl AsRef<Path>) -> Result<File, TrainError> {
    let (path, folder) = (root.join(&name), name.as_ref().parent().unwrap_or(Path::new("")));
    let open = || {
        segue_publish::make_own_folders(root, folder)?;
        segue_publish::append_regular(&path)
    };
    open().map_err(|source| TrainError::Write { path: path.clone(), source })
}
