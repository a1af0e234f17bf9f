use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{read_error, write_bytes};
use crate::TrainError;

/// Name of the manifest in a checkpoint folder. It is written last: a folder without it is not whole.
pub const MANIFEST: &str = "MANIFEST.json";
/// Version of the layout this program writes.
const VERSION: u32 = 1;

/// Size and hash of every file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout.
    pub version: u32,
    /// By file name.
    pub files: BTreeMap<String, FileRecord>,
}

/// What a manifest says of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Length in bytes.
    pub bytes: u64,
    /// BLAKE3 of the contents, hexadecimal.
    pub blake3: String,
}

impl Manifest {
    /// Hashes every file of `folder` and writes the manifest.
    pub(crate) fn write(folder: &Path) -> Result<(), TrainError> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(read_error(folder))? {
            let entry = entry.map_err(read_error(folder))?;
            files.insert(entry.file_name().to_string_lossy().into_owned(), record(&entry.path())?);
        }
        let text = serde_json::to_string_pretty(&Manifest { version: VERSION, files }).unwrap_or_default();
        write_bytes(&folder.join(MANIFEST), text.as_bytes())
    }

    /// Reads the manifest of `folder` and checks every file against it.
    pub fn verify(folder: &Path) -> Result<Manifest, TrainError> {
        let path = folder.join(MANIFEST);
        let text = fs::read(&path).map_err(read_error(&path))?;
        let damaged = |path: &Path, what: String| TrainError::Damaged { path: path.into(), what };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| damaged(&path, e.to_string()))?;
        if manifest.version != VERSION {
            let what = format!("layout version {}, this program reads {VERSION}", manifest.version);
            return Err(damaged(&path, what));
        }
        for (name, expected) in &manifest.files {
            if name.contains('/') || name == ".." {
                return Err(damaged(&path, format!("file name {name:?} leaves the folder")));
            }
            let file = folder.join(name);
            let bytes = fs::metadata(&file).map_err(read_error(&file))?.len();
            if bytes != expected.bytes {
                return Err(damaged(&file, format!("{bytes} bytes instead of {}", expected.bytes)));
            }
            let found = record(&file)?;
            if found != *expected {
                return Err(damaged(
                    &file,
                    format!("BLAKE3 is {} instead of {}", found.blake3, expected.blake3),
                ));
            }
        }
        Ok(manifest)
    }
}

fn record(path: &Path) -> Result<FileRecord, TrainError> {
    let mut hasher = blake3::Hasher::new();
    let file = fs::File::open(path).map_err(read_error(path))?;
    hasher.update_reader(file).map_err(read_error(path))?;
    Ok(FileRecord { bytes: hasher.count(), blake3: hasher.finalize().to_hex().to_string() })
}
