use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_publish::FreshFile;

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
/// named by the payload's hash, checked before it gets that name, and shared by all corpora and processes.
pub(crate) fn unpack(
    stored: &Path,
    shard: &ShardInfo,
    dtype: Dtype,
    cache: &Path,
) -> Result<PathBuf, DataError> {
    let folder = cache.join("shards");
    let target = folder.join(format!("{}-{}.bin", shard.payload_blake3, dtype.bytes()));
    let expected = HEADER_BYTES as u64 + shard.tokens * dtype.bytes() as u64;
    if fs::metadata(&target).is_ok_and(|found| found.len() == expected) {
        return Ok(target);
    }
    fs::create_dir_all(&folder).map_err(|e| DataError::folder(&folder, e))?;
    tracing::info!(shard = %stored.display(), bytes = expected, "decompressing a shard");
    let input = File::open(stored).map_err(|e| missing_part(stored, e))?;
    let mut input = zstd::Decoder::new(input).map_err(|e| DataError::read(stored, e))?;
    let failed = |e: io::Error| DataError::write(&folder, e);
    let mut output = FreshFile::create(&target).map_err(|e| failed(e.source))?;
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
    output.publish().map_err(|e| failed(e.source))?;
    Ok(target)
}
