use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{Fields, Schema};
use segue_data_error::DataError;

use super::column::{describe, find, is_text, text_of_row};
use super::contents::Contents;
use super::damage::invalid;
use super::file::{ColumnarFile, Format};
use super::json::{has_form, write_row};

/// Lines that are made at once, in bytes.
const LINES_BYTES: usize = 1 << 16;
/// Bytes of lines that a table of any size may have, and those for each byte of its file: a few bytes can promise rows
/// without end, all alike.
const TABLE_BYTES: u64 = 64 << 20;
const TABLE_BYTES_PER_BYTE: u64 = 1000;

/// A column of text as JSON lines that hold nothing else: `{"text":"…"}`, and `{"meta":{"body":"…"}}` of the column
/// `body` in the struct `meta`. In memory is one batch of the file: of Parquet about a mebibyte and a page, of Arrow what
/// its writer has put together.
pub struct TextLines {
    path: PathBuf,
    file: ColumnarFile,
    size: u64,
    /// The names that lead to the column.
    column: Vec<String>,
    /// What stands around the text in its line.
    before: Vec<u8>,
    after: Vec<u8>,
    batch: RecordBatch,
    /// Rows of the batch that are lines already.
    row: usize,
    /// Rows before the batch.
    rows_before: u64,
    lines: Vec<u8>,
    /// Bytes of `lines` that have been read.
    at: usize,
    read: Arc<AtomicU64>,
}

impl TextLines {
    /// Opens a file of the format that its name says. `column` is a column's name; a dot goes into a struct. `read` is
    /// kept at the number of bytes of the file that have been read.
    ///
    /// # Errors
    ///
    /// [`DataError::Missing`] and [`DataError::Read`] as of any file; [`DataError::BadForeign`] where it is damaged or has
    /// no such column of text. Reading ends with these in an [`io::Error`], or with [`DataError::BadRecord`] at a null.
    pub fn open(path: &Path, column: &str, read: Arc<AtomicU64>) -> Result<TextLines, DataError> {
        let failed = |e| failure(path, e);
        let format = Format::of(path).unwrap_or(Format::Parquet);
        let opened = segue_publish::open_regular(path)
            .and_then(Contents::of_file)
            .map_err(|e| DataError::read(path, e))?;
        let mut file = ColumnarFile::open(&opened, format).map_err(failed)?;
        let found = text_column(file.fields(), column).map_err(|why| DataError::foreign(path, why))?;
        file.select(std::slice::from_ref(&found)).map_err(failed)?;
        let (before, after) = around(&found).map_err(failed)?;
        Ok(TextLines {
            path: path.into(),
            file,
            size: opened.size(),
            column: found,
            before,
            after,
            batch: RecordBatch::new_empty(Arc::new(Schema::empty())),
            row: 0,
            rows_before: 0,
            lines: Vec::with_capacity(LINES_BYTES),
            at: 0,
            read,
        })
    }

    /// Makes the next lines; none at the end of the file.
    fn fill(&mut self) -> Result<(), DataError> {
        self.lines.clear();
        self.at = 0;
        while self.lines.len() < LINES_BYTES {
            if self.row == self.batch.num_rows() && !self.next_batch()? {
                return Ok(());
            }
            while self.row < self.batch.num_rows() && self.lines.len() < LINES_BYTES {
                self.add_line()?;
            }
        }
        Ok(())
    }

    fn next_batch(&mut self) -> Result<bool, DataError> {
        let next = self.file.next_batch().map_err(|e| failure(&self.path, e))?;
        let read = if next.is_some() { self.file.bytes_read() } else { self.size };
        self.read.store(read, Ordering::Relaxed);
        let Some(next) = next else { return Ok(false) };
        self.rows_before += self.batch.num_rows() as u64;
        (self.batch, self.row) = (next, 0);
        Ok(true)
    }

    fn add_line(&mut self) -> Result<(), DataError> {
        let text = text_of_row(&self.batch, &self.column, self.row).ok_or_else(|| {
            let row = format!("row {}", self.rows_before + self.row as u64 + 1);
            DataError::record(&self.path, row, format!("`{}` is null", self.column.join(".")))
        })?;
        self.lines.extend_from_slice(&self.before);
        serde_json::to_writer(&mut self.lines, text).map_err(|e| failure(&self.path, e.into()))?;
        self.lines.extend_from_slice(&self.after);
        self.row += 1;
        Ok(())
    }
}

impl Read for TextLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.lines.len() {
            self.fill().map_err(io::Error::other)?;
        }
        let filled = (&self.lines[self.at..]).read(buffer)?;
        self.at += filled;
        Ok(filled)
    }
}

/// All rows of a Parquet or Arrow file, whose name says which and whose bytes are given, as JSON lines of all columns of
/// texts, numbers, booleans, and lists and structs of these. Other columns are left out.
///
/// # Errors
///
/// [`DataError::BadForeign`] where the file is damaged, no column is of these types, or the lines take more than 64 MiB
/// and a thousand times the file's size.
pub fn table_lines(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, DataError> {
    let format = Format::of(path).unwrap_or(Format::Parquet);
    objects(&Contents::Memory(bytes.into()), format).map_err(|e| failure(path, e))
}

fn objects(contents: &Contents, format: Format) -> io::Result<Vec<u8>> {
    let mut file = ColumnarFile::open(contents, format)?;
    let wanted = file.fields().iter().filter(|field| has_form(field.data_type()));
    let paths: Vec<Vec<String>> = wanted.map(|field| vec![field.name().clone()]).collect();
    if paths.is_empty() {
        let columns = describe(file.fields());
        return Err(invalid(format!("it has no column of texts, numbers or booleans; there are {columns}")));
    }
    file.select(&paths)?;
    let most = TABLE_BYTES.saturating_add(contents.size().saturating_mul(TABLE_BYTES_PER_BYTE));
    let mut lines = Vec::new();
    while let Some(batch) = file.next_batch()? {
        for row in 0..batch.num_rows() {
            write_row(&batch, row, &mut lines)?;
            lines.push(b'\n');
            if lines.len() as u64 > most {
                return Err(invalid(format!("its rows take more than {most} bytes")));
            }
        }
    }
    Ok(lines)
}

/// The path to the column of text that a name means.
fn text_column(fields: &Fields, name: &str) -> Result<Vec<String>, String> {
    let columns =
        || format!("; there are {}\nhint: choose a column of text with --text-column", describe(fields));
    match find(fields, name) {
        Some((path, data_type)) if is_text(data_type) => Ok(path),
        Some((_, data_type)) => Err(format!("its column `{name}` holds {data_type}, not text{}", columns())),
        None => Err(format!("it has no column `{name}`{}", columns())),
    }
}

/// What stands before and after the text of a column in its line.
fn around(column: &[String]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for name in column {
        before.push(b'{');
        serde_json::to_writer(&mut before, name)?;
        before.push(b':');
        after.push(b'}');
    }
    after.push(b'\n');
    Ok((before, after))
}

/// A read that failed: the system's refusal, or what is wrong with the file.
fn failure(path: &Path, error: io::Error) -> DataError {
    match error.raw_os_error() {
        Some(_) => DataError::read(path, error),
        None => DataError::foreign(path, error.to_string()),
    }
}
