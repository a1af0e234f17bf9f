use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_publish::rename_durably;
use segue_tokenizer::FileInfo;
use serde::{Deserialize, Serialize};

use super::header::{HEADER_BYTES, ShardHeader};
use super::index::{BLOCK_BYTES, INDEX_HEADER_BYTES, IndexHeader};
use crate::corpus::{Dtype, ShardInfo};

/// Level of shards that are compressed at rest: token ids gain little from higher ones.
const ZSTD_LEVEL: i32 = 3;
/// How much of a file is held in memory while it is hashed or compressed.
const COPY_BYTES: usize = 1 << 18;

/// A shard that is whole on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinishedShard {
    pub(crate) file: FileInfo,
    pub(crate) index: FileInfo,
    pub(crate) compressed: bool,
    pub(crate) tokens: u64,
    pub(crate) documents: u64,
    pub(crate) sentences: u64,
    pub(crate) payload_blake3: String,
}

impl From<FinishedShard> for ShardInfo {
    fn from(shard: FinishedShard) -> ShardInfo {
        ShardInfo {
            file: shard.file,
            index: shard.index,
            compressed: shard.compressed,
            tokens: shard.tokens,
            documents: shard.documents,
            sentences: shard.sentences,
            payload_blake3: shard.payload_blake3,
        }
    }
}

/// Writes one shard and its index, holding no more than a few buffers in memory. Everything goes to files ending
/// in `.tmp`; [`ShardWriter::finish`] syncs them and renames them in place, so that a shard with its
/// final name is always whole.
pub(crate) struct ShardWriter {
    /// Path of the shard without its extension.
    stem: PathBuf,
    dtype: Dtype,
    payload: BufWriter<File>,
    documents: OffsetList,
    sentences: OffsetList,
    payload_hasher: blake3::Hasher,
    block_hasher: blake3::Hasher,
    block_fill: usize,
    block_hashes: Vec<[u8; 32]>,
    tokens: u64,
}

impl ShardWriter {
    /// Starts the shard `stem`.bin with its index `stem`.idx; leftovers of an interrupted try are overwritten.
    pub(crate) fn create(stem: PathBuf, dtype: Dtype) -> Result<ShardWriter, DataError> {
        let payload_path = temporary(&stem, "bin");
        let mut payload = BufWriter::with_capacity(COPY_BYTES, create(&payload_path)?);
        payload.write_all(&[0; HEADER_BYTES]).map_err(|e| DataError::write(&payload_path, e))?;
        Ok(ShardWriter {
            documents: OffsetList::create(temporary(&stem, "documents"))?,
            sentences: OffsetList::create(temporary(&stem, "sentences"))?,
            stem,
            dtype,
            payload,
            payload_hasher: blake3::Hasher::new(),
            block_hasher: blake3::Hasher::new(),
            block_fill: 0,
            block_hashes: Vec::new(),
            tokens: 0,
        })
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Appends packed token ids, and the beginnings of documents and sentences counted from the first of them.
    pub(crate) fn append(
        &mut self,
        payload: &[u8],
        documents: &[u32],
        sentences: &[u32],
    ) -> Result<(), DataError> {
        self.documents.append(self.tokens, documents)?;
        self.sentences.append(self.tokens, sentences)?;
        self.payload.write_all(payload).map_err(|e| DataError::write(&temporary(&self.stem, "bin"), e))?;
        self.payload_hasher.update(payload);
        let mut rest = payload;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - self.block_fill));
            self.block_hasher.update(now);
            self.block_fill += now.len();
            rest = later;
            if self.block_fill == BLOCK_BYTES {
                self.close_block();
            }
        }
        self.tokens += (payload.len() / self.dtype.bytes()) as u64;
        Ok(())
    }

    fn close_block(&mut self) {
        self.block_hashes.push(*self.block_hasher.finalize().as_bytes());
        self.block_hasher.reset();
        self.block_fill = 0;
    }

    /// Removes what was written; nothing is published.
    pub(crate) fn discard(self) -> Result<(), DataError> {
        for path in [&temporary(&self.stem, "bin"), &self.documents.path, &self.sentences.path] {
            fs::remove_file(path).map_err(|e| DataError::write(path, e))?;
        }
        Ok(())
    }

    /// Publishes the shard and its index.
    pub(crate) fn finish(mut self, compress: bool) -> Result<FinishedShard, DataError> {
        if self.block_fill > 0 {
            self.close_block();
        }
        let payload_hash = *self.payload_hasher.finalize().as_bytes();
        let header = ShardHeader { dtype: self.dtype, count: self.tokens, payload_hash };
        let raw_path = temporary(&self.stem, "bin");
        let raw_file = self.payload.into_inner().map_err(|e| DataError::write(&raw_path, e.into_error()))?;
        overwrite_start(&raw_file, &header.to_bytes()).map_err(|e| DataError::write(&raw_path, e))?;

        let (documents, sentences) = (self.documents.count, self.sentences.count);
        let index =
            write_index(&self.stem, payload_hash, &self.block_hashes, self.documents, self.sentences)?;
        let file = if compress {
            drop(raw_file);
            let target = self.stem.with_extension("bin.zst");
            compress_file(&raw_path, &temporary(&self.stem, "bin.zst"), &target)?;
            fs::remove_file(&raw_path).map_err(|e| DataError::write(&raw_path, e))?;
            FileInfo::of(&target)?
        } else {
            let target = self.stem.with_extension("bin");
            rename_durably(&raw_file, &raw_path, &target)?;
            FileInfo::of(&target)?
        };
        Ok(FinishedShard {
            file,
            index,
            compressed: compress,
            tokens: self.tokens,
            documents,
            sentences,
            payload_blake3: blake3::Hash::from_bytes(payload_hash).to_hex().to_string(),
        })
    }
}

