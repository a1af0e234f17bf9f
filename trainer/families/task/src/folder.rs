//! Folders of fine-tuned models: a model folder with heads, and what they were trained for.

use std::collections::BTreeMap;
use std::path::Path;

use segue_configs::Models;
use segue_engine::checkpoint::{Contents, WEIGHTS, read_error, read_tensors};
use segue_engine::fill;
use segue_family::Trained;
use segue_kernels::{Parameters, TrainError};
use segue_language::{ModelFolder, as_stored, encoders, is_of_an_adapter, read_finite, take_weights};
use segue_publish::read_regular_text;
use segue_tasks::TaskConfig;
use serde_json::Value;
use tch::{Kind, Tensor};

use super::encoder;
use super::head_spec::HeadSpec;
use super::hub::{heads_of, hugging_face_config};
use super::model::TaskModel;

/// A fine-tuned model on disk.
pub struct TaskFolder {
    /// Model and tokenizer.
    pub folder: ModelFolder,
    /// Its heads.
    pub heads: Vec<HeadSpec>,
}

impl TaskFolder {
    /// Opens a fine-tuned model folder, the best of a run, or its newest checkpoint where there is no best.
    pub fn open(models: &'static Models, path: &Path) -> Result<Self, TrainError> {
        Self::of(Trained::open(models, path)?)
    }

    /// The fine-tuned model that a folder holds.
    pub fn of(trained: Trained) -> Result<Self, TrainError> {
        let folder = ModelFolder::of(trained)?;
        let models = folder.models;
        let config = read_json(&folder.path.join("config.json"))?;
        let other = |what| TrainError::OtherModel { path: folder.path.clone(), what };
        let heads = heads_of(models, &config).map_err(other)?;
        match heads.is_empty() {
            false => Ok(Self { folder, heads }),
            true => Err(TrainError::Unsuited { path: folder.path, what: why_no_head(&config) }),
        }
    }

    /// The model with its heads, where the folder says.
    pub fn load(&self, task: &TaskConfig) -> Result<TaskModel, TrainError> {
        let config = &self.folder.config;
        let specs = TaskModel::specs(config, &self.heads);
        let weights = read_finite(&self.folder.path.join(WEIGHTS), config, &specs)?;
        let parameters = Parameters::from_tensors(specs, weights, Kind::Float);
        Ok(TaskModel::new(config, &self.heads, task, parameters.to(self.folder.compute.device())))
    }
}

/// Why a model answers no task: it has no head, or one that is not among those here.
fn why_no_head(config: &Value) -> String {
    match config["architectures"][0].as_str().filter(|class| class.contains("For")) {
        Some(class) => format!(
            "has the head of {class}, which answers no task here\nhint: fine-tune it with segue finetune, which keeps the \
             encoder and begins with a head of its own"
        ),
        None => "is not fine-tuned: config.json names no task\nhint: make one with segue finetune, or convert one \
                 with its head"
            .into(),
    }
}

/// A JSON file of a model folder.
pub(super) fn read_json(path: &Path) -> Result<Value, TrainError> {
    let text = read_regular_text(path).map_err(read_error(path))?;
    serde_json::from_str(&text).map_err(|e| TrainError::Damaged { path: path.into(), what: e.to_string() })
}

/// Fills a model with the weights in `folder`: all of the encoder that it has, and of heads what has the same name, shape and
/// labels there. Gives the names of parameters that stay as they were drawn.
pub fn start_task_from(folder: &ModelFolder, model: &TaskModel) -> Result<Vec<String>, TrainError> {
    if folder.config.model_type() != model.config().model_type() {
        let what = format!(
            "it is a {}, and a {} is trained",
            folder.config.model_type(),
            model.config().model_type()
        );
        return Err(TrainError::OtherModel { path: folder.path.clone(), what });
    }
    let encoder = encoder::specs(encoders(model.config())?, model.config(), model.heads());
    let mut file = read_tensors(&folder.path.join(WEIGHTS))?;
    let weights = take_weights(&mut file, model.config(), &encoder)?;
    fill(model.weights().map(|(_, tensor)| tensor).zip(weights));
    // A head of another kind is of no use, and of one that answers otherwise than any here nothing is.
    let theirs = heads_of(folder.models, &read_json(&folder.path.join("config.json"))?).ok();
    let mut fresh = Vec::new();
    for (spec, tensor) in
        model.weights().skip(encoder.len()).filter(|(spec, _)| !is_of_an_adapter(&spec.name))
    {
        let saved =
            theirs.as_ref().and_then(|theirs| head_tensor(&file.tensors, theirs, model.heads(), &spec.name));
        match saved {
            Some(saved) if saved.size() == spec.shape => fill([(tensor, saved.shallow_clone())]),
            _ => fresh.push(spec.name.clone()),
        }
    }
    Ok(fresh)
}

/// What a stored model has for the parameter `name` of a head here. Outputs for other labels are of no use.
fn head_tensor<'a>(
    stored: &'a BTreeMap<String, Tensor>,
    theirs: &[HeadSpec],
    ours: &[HeadSpec],
    name: &str,
) -> Option<&'a Tensor> {
    let (task, plain) = match name.strip_prefix("tasks.").and_then(|rest| rest.split_once('.')) {
        Some((task, plain)) => (task, plain),
        None => (ours.first()?.task.as_str(), name),
    };
    let own = ours.iter().find(|head| head.task == task)?;
    let their = match theirs {
        [one] => Some(one),
        several => several.iter().find(|head| head.task == task),
    };
    let outputs = plain.starts_with("logits_proj.") || plain.starts_with("classifier.");
    if outputs && their.is_none_or(|their| (their.kind, &their.labels) != (own.kind, &own.labels)) {
        return None;
    }
    stored.get(&format!("tasks.{task}.{plain}")).or_else(|| stored.get(plain))
}

/// A fine-tuned model as a folder that Hugging Face opens; its tensors are not copied.
pub fn task_folder(model: &TaskModel) -> Contents {
    let weights = model.weights().map(|(spec, tensor)| (spec.name.clone(), tensor.detach()));
    let weights = model.merged(weights.collect());
    Contents {
        tables: vec![(WEIGHTS.into(), as_stored(model.config(), weights))],
        documents: vec![("config.json".into(), hugging_face_config(model.config(), model.heads()))],
        ..Contents::default()
    }
}
