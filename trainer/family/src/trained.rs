//! A trained model on disk, before anything of its family is known.

use std::path::{Path, PathBuf};

use segue_configs::{ModelConfig, Models};
use segue_engine::checkpoint::{
    STATE, TABLES, WEIGHTS, check_finite, locate, read_error, read_tensors, unverified,
};
use segue_kernels::{Compute, ParameterSpec, Parameters, TrainError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tch::{Kind, Tensor};

/// The configuration of the run whose checkpoints a folder is the average of.
pub(super) const TRAINING: &str = "training.json";

/// A folder with a trained model: what its `config.json` says, and no weights yet.
pub struct Trained {
    /// The folder with `config.json`.
    pub path: PathBuf,
    /// The path it was opened by, of a run perhaps.
    pub named: PathBuf,
    /// The model's configuration.
    pub config: ModelConfig,
    /// The models that the program knows.
    pub models: &'static Models,
    /// What is to be known of how it was found, a line each: which folder of a run it is, what was passed over, that it was not verified.
    pub notes: Vec<String>,
    /// What was passed over for this one, a damaged best model or newer checkpoints, and what is wrong with it.
    pub passed_over: Vec<String>,
    /// Where its weights are put.
    pub compute: Compute,
}

impl Trained {
    /// Opens a model folder, a checkpoint (verified), or of a run folder the best model, else the newest whole checkpoint. The model is one of
    /// `models`.
    pub fn open(models: &'static Models, path: &Path) -> Result<Self, TrainError> {
        let (folder, passed_over) = locate(path)?;
        let mut notes: Vec<String> = passed_over.iter().map(|why| format!("skipped: {why}")).collect();
        if folder != path {
            notes.push(format!("model: {}", folder.display()));
        }
        notes.extend(unverified(&folder));
        let file = folder.join("config.json");
        let text = segue_publish::read_regular_text(&file).map_err(read_error(&file))?;
        let config = models.from_hugging_face(&text, &file.display().to_string())?;
        Ok(Self {
            path: folder,
            named: path.into(),
            config,
            models,
            notes,
            passed_over,
            compute: Compute::CPU,
        })
    }

    /// The weights of the model that are stored under their own names, in single precision, where `compute` says. An error where one is missing, has
    /// another shape, or holds a value that is not finite.
    pub fn parameters(&self, specs: Vec<ParameterSpec>) -> Result<Parameters, TrainError> {
        self.read(WEIGHTS, specs)
    }

    /// The same of a network that was trained beside the model.
    pub fn network(&self, name: &str, specs: Vec<ParameterSpec>) -> Result<Parameters, TrainError> {
        self.read(&format!("{name}.safetensors"), specs)
    }

    fn read(&self, file: &str, specs: Vec<ParameterSpec>) -> Result<Parameters, TrainError> {
        Ok(read_network(&self.path.join(file), specs)?.to(self.compute.device()))
    }

    /// The section `name` of the configuration that the model was trained with, of whose keys others may read some.
    pub fn section<T: Default + Serialize + DeserializeOwned>(&self, name: &str) -> Result<T, TrainError> {
        let of_run = recorded(&self.path, &self.named).and_then(|(run, _)| run.get(name).cloned());
        let own = |mut section: Value| {
            let known = serde_json::to_value(T::default()).ok()?;
            section.as_object_mut()?.retain(|key, _| known.get(key).is_some());
            serde_json::from_value(section).ok()
        };
        of_run.and_then(own).ok_or_else(|| {
            let what = "does not say how its model was trained\nhint: name a run, or a checkpoint of it";
            TrainError::Layout(format!("{} {what}", self.named.display()))
        })
    }

    /// The error of a command that needs a model of another kind.
    pub fn is_not(&self, wanted: &str) -> TrainError {
        let what = format!("it holds a {} model, and this command needs {wanted}", self.config.model_type());
        TrainError::OtherModel { path: self.path.clone(), what }
    }
}

/// The weights of a network in `path`, under their own names, in single precision. Errors as of [`Trained::parameters`].
pub fn read_network(path: &Path, specs: Vec<ParameterSpec>) -> Result<Parameters, TrainError> {
    let mut stored = read_tensors(path)?;
    let weights: Vec<Tensor> =
        specs.iter().map(|spec| stored.take(&spec.name, &spec.shape)).collect::<Result<_, _>>()?;
    check_finite(path, specs.iter().map(|spec| spec.name.as_str()).zip(&weights))?;
    Ok(Parameters::from_tensors(specs, weights, Kind::Float))
}

/// Fills `tables` by those that the model in `folder` has learnt. Errors as of [`Trained::parameters`].
pub fn read_tables(folder: &Path, tables: Vec<(String, Tensor)>) -> Result<(), TrainError> {
    if tables.is_empty() {
        return Ok(());
    }
    let path = folder.join(TABLES);
    let mut stored = read_tensors(&path)?;
    for (name, mut table) in tables {
        let found = stored.take(&name, &table.size())?;
        check_finite(&path, [(name.as_str(), &found)].into_iter())?;
        table.copy_(&found);
    }
    Ok(())
}

/// What the run of the model in `folder` has recorded of its configuration, and in which file: the run's own, that of a checkpoint, or what an average has
/// kept of it. `named`: the path it was opened by.
pub fn recorded(folder: &Path, named: &Path) -> Option<(Value, PathBuf)> {
    let told =
        [(named.join("config.json"), ""), (folder.join(STATE), "/config"), (folder.join(TRAINING), "")];
    // Fine-tuning says how examples were read, and not how text was.
    let reads_text = |config: &&Value| {
        config["train"].is_object() && config["task"]["name"].as_str().unwrap_or_default().is_empty()
    };
    told.into_iter().find_map(|(path, pointer)| {
        let value: Value = serde_json::from_str(&segue_publish::read_regular_text(&path).ok()?).ok()?;
        let config = value.pointer(pointer).filter(reads_text)?;
        Some((config.clone(), path))
    })
}
