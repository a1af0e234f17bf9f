//! Predictions of a trained model.

use std::path::{Path, PathBuf};

use segue_configs::Models;
use segue_engine::checkpoint::{STATE, publish_tensors};
use segue_family::Trained;
use segue_graph::SparseRows;
use segue_kernels::TrainError;
use serde_json::{Value, json};
use tch::Tensor;

use super::config::PlanetoidConfig;
use super::data::Material;
use super::evaluate::{self, GROUP, Prediction, rows};
use super::features::Bags;
use super::model::{Network, Nodes};
use super::sections::DataConfig;

/// A trained model, and where it was trained.
pub struct Predictor {
    /// The folder with its weights.
    pub path: PathBuf,
    network: Network,
    /// The split that it was trained on.
    split: DataConfig,
    /// The data set of its training, where a checkpoint tells, and its fingerprint.
    trained_on: Option<(PathBuf, String)>,
}

impl Predictor {
    /// Opens a run, a checkpoint or a model folder. The model is one of `models`.
    pub fn open(models: &'static Models, path: &Path) -> Result<Self, TrainError> {
        Self::of(Trained::open(models, path)?)
    }

    /// The classifier that a folder holds.
    pub fn of(trained: Trained) -> Result<Self, TrainError> {
        let Some(config) = trained.config.get::<PlanetoidConfig>() else {
            return Err(trained.is_not("a model that classifies nodes"));
        };
        let folder = &trained.path;
        let parameters = trained.parameters(Network::specs(config))?;
        let state = segue_publish::read_regular_text(folder.join(STATE)).unwrap_or_default();
        let state: Value = serde_json::from_str(&state).unwrap_or_default();
        let text = |pointer: &str| state.pointer(pointer).and_then(Value::as_str);
        let trained_on = text("/config/data/corpus").zip(text("/corpus"));
        let trained_on = trained_on.map(|(path, fingerprint)| (path.into(), fingerprint.into()));
        let network = Network::with(config.clone(), parameters);
        Ok(Self { network, split: split_of(&trained.path), trained_on, path: trained.path })
    }

    /// What it is.
    pub fn config(&self) -> &PlanetoidConfig {
        &self.network.config
    }

    /// Opens the graph at `data`, or else that of the training. A model that reads features alone takes any graph with the same columns, without
    /// a label too; every other one has learnt its nodes, and takes the graph of its training alone.
    pub fn material(&self, data: Option<&Path>) -> Result<Material, TrainError> {
        let own = self.trained_on.as_ref().map(|(path, _)| path.as_path());
        let Some(path) = data.or(own) else {
            let what = "the model folder does not say which graph it was trained on\nhint: add --data FOLDER";
            return Err(TrainError::Layout(what.into()));
        };
        let (mut config, mut split) = (self.network.config.clone(), self.split.clone());
        let any_graph = config.variant.is_inductive();
        if any_graph && Some(path) != own {
            // What training made of its own graph: a split, penalties along its edges, its size.
            (split.split_seed, split.given_split, config.lambda) = (0, 0, 0.0);
            (config.nodes, config.context_nodes) = (0, 0);
        }
        let mut data = split.open(path, config.variant)?;
        if any_graph {
            // A graph without `sizes.txt` has as many as it names.
            data.classes = data.classes.max(config.classes);
            data.features.columns = data.features.columns.max(config.features);
        }
        if data.features.columns != config.features {
            let (found, path) = (data.features.columns, path.display());
            let what = format!(
                "the graph at {path} has features of {found} columns, and the model was trained on {}\nhint: give nodes the same features",
                config.features
            );
            return Err(TrainError::Layout(what));
        }
        let material = Material::of(data, &mut config)?;
        match &self.trained_on {
            Some((place, trained)) if !any_graph && *trained != material.data.fingerprint() => {
                Err(TrainError::Layout(format!(
                    "the graph at {} is not the one that the model was trained on, whose nodes it has learnt\nhint: name that one, which was \
                     at {}, or train an inductive model, model.variant=inductive",
                    path.display(),
                    place.display()
                )))
            }
            _ => Ok(material),
        }
    }

