//! What a conversion leaves on the disk: a whole folder or none.

use std::fs;
use std::path::{Path, PathBuf};

use segue_configs::{ModelConfig, TransfoXlConfig};
use segue_dataloader::foreign::{BundleTensor, write_bundle};
use segue_dataloader::{DataError, Tokenizer};
use serde_json::{Value, json};
use tch::Tensor;

use super::report::Report;
use crate::TrainError;
use crate::checkpoint::{as_stored, hugging_face_config, write_json, write_tensors};

/// The account of a conversion, beside what it made.
const REPORT: &str = "conversion.json";
/// Prefix of the TensorFlow program's checkpoints.
const PREFIX: &str = "model.ckpt";

/// Refuses to write over anything.
pub(super) fn check_vacant(target: &Path) -> Result<(), TrainError> {
    let occupied = match fs::read_dir(target) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => target.symlink_metadata().is_ok(),
    };
    if !occupied {
        return Ok(());
    }
    let why = "something is there already; give a folder that does not exist or is empty".into();
    Err(DataError::Output { path: target.into(), why }.into())
}

/// Fills a folder beside the target and moves it there whole.
pub(super) fn publish(
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let write = |path: &Path, source| TrainError::Write { path: path.into(), source };
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let part: PathBuf = parent.join(format!(".{name}.part"));
    fs::create_dir_all(parent).map_err(|e| write(parent, e))?;
    if part.exists() {
        // Left by a conversion that was killed.
        fs::remove_dir_all(&part).map_err(|e| write(&part, e))?;
    }
    fs::create_dir(&part).map_err(|e| write(&part, e))?;
    if let Err(error) = fill(&part) {
        let _ = fs::remove_dir_all(&part);
        return Err(error);
    }
    // An empty folder gives way.
    fs::rename(&part, target).map_err(|e| write(target, e))
}

/// A model folder in Hugging Face's layout.
pub(super) fn hugging_face(
    folder: &Path,
    config: &ModelConfig,
    weights: Vec<(String, Tensor)>,
    tokenizer: Option<&Tokenizer>,
    report: &Report,
) -> Result<(), TrainError> {
    write_tensors(&folder.join("model.safetensors"), &as_stored(config, weights))?;
    write_json(&folder.join("config.json"), &hugging_face_config(config))?;
    finish(folder, tokenizer, report)
}

/// A checkpoint of the TensorFlow program with the note on its corpus that it asks for.
pub(super) fn tensorflow(
    folder: &Path,
    model: &TransfoXlConfig,
    variables: Vec<BundleTensor>,
    tokenizer: Option<&Tokenizer>,
    report: &Report,
) -> Result<(), TrainError> {
    write_bundle(folder, PREFIX, variables)?;
    let pointer = folder.join("checkpoint");
    fs::write(
        &pointer,
        format!("model_checkpoint_path: \"{PREFIX}\"\nall_model_checkpoint_paths: \"{PREFIX}\"\n"),
    )
    .map_err(|source| TrainError::Write { path: pointer.clone(), source })?;
    let cutoffs: Vec<usize> = if model.cutoffs.is_empty() { Vec::new() } else { model.cluster_ends() };
    let info = json!({ "vocab_size": model.vocab_size, "cutoffs": cutoffs, "dataset": "converted" });
    write_json(&folder.join("corpus-info.json"), &info)?;
    finish(folder, tokenizer, report)
}

fn finish(folder: &Path, tokenizer: Option<&Tokenizer>, report: &Report) -> Result<(), TrainError> {
    if let Some(tokenizer) = tokenizer {
        tokenizer.save(folder)?;
    }
    write_json(&folder.join(REPORT), &serde_json::to_value(report).unwrap_or(Value::Null))
}
