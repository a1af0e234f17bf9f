//! Files of a folder that is being filled: the publication of the folder flushes them.

use std::fs;
use std::path::Path;

use segue_kernels::TrainError;
use serde_json::Value;

/// The error of a file or folder that cannot be written.
pub fn write_error(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError + '_ {
    move |source| TrainError::Write { path: path.into(), source }
}

/// The error of a file or folder that cannot be read.
pub fn read_error(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError + '_ {
    move |source| TrainError::Read { path: path.into(), source }
}

/// Writes a file.
pub(super) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    fs::write(path, bytes).map_err(write_error(path))
}

/// Writes `value` as indented JSON.
pub fn write_json(path: &Path, value: &Value) -> Result<(), TrainError> {
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    write_bytes(path, text.as_bytes())
}
