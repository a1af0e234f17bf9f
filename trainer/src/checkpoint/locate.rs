//! Where a model lies.

use std::path::{Path, PathBuf};

use super::manifest::{MANIFEST, Manifest};
use super::publish::find;
use crate::TrainError;

/// The folder with the weights of `path`: the newest checkpoint that verifies of a run, a checkpoint, or a folder with
/// `config.json`. With it, what was wrong with newer checkpoints.
pub fn locate(path: &Path) -> Result<(PathBuf, Vec<String>), TrainError> {
    for folder in [path.join("checkpoints"), path.to_path_buf()] {
        if folder.is_dir()
            && let Some(found) = find(&folder)?
        {
            return Ok(found);
        }
    }
    if path.join(MANIFEST).exists() {
        Manifest::verify(path)?;
        return Ok((path.into(), Vec::new()));
    }
    if path.join("config.json").is_file() && !path.join("checkpoints").is_dir() {
        return Ok((path.into(), Vec::new()));
    }
    let what = "it is neither a run with checkpoints, nor a checkpoint, nor a folder with config.json";
    Err(TrainError::NoCheckpoint { path: path.into(), what: what.into() })
}
