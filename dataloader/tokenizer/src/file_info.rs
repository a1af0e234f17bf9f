use std::fs;
use std::path::Path;

use segue_data_error::DataError;
use serde::{Deserialize, Serialize};

/// A file of a tokenizer or a corpus as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Name inside its folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 of the content, in hexadecimal.
    pub blake3: String,
}

impl FileInfo {
    /// Describes a file on disk.
    pub fn of(path: &Path) -> Result<FileInfo, DataError> {
        let bytes = fs::metadata(path).map_err(|e| DataError::read(path, e))?.len();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(FileInfo { name, bytes, blake3: hash_of(path)?.to_hex().to_string() })
    }
}

/// BLAKE3 of a file, read through a small buffer.
fn hash_of(path: &Path) -> Result<blake3::Hash, DataError> {
    let failed = |e| DataError::read(path, e);
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(segue_publish::open_regular(path).map_err(failed)?).map_err(failed)?;
    Ok(hasher.finalize())
}
