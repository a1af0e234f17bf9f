//! Where a model lies.

use std::path::{Path, PathBuf};

use super::manifest::{MANIFEST, Manifest};
use super::publish::find;
use crate::TrainError;

/// Folder of the best model, in the folder of a run that keeps it.
pub const BEST: &str = "best";
/// The folder of a run's checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";

/// The folder with the weights of `path`: the best model of a run, where it keeps one, else its newest checkpoint that
/// verifies; a checkpoint; or a folder with `config.json`. With it, what was wrong with newer checkpoints.
pub fn locate(path: &Path) -> Result<(PathBuf, Vec<String>), TrainError> {
    let best = path.join(BEST);
    if best.join("config.json").is_file() {
        if best.join(MANIFEST).exists() {
            Manifest::verify(&best)?;
        }
        return Ok((best, Vec::new()));
    }
    for folder in [path.join(CHECKPOINTS), path.to_path_buf()] {
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
    if path.join("config.json").is_file() && !path.join(CHECKPOINTS).is_dir() {
        return Ok((path.into(), Vec::new()));
    }
    let what = "it is neither a run with checkpoints, nor a checkpoint, nor a folder with config.json";
    Err(TrainError::NoCheckpoint { path: path.into(), what: what.into() })
}