/// Offsets on their way to an index, kept in a file so that their number costs no memory.
struct OffsetList {
    path: PathBuf,
    file: BufWriter<File>,
    count: u64,
}

impl OffsetList {
    fn create(path: PathBuf) -> Result<OffsetList, DataError> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(|e| DataError::write(&path, e))?;
        Ok(OffsetList { path, file: BufWriter::new(file), count: 0 })
    }

    fn append(&mut self, base: u64, offsets: &[u32]) -> Result<(), DataError> {
        self.count += offsets.len() as u64;
        for offset in offsets {
            let bytes = (base + *offset as u64).to_le_bytes();
            self.file.write_all(&bytes).map_err(|e| DataError::write(&self.path, e))?;
        }
        Ok(())
    }

    /// Copies everything into the index and removes the list.
    fn move_into(self, sink: &mut impl Write) -> Result<(), DataError> {
        let path = self.path;
        let copy = || -> io::Result<()> {
            let mut file = self.file.into_inner().map_err(|e| e.into_error())?;
            file.seek(SeekFrom::Start(0))?;
            io::copy(&mut BufReader::with_capacity(COPY_BYTES, file), sink)?;
            fs::remove_file(&path)
        };
        copy().map_err(|e| DataError::write(&path, e))
    }
}

/// Passes bytes on and hashes them.
struct HashingWriter<W> {
    inner: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn write_index(
    stem: &Path,
    payload_hash: [u8; 32],
    block_hashes: &[[u8; 32]],
    documents: OffsetList,
    sentences: OffsetList,
) -> Result<FileInfo, DataError> {
    let (path, target) = (temporary(stem, "idx"), stem.with_extension("idx"));
    let mut header = IndexHeader {
        blocks: block_hashes.len() as u64,
        documents: documents.count,
        sentences: sentences.count,
        payload_hash,
        body_hash: [0; 32],
    };
    let mut file = create(&path)?;
    let failed = |e| DataError::write(&path, e);
    file.write_all(&[0; INDEX_HEADER_BYTES]).map_err(failed)?;
    let inner = BufWriter::with_capacity(COPY_BYTES, file);
    let mut body = HashingWriter { inner, hasher: blake3::Hasher::new() };
    for hash in block_hashes {
        body.write_all(hash).map_err(failed)?;
    }
    documents.move_into(&mut body)?;
    sentences.move_into(&mut body)?;
    header.body_hash = *body.hasher.finalize().as_bytes();
    let file = body.inner.into_inner().map_err(|e| failed(e.into_error()))?;
    overwrite_start(&file, &header.to_bytes()).map_err(failed)?;
    rename_durably(&file, &path, &target)?;
    FileInfo::of(&target)
}

fn compress_file(source: &Path, path: &Path, target: &Path) -> Result<(), DataError> {
    let mut input = File::open(source).map_err(|e| DataError::read(source, e))?;
    let mut compress = || -> io::Result<File> {
        let mut encoder = zstd::Encoder::new(BufWriter::new(File::create(path)?), ZSTD_LEVEL)?;
        encoder.include_checksum(true)?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            match input.read(&mut buffer)? {
                0 => break,
                filled => encoder.write_all(&buffer[..filled])?,
            }
        }
        encoder.finish()?.into_inner().map_err(|e| e.into_error())
    };
    let file = compress().map_err(|e| DataError::write(path, e))?;
    Ok(rename_durably(&file, path, target)?)
}

fn overwrite_start(mut file: &File, header: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(header)
}

fn create(path: &Path) -> Result<File, DataError> {
    File::create(path).map_err(|e| DataError::write(path, e))
}

/// `stem.extension.tmp`
fn temporary(stem: &Path, extension: &str) -> PathBuf {
    stem.with_extension(format!("{extension}.tmp"))
}
