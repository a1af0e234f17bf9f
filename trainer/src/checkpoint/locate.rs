//! Where a model lies.

use std::path::{Path, PathBuf};

use super::contents::STATE;
use super::manifest::{MANIFEST, Manifest};
use super::publish::find;
use crate::TrainError;

/// Folder of the best model, in the folder of a run that keeps it.
pub const BEST: &str = "best";
/// With a number behind it: folder of the model that a stage of a run came to.
pub const STAGE: &str = "stage-";
/// The folder of a run's checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";

/// The folder with the weights of `path`: the best model of a run, where it keeps one, else its newest checkpoint that
/// verifies; a checkpoint; or a folder with `config.json`. With it, what was wrong with newer checkpoints.
pub fn locate(path: &Path) -> Result<(PathBuf, Vec<String>), TrainError> {
    let best = path.join(BEST);
    if best.join("config.json").is_file() {
        verify_model(&best)?;
        return Ok((best, Vec::new()));
    }
    for folder in [path.join(CHECKPOINTS), path.to_path_buf()] {
        if folder.is_dir()
            && let Some(found) = find(&folder)?
        {
            return Ok(found);
        }
    }
    if path.join(MANIFEST).exists() || path.join("config.json").is_file() && !path.join(CHECKPOINTS).is_dir()
    {
        verify_model(path)?;
        return Ok((path.into(), Vec::new()));
    }
    let what = "it is neither a run with checkpoints, nor a checkpoint, nor a folder with config.json";
    Err(TrainError::NoCheckpoint { path: path.into(), what: what.into() })
}

/// Checks a model folder against its manifest; one from elsewhere has none.
fn verify_model(folder: &Path) -> Result<(), TrainError> {
    if !folder.join(MANIFEST).exists() {
        return Ok(());
    }
    // Nobody has a reason to change a checkpoint.
    let may_be_meant = !folder.join(STATE).exists();
    Manifest::verify(folder).map_err(|error| match error {
        TrainError::Damaged { path, what } if may_be_meant => {
            let advice =
                "make or copy the folder again; where it was changed on purpose, remove its MANIFEST.json";
            TrainError::Damaged { path, what: format!("{what}\nhint: {advice}") }
        }
        other => other,
    })
}
