use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use flate2::read::MultiGzDecoder;
use segue_columnar::{Format, TextLines};
use segue_data_error::{DataError, without_mark};
use serde::{Deserialize, Serialize};

use super::expand::expand;

/// The path that stands for standard input.
pub(crate) const STDIN: &str = "-";
/// How much of a compressed file is read at once.
const READ_BYTES: usize = 1 << 16;

/// How a file is packed, told by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
    /// Parquet or Arrow: its text is the JSON lines that its rows would be.
    Columnar,
}

/// One file of text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// What is opened.
    pub(crate) path: PathBuf,
    packing: Packing,
    /// Size of the file as it lies on disk.
    pub(crate) file_bytes: u64,
    /// Tells a changed file from an unchanged one: the time it was modified, or the hash of standard input.
    stamp: String,
    /// Of a file of records, where they have their text.
    pub(crate) text_column: Option<String>,
}

impl Source {
    fn of(path: &Path, metadata: &fs::Metadata, text_column: Option<&str>) -> Source {
        let packing = match path.extension().and_then(|e| e.to_str()) {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ if Format::of(path).is_some() => Packing::Columnar,
            _ => Packing::Plain,
        };
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let stamp = modified.map_or_else(String::new, |time| time.as_nanos().to_string());
        let text_column = text_column.map(str::to_owned);
        Source { path: path.into(), packing, file_bytes: metadata.len(), stamp, text_column }
    }

    /// Whether places in the file are others than in its text.
    pub(crate) fn is_packed(&self) -> bool {
        self.packing != Packing::Plain
    }

    /// Whether the file has columns, of which one is read.
    pub(crate) fn is_columnar(&self) -> bool {
        self.packing == Packing::Columnar
    }

    /// Opens the text at an offset (of the unpacked text). `read` is kept at the number of bytes of the file that have
    /// been read.
    pub(crate) fn open_at(
        &self,
        offset: u64,
        read: Arc<AtomicU64>,
    ) -> Result<Box<dyn Read + Send>, DataError> {
        let failed = |e| DataError::read(&self.path, e);
        if let (Packing::Columnar, Some(column)) = (self.packing, &self.text_column) {
            let lines = TextLines::open(&self.path, column, read)?;
            return self.skip(Box::new(lines), offset);
        }
        let mut file = File::open(&self.path).map_err(failed)?;
        read.store(0, Ordering::Relaxed);
        if self.packing == Packing::Plain {
            file.seek(SeekFrom::Start(offset)).map_err(failed)?;
            read.store(offset, Ordering::Relaxed);
            return Ok(Box::new(CountingReader { inner: file, read }));
        }
        let counted = BufReader::with_capacity(READ_BYTES, CountingReader { inner: file, read });
        let unpacked: Box<dyn Read + Send> = match self.packing {
            Packing::Gzip => Box::new(MultiGzDecoder::new(counted)),
            _ => Box::new(zstd::Decoder::with_buffer(counted).map_err(failed)?),
        };
        self.skip(unpacked, offset)
    }

    fn skip(&self, mut text: Box<dyn Read + Send>, offset: u64) -> Result<Box<dyn Read + Send>, DataError> {
        let skipped = io::copy(&mut text.by_ref().take(offset), &mut io::sink());
        skipped.map_err(|e| self.failed_at(0, e))?;
        Ok(text)
    }

    /// What is wrong with the line, or the row, in which an offset of the text lies.
    pub(crate) fn bad_line(&self, offset: u64, why: impl Into<String>) -> DataError {
        let line = match self.line_at(offset) {
            Ok(line) => line,
            // The file has gone since.
            Err(error) => return error,
        };
        match self.is_columnar() {
            true => DataError::record(&self.path, format!("row {line}"), why),
            false => DataError::line(&self.path, line, why),
        }
    }

    /// The number, from 1, of the line in which an offset lies.
    fn line_at(&self, offset: u64) -> Result<u64, DataError> {
        let text = self.open_at(0, Arc::default())?.take(offset);
        let mut text = BufReader::with_capacity(READ_BYTES, text);
        let mut line = 1;
        loop {
            let buffer = text.fill_buf().map_err(|e| self.failed_at(0, e))?;
            if buffer.is_empty() {
                return Ok(line);
            }
            line += memchr::memchr_iter(b'\n', buffer).count() as u64;
            let length = buffer.len();
            text.consume(length);
        }
    }

