//! Durable files and folders.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::Value;

use crate::TrainError;

pub(crate) fn write_error(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError + '_ {
    move |source| TrainError::Write { path: path.into(), source }
}

pub(crate) fn read_error(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError + '_ {
    move |source| TrainError::Read { path: path.into(), source }
}

/// Writes a file and waits until it is on the disk.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(write_error(path))
}

/// Waits until a folder's entries are on the disk.
pub(crate) fn sync_folder(path: &Path) -> Result<(), TrainError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(write_error(path))
}

/// Points the link `name` in `folder` at `target`, in one step.
pub(super) fn swap_link(folder: &Path, name: &str, target: &str) -> Result<(), TrainError> {
    let (link, fresh) = (folder.join(name), folder.join(format!(".{name}.new")));
    let swap = || {
        if fresh.symlink_metadata().is_ok() {
            fs::remove_file(&fresh)?;
        }
        std::os::unix::fs::symlink(target, &fresh)?;
        fs::rename(&fresh, &link)
    };
    swap().map_err(write_error(&link))?;
    sync_folder(folder)
}

/// Writes `value` as indented JSON.
pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), TrainError> {
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    write_durably(path, text.as_bytes())
}
