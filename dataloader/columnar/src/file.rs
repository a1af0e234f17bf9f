use std::cell::Cell;
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use arrow_array::RecordBatch;
use arrow_schema::Fields;

use super::contents::Contents;
use super::damage::invalid;
use super::messages::Messages;
use super::row_groups::RowGroups;

/// Formats of columns, told by a file's extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet: `.parquet`.
    Parquet,
    /// Apache Arrow's files and streams: `.arrow` and `.feather`.
    Arrow,
}

impl Format {
    /// The format that a file's name says it has, if it is one of these.
    pub fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "parquet" => Some(Format::Parquet),
            "arrow" | "feather" => Some(Format::Arrow),
            _ => None,
        }
    }
}

/// A file of columns, read from its first row to its last.
pub(crate) enum ColumnarFile {
    Parquet(Box<RowGroups>),
    Arrow(Box<Messages>),
}

impl ColumnarFile {
    pub(crate) fn open(contents: &Contents, format: Format) -> io::Result<ColumnarFile> {
        guarded(|| match format {
            Format::Parquet => Ok(ColumnarFile::Parquet(Box::new(RowGroups::open(contents)?))),
            Format::Arrow => Ok(ColumnarFile::Arrow(Box::new(Messages::open(contents)?))),
        })
    }

    pub(crate) fn fields(&self) -> &Fields {
        match self {
            ColumnarFile::Parquet(file) => file.schema().fields(),
            ColumnarFile::Arrow(file) => file.schema().fields(),
        }
    }

    /// Leaves out all columns but those that the paths lead to, as far as the format can.
    pub(crate) fn select(&mut self, paths: &[Vec<String>]) -> io::Result<()> {
        match self {
            ColumnarFile::Parquet(file) => guarded(|| file.select(paths)),
            ColumnarFile::Arrow(file) => {
                file.select(paths);
                Ok(())
            }
        }
    }

    /// The next rows, or `None` at the end.
    pub(crate) fn next_batch(&mut self) -> io::Result<Option<RecordBatch>> {
        guarded(|| match self {
            ColumnarFile::Parquet(file) => file.next_batch(),
            ColumnarFile::Arrow(file) => file.next_batch(),
        })
    }

    /// Bytes of the file that have been read.
    pub(crate) fn bytes_read(&self) -> u64 {
        match self {
            ColumnarFile::Parquet(file) => file.bytes_read(),
            ColumnarFile::Arrow(file) => file.bytes_read(),
        }
    }
}

thread_local! {
    /// Whether this thread is inside [`guarded`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls into the crates, which assert some of what a file promises: a bad file must neither take the process down nor
/// print anything. The hook that is there, which may end a whole job, goes on hearing of all other panics.
fn guarded<T>(read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                others(info);
            }
        }));
    });
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(false);
    result.unwrap_or_else(|_| Err(invalid("it is damaged: it contradicts itself")))
}