    /// Number of lines, of which the last may be empty.
    pub(crate) fn lines(&self) -> Result<u64, DataError> {
        self.line_at(u64::MAX)
    }

    /// Whether the file is known to hold nothing, or nothing but a byte-order mark.
    pub(crate) fn is_empty(&self) -> bool {
        /// Bytes of the largest file that is looked into: what is packed has some for itself.
        const LOOKED_INTO: u64 = 1 << 12;
        let mut begin = Vec::new();
        let read = |text: Box<dyn Read + Send>, begin: &mut Vec<u8>| text.take(4).read_to_end(begin).is_ok();
        let opened = (self.file_bytes <= LOOKED_INTO).then(|| self.open_at(0, Arc::default()).ok()).flatten();
        opened.is_some_and(|text| read(text, &mut begin)) && without_mark(&begin).is_empty()
    }

    /// A read that failed: damage in a compressed file is bad input, anything else the system's refusal. Readers of
    /// columns say themselves what is wrong.
    pub(crate) fn failed_at(&self, offset: u64, error: io::Error) -> DataError {
        use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
        let error = match error.downcast::<DataError>() {
            Ok(told) => return told,
            Err(error) => error,
        };
        match error.kind() {
            InvalidData | InvalidInput | Other | UnexpectedEof if self.is_packed() => DataError::BadInput {
                path: self.path.clone(),
                offset,
                why: format!("it cannot be decompressed, so it is damaged or truncated: {error}"),
            },
            _ => DataError::read(&self.path, error),
        }
    }
}

/// Opens a file of text, which `.gz` and `.zst` at the end of its name say to decompress.
pub fn open_text(path: &Path) -> Result<Box<dyn Read + Send>, DataError> {
    Files { extensions: &[], text_column: None }.file(path)?.open_at(0, Arc::default())
}

/// Counts what is read.
struct CountingReader<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let filled = self.inner.read(buffer)?;
        self.read.fetch_add(filled as u64, Ordering::Relaxed);
        Ok(filled)
    }
}

/// Which files are read, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'a> {
    /// Extensions of the files that are taken from folders; all files where empty.
    pub(crate) extensions: &'a [String],
    /// Where records have their text, if files are of records.
    pub(crate) text_column: Option<&'a str>,
}

impl Files<'_> {
    /// The files that a list of inputs stands for. Patterns and lists of names are resolved. Folders are walked in the
    /// order of their names; hidden entries are left out, and so are files that do not end in one of the extensions,
    /// where any are given. Links are followed, except back to a folder that they lie in.
    pub(crate) fn collect(&self, inputs: &[PathBuf]) -> Result<Vec<Source>, DataError> {
        let mut sources = Vec::new();
        for input in expand(inputs)? {
            let metadata = fs::metadata(&input).map_err(|e| DataError::read(&input, e))?;
            if !metadata.is_dir() {
                sources.push(self.source(&input, &metadata)?);
                continue;
            }
            let before = sources.len();
            self.walk(&input, &mut Vec::new(), &mut sources)?;
            if sources.len() == before {
                let filter = match self.extensions.is_empty() {
                    true => String::new(),
                    false => format!(" that end in .{}", self.extensions.join(" or .")),
                };
                return Err(DataError::EmptyInput {
                    why: format!("the folder {} holds no files{filter}", input.display()),
                });
            }
        }
        Ok(sources)
    }

    /// Copies standard input into a file, as it is read more than once.
    pub(crate) fn spool_stdin(&self, path: &Path) -> Result<Source, DataError> {
        let stamp = copy_stdin(path)?;
        let metadata = fs::metadata(path).map_err(|e| DataError::read(path, e))?;
        Ok(Source { stamp, ..Source::of(path, &metadata, self.text_column) })
    }

    /// One file that is there.
    pub(crate) fn file(&self, path: &Path) -> Result<Source, DataError> {
        let metadata = fs::metadata(path).map_err(|e| DataError::read(path, e))?;
        self.source(path, &metadata)
    }

    fn source(&self, path: &Path, metadata: &fs::Metadata) -> Result<Source, DataError> {
        let source = Source::of(path, metadata, self.text_column);
        match source.is_columnar() && self.text_column.is_none() {
            true => Err(DataError::Usage(format!(
                "{} holds columns, of which this preset reads none\nhint: pass --preset jsonl",
                path.display()
            ))),
            false => Ok(source),
        }
    }

    /// Adds the files of a folder. `above` are the folders that it lies in, by device and number.
    fn walk(
        &self,
        folder: &Path,
        above: &mut Vec<(u64, u64)>,
        sources: &mut Vec<Source>,
    ) -> Result<(), DataError> {
        let failed = |e| DataError::read(folder, e);
        let found = fs::metadata(folder).map_err(failed)?;
        let identity = (found.dev(), found.ino());
        if above.contains(&identity) {
            return Ok(());
        }
        above.push(identity);
        let mut entries =
            fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let metadata = fs::metadata(&path).map_err(|e| DataError::read(&path, e))?;
            if metadata.is_dir() {
                self.walk(&path, above, sources)?;
            } else if metadata.is_file() && has_extension(&path, self.extensions) {
                sources.push(self.source(&path, &metadata)?);
            }
        }
        above.pop();
        Ok(())
    }
}

