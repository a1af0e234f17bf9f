//! Folders in Hugging Face's layout: `config.json` and `model.safetensors`, with or without the rest of a
//! checkpoint.

use std::fs;
use std::path::{Path, PathBuf};

use segue_configs::ModelConfig;
use segue_dataloader::Tokenizer;
use serde_json::{Value, json};
use tch::{Kind, Tensor};

use super::files::read_error;
use super::manifest::{MANIFEST, Manifest};
use super::publish::find;
use super::tensors::read_tensors;
use crate::objective::LanguageModel;
use crate::{ParameterSpec, Parameters, TrainError, model};

/// The weights of a model folder.
pub(super) const WEIGHTS: &str = "model.safetensors";

/// A model on disk.
pub struct ModelFolder {
    /// The folder with `config.json`.
    pub path: PathBuf,
    /// The model's configuration.
    pub config: ModelConfig,
    /// Damaged newer checkpoints that were passed over.
    pub refused: Vec<String>,
}

impl ModelFolder {
    /// Opens a model folder, a checkpoint (verified), or the newest whole checkpoint of a run folder.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let (folder, refused) = locate(path)?;
        let file = folder.join("config.json");
        let text = fs::read_to_string(&file).map_err(read_error(&file))?;
        let config = ModelConfig::from_hugging_face(&text, &file.display().to_string())?;
        Ok(Self { path: folder, config, refused })
    }

    /// The tokenizer that lies beside the weights.
    pub fn tokenizer(&self) -> Result<Tokenizer, TrainError> {
        Ok(Tokenizer::load(&self.path)?)
    }
}

fn locate(path: &Path) -> Result<(PathBuf, Vec<String>), TrainError> {
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

/// The model of a folder, with its weights.
pub fn load_language_model(folder: &ModelFolder, kind: Kind) -> Result<LanguageModel, TrainError> {
    let weights = read_weights(&folder.path.join(WEIGHTS), &folder.config)?;
    let parameters = Parameters::from_tensors(model::specs(&folder.config), weights, kind);
    Ok(LanguageModel::from_parameters(&folder.config, parameters))
}

/// The configured model's parameters out of a file in Hugging Face's names, in the order of its specs.
/// A tied tensor may be stored under either of its names; where both are there they must be equal.
/// Nothing of the model's size is allocated before the file is known to hold it.
pub(super) fn read_weights(path: &Path, config: &ModelConfig) -> Result<Vec<Tensor>, TrainError> {
    let mut file = read_tensors(path)?;
    let other = |what: String| TrainError::OtherModel { path: path.into(), what };
    for (alias, name) in model::aliases(config) {
        let Some(tied) = file.tensors.remove(&alias) else { continue };
        match file.tensors.get(&name) {
            None => _ = file.tensors.insert(name, tied),
            Some(own) if own.size() == tied.size() && own == &tied => {}
            Some(_) => {
                return Err(other(format!("`{alias}` and `{name}` are tied in config.json, but differ")));
            }
        }
    }
    let take = |spec: &ParameterSpec| file.take(&spec.name, &spec.shape);
    let weights = model::specs(config).iter().map(take).collect::<Result<Vec<_>, _>>()?;
    for (name, _) in model::buffers(config) {
        file.tensors.remove(&name);
    }
    match file.tensors.keys().next() {
        Some(name) => Err(other(format!("the model has no parameter `{name}`"))),
        None => Ok(weights),
    }
}

/// `config.json` as Hugging Face writes it, every width spelled out.
pub(crate) fn hugging_face_config(model: &ModelConfig) -> Value {
    let ModelConfig::TransfoXl(c) = model;
    let mut json = model.to_json();
    json["model_type"] = json!(model.model_type());
    json["architectures"] = json!(["TransfoXLLMHeadModel"]);
    json["torch_dtype"] = json!("float32");
    json["d_embed"] = json!(c.embed_width());
    json["d_head"] = json!(c.head_width());
    json["sample_softmax"] = json!(-1);
    json["tie_projs"] = json!((0..=c.cutoffs.len()).map(|i| c.ties_projection(i)).collect::<Vec<_>>());
    json
}
