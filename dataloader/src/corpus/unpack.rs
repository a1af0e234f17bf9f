use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_publish::{FreshFile, open_lock};

use super::info::{Dtype, ShardInfo};
use crate::shard::{HEADER_BYTES, missing_part};

/// How much of a shard is held in memory while it is unpacked.
const COPY_BYTES: usize = 1 << 18;

/// The user's cache folder: `SEGUE_CACHE`, else `segue` in `XDG_CACHE_HOME` or `~/.cache`, else in the
/// system's temporary folder.
pub(crate) fn default_cache() -> PathBuf {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("SEGUE_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("segue")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/segue")))
        .unwrap_or_else(|| env::temp_dir().join("segue-cache"))
}

/// Unpacks a compressed shard into the cache unless it is there already, and returns its path. The cached file is
/// named by the payload's hash, checked before it gets that name, and shared by all corpora and processes: the ranks of a
/// host unpack it once, under a lock.
pub(crate) fn unpack(
    stored: &Path,
    shard: &ShardInfo,
    dtype: Dtype,
    cache: &Path,
) -> Result<PathBuf, DataError> {
    let folder = cache.join("shards");
    let name = format!("{}-{}", shard.payload_blake3, dtype.bytes());
    let target = folder.join(format!("{name}.bin"));
    let expected = shard.tokens.checked_mul(dtype.bytes() as u64);
    let expected = expected.and_then(|payload| payload.checked_add(HEADER_BYTES as u64));
    let expected = expected
        .filter(|bytes| *bytes < u64::MAX)
        .ok_or_else(|| DataError::shard(stored, format!("corpus.json gives it {} tokens", shard.tokens)))?;
    let is_there =
        || fs::symlink_metadata(&target).is_ok_and(|found| found.is_file() && found.len() == expected);
    // Before anything in it is believed.
    make_own_folder(&folder)?;
    if is_there() {
        return Ok(target);
    }
    let _lock = lock(&folder.join(format!("{name}.lock")))?;
    if !is_there() {
        unpack_to(&target, expected, stored, shard)?;
    }
    Ok(target)
}

/// Makes the folder where it is missing. Refuses one that another user could put files in: a job would train on them.
fn make_own_folder(folder: &Path) -> Result<(), DataError> {
    let unfit = |why: String| DataError::Output { path: folder.into(), why };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let found = made.and_then(|()| fs::metadata(folder));
    let found = found.map_err(|e| DataError::folder(folder, e))?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        let why = "it belongs to another user, and shards are to be unpacked there";
        return Err(unfit(format!("{why}\nhint: set SEGUE_CACHE to a folder of your own")));
    }
    if found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let why = "other users can write to it, and shards are to be unpacked there";
    Err(unfit(format!("{why}\nhint: `chmod go-w` it, or set SEGUE_CACHE to a folder of your own")))
}

/// Waits until no other process of this host unpacks the same shard. The file stays: to remove it would let two in.
fn lock(path: &Path) -> Result<File, DataError> {
    let failed = |e| DataError::write(path, e);
    let file = open_lock(path).map_err(failed)?;
    // On a file system without locks each process unpacks for itself, and the last one's file stays.
    _ = file.lock();
    Ok(file)
}

/// Unpacks `stored` to `target`, which will have `expected` bytes.
fn unpack_to(target: &Path, expected: u64, stored: &Path, shard: &ShardInfo) -> Result<(), DataError> {
    tracing::info!(shard = %stored.display(), bytes = expected, "decompressing a shard");
    let input = segue_publish::open_regular(stored).map_err(|e| missing_part(stored, e))?;
    let mut input = zstd::Decoder::new(input).map_err(|e| DataError::read(stored, e))?;
    let failed = |e: io::Error| DataError::write(target, e);
    let mut output = FreshFile::create(target).map_err(|e| failed(e.source))?;
    // The text of a corpus may be private, and the cache may lie in a folder of all users.
    output.file().set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
    let mut hasher = blake3::Hasher::new();
    let mut written = 0u64;
    let mut buffer = vec![0; COPY_BYTES];
    let mut bounded = BufReader::with_capacity(COPY_BYTES, (&mut input).take(expected + 1));
    loop {
        let filled = bounded
            .read(&mut buffer)
            .map_err(|e| DataError::shard(stored, format!("it cannot be decompressed: {e}")))?;
        if filled == 0 {
            break;
        }
        output.write_all(&buffer[..filled]).map_err(failed)?;
        // The header is read and checked when the shard is mapped; the hash is the payload's.
        let header_left = (HEADER_BYTES as u64).saturating_sub(written).min(filled as u64) as usize;
        hasher.update(&buffer[header_left..filled]);
        written += filled as u64;
    }
    if written != expected {
        let why = format!("it decompresses to {written} bytes or more, expected {expected}");
        return Err(DataError::shard(stored, why));
    }
    if hasher.finalize().to_hex().as_str() != shard.payload_blake3 {
        return Err(DataError::shard(stored, "its decompressed content does not match the payload's hash"));
    }
    output.publish().map_err(|e| failed(e.source))
}