/// Whether a file name ends in one of the extensions; that of a packing may follow it.
fn has_extension(path: &Path, extensions: &[String]) -> bool {
    let is_wanted = |path: &Path| {
        path.extension().is_some_and(|found| extensions.iter().any(|e| *e.trim_start_matches('.') == *found))
    };
    let packed = path.extension().is_some_and(|e| e == "gz" || e == "zst");
    extensions.is_empty() || is_wanted(path) || packed && is_wanted(&path.with_extension(""))
}

/// Writes standard input into a file, and returns its hash.
fn copy_stdin(path: &Path) -> Result<String, DataError> {
    let failed = |e| DataError::write(path, e);
    let mut file = io::BufWriter::new(File::create(path).map_err(failed)?);
    let mut hasher = blake3::Hasher::new();
    let mut input = io::stdin().lock();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let filled = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(filled) => filled,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(DataError::read(Path::new("standard input"), e)),
        };
        hasher.update(&buffer[..filled]);
        file.write_all(&buffer[..filled]).map_err(failed)?;
    }
    file.flush().map_err(failed)?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_walked_in_order_and_filtered() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/c")).unwrap();
        fs::create_dir_all(folder.path().join(".git")).unwrap();
        for name in ["z.rs", "b/a.md", "b/c/x.rs.gz", "b/c/y.toml", "a.txt", ".git/x.rs", ".hidden.rs"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let collect = |folder: PathBuf, extensions: &[&str]| {
            let extensions: Vec<String> = extensions.iter().map(|e| e.to_string()).collect();
            Files { extensions: &extensions, text_column: None }.collect(&[folder])
        };
        let names = |extensions: &[&str]| -> Vec<String> {
            let sources = collect(folder.path().into(), extensions).unwrap();
            let relative = |source: &Source| source.path.strip_prefix(folder.path()).unwrap().to_owned();
            sources.iter().map(|source| relative(source).to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(&[]), ["a.txt", "b/a.md", "b/c/x.rs.gz", "b/c/y.toml", "z.rs"]);
        assert_eq!(names(&["rs", ".md"]), ["b/a.md", "b/c/x.rs.gz", "z.rs"]);
        let error = collect(folder.path().into(), &["py"]).unwrap_err();
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().contains(".py"), "{error}");
        assert_eq!(collect(folder.path().join("none"), &[]).unwrap_err().exit_code(), 66);
    }

    #[test]
    fn links_to_folders_are_followed_but_not_in_a_circle() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("disk/shared")).unwrap();
        fs::create_dir_all(path("in/own")).unwrap();
        for name in ["disk/shared/a.txt", "in/own/b.txt", "in/z.txt"] {
            fs::write(path(name), name).unwrap();
        }
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(path(to), path(name)).unwrap();
        link("disk/shared", "in/1");
        link("disk/shared", "in/2");
        link("in", "in/own/up");
        link("in/own", "disk/shared/across");
        let sources = Files { extensions: &[], text_column: None }.collect(&[path("in")]).unwrap();
        let names: Vec<_> =
            sources.iter().map(|source| source.path.strip_prefix(path("in")).unwrap()).collect();
        let expected =
            ["1/a.txt", "1/across/b.txt", "2/a.txt", "2/across/b.txt", "own/b.txt", "z.txt"].map(Path::new);
        assert_eq!(names, expected);
    }
}
