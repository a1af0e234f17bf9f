//! The mean of several checkpoints' weights, as a model folder.

use std::path::{Path, PathBuf};

use segue_configs::Models;
use segue_engine::checkpoint::{WEIGHTS, publish_with_manifest, write_error, write_json, write_tensors};
use segue_kernels::TrainError;
use segue_kernels::libtorch::is_finite;
use segue_publish::FreshFolder;
use tch::{Kind, Tensor};

use super::folder::{ModelFolder, TRAINING, as_stored, hugging_face_config, read_weights};
use crate::specs;

/// Writes the arithmetic mean, in double precision, of the weights in `sources` as the new model folder `output`,
/// with configuration and tokenizer of the first, and what is recorded of its run, so that it is evaluated alike. The folder appears whole or not at all.
///
/// Refuses sources of other configurations or tokenizers, and an `output` that is there already. Gives the notes on how the sources were found.
pub fn average(
    models: &'static Models,
    sources: &[PathBuf],
    output: &Path,
) -> Result<Vec<String>, TrainError> {
    let folders = sources.iter().map(|s| ModelFolder::open(models, s)).collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = folders.split_first() else {
        return Err(TrainError::Layout("there is nothing to average: name at least one checkpoint".into()));
    };
    for other in others {
        check_alike(first, other)?;
    }
    if output.symlink_metadata().is_ok() {
        return Err(write_error(output)(std::io::ErrorKind::AlreadyExists.into()));
    }
    let weights = as_stored(&first.config, mean(&folders)?);
    publish_with_manifest(FreshFolder::create(output)?, |fresh| {
        write_tensors(&fresh.join(WEIGHTS), &weights)?;
        write_json(&fresh.join("config.json"), &hugging_face_config(&first.config))?;
        if let Some((training, _)) = first.recorded(&sources[0]) {
            write_json(&fresh.join(TRAINING), &training)?;
        }
        // A folder from elsewhere may have no tokenizer.
        if first.vocabulary.is_some() {
            first.tokenizer()?.save(fresh)?;
        }
        Ok(())
    })?;
    Ok(folders.into_iter().flat_map(|folder| folder.notes).collect())
}

fn check_alike(first: &ModelFolder, other: &ModelFolder) -> Result<(), TrainError> {
    let differs = |what: &str| TrainError::OtherModel {
        path: other.path.clone(),
        what: format!(
            "its {what} is not that of {}\nhint: average checkpoints of one model",
            first.path.display()
        ),
    };
    if first.config != other.config {
        return Err(differs("configuration"));
    }
    match (&first.vocabulary, &other.vocabulary) {
        (Some(a), Some(b)) if a.fingerprint() != b.fingerprint() => Err(differs("tokenizer")),
        _ => Ok(()),
    }
}

/// Named means, in single precision. One source is in memory at a time, besides the sums.
fn mean(folders: &[ModelFolder]) -> Result<Vec<(String, Tensor)>, TrainError> {
    let config = &folders[0].config;
    let specs = specs(config);
    let mut sums: Vec<Tensor> = Vec::new();
    for folder in folders {
        let path = folder.path.join(WEIGHTS);
        let weights = read_weights(&path, config, &specs)?;
        if let Some(place) = weights.iter().position(|weights| !is_finite(weights)) {
            let name = &specs[place].name;
            let what = format!("`{name}` holds a value that is not finite\nhint: leave this checkpoint out");
            return Err(TrainError::Damaged { path, what });
        }
        if sums.is_empty() {
            sums = weights.iter().map(|w| w.to_kind(Kind::Double)).collect();
        } else {
            sums = sums.iter().zip(&weights).map(|(sum, w)| sum + w.to_kind(Kind::Double)).collect();
        }
    }
    let count = folders.len() as f64;
    let names = specs.into_iter().map(|spec| spec.name);
    Ok(names.zip(sums).map(|(name, sum)| (name, (sum / count).to_kind(Kind::Float))).collect())
}