    /// Predicts the classes of nodes of the graph.
    pub fn predict(&self, material: &Material, nodes: &[u32]) -> Result<Vec<Prediction>, TrainError> {
        let count = material.data.nodes();
        if let Some(node) = nodes.iter().find(|node| **node as usize >= count) {
            return Err(TrainError::Layout(format!("node {node} of a graph with {count} nodes")));
        }
        evaluate::predict(&self.network, material, nodes)
    }

    /// Predicts the classes of nodes that no graph has, by their features: numbers are those of the rows.
    pub fn predict_rows(&self, features: &SparseRows) -> Result<Vec<Prediction>, TrainError> {
        let PlanetoidConfig { variant, features: columns, .. } = self.network.config;
        if !variant.is_inductive() {
            let what = "the model predicts classes of the nodes of its graph alone\nhint: train an inductive one: \
                        model.variant=inductive";
            return Err(TrainError::OtherModel { path: self.path.clone(), what: what.into() });
        }
        if features.columns != columns {
            let what = format!("rows of {} columns, expected {columns}", features.columns);
            return Err(TrainError::OtherModel { path: self.path.clone(), what });
        }
        let numbers: Vec<u32> = (0..features.len() as u32).collect();
        let no_prior = Tensor::zeros([1], self.network.parameters.options());
        let mut predictions = Vec::with_capacity(numbers.len());
        for group in numbers.chunks(GROUP) {
            let nodes =
                Nodes { numbers: Tensor::from_slice::<i64>(&[]), features: Some(Bags::of(features, group)) };
            let found = rows(&self.network.probabilities(&nodes, &no_prior))?;
            predictions.extend(group.iter().zip(found).map(|(node, found)| Prediction::of(*node, found)));
        }
        Ok(predictions)
    }

    /// Embeddings of nodes of the graph: rows of `d_embed`.
    pub fn embeddings(&self, material: &Material, nodes: &[u32]) -> Result<Vec<Vec<f32>>, TrainError> {
        let variant = self.network.config.variant;
        if !variant.has_embedding() && !variant.has_hidden() {
            let what = "it has no embedding".to_string();
            return Err(TrainError::OtherModel { path: self.path.clone(), what });
        }
        let mut found = Vec::with_capacity(nodes.len());
        for group in nodes.chunks(GROUP) {
            found.extend(rows(&tch::no_grad(|| {
                self.network.embedding(&material.nodes(&self.network, group))
            }))?);
        }
        Ok(found)
    }
}

/// The split that a model folder names: its `config.json` has these keys beside those of the model.
fn split_of(folder: &Path) -> DataConfig {
    let stored = segue_publish::read_regular_text(folder.join("config.json")).unwrap_or_default();
    let stored: Value = serde_json::from_str(&stored).unwrap_or_default();
    let mut split = json!(DataConfig::default());
    for (key, value) in split.as_object_mut().into_iter().flatten() {
        if let Some(stored) = stored.get(key) {
            *value = stored.clone();
        }
    }
    serde_json::from_value(split).unwrap_or_default()
}

/// Writes `nodes`, `[nodes]`, i64, and `embeddings`, `[nodes, d_embed]`, as a safetensors file.
pub fn write_embeddings(path: &Path, nodes: &[u32], embeddings: &[Vec<f32>]) -> Result<(), TrainError> {
    let numbers: Vec<i64> = nodes.iter().map(|node| i64::from(*node)).collect();
    let width = embeddings.first().map_or(0, Vec::len) as i64;
    let table = Tensor::from_slice(&embeddings.concat()).view([embeddings.len() as i64, width]);
    publish_tensors(path, &[("nodes".into(), Tensor::from_slice(&numbers)), ("embeddings".into(), table)])
}
