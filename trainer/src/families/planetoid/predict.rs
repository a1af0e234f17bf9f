//! Predictions of a trained model.

use std::fs;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_graph::SparseRows;
use serde_json::Value;
use tch::{Kind, Tensor};

use super::config::PlanetoidConfig;
use super::data::Material;
use super::evaluate::{self, GROUP, Prediction, rows};
use super::features::Bags;
use super::model::{Network, Nodes};
use crate::checkpoint::{STATE, WEIGHTS, locate, publish_tensors, read_error, read_tensors};
use crate::families::MODELS;
use crate::{Parameters, TrainError};

/// A trained model, and where it was trained.
pub struct Predictor {
    /// The folder with its weights.
    pub path: PathBuf,
    network: Network,
    /// The data set of its training, where a checkpoint tells.
    trained_on: Option<PathBuf>,
}

impl Predictor {
    /// Opens a run, a checkpoint or a model folder.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let (folder, _) = locate(path)?;
        let file = folder.join("config.json");
        let text = fs::read_to_string(&file).map_err(read_error(&file))?;
        let model = MODELS.from_hugging_face(&text, &file.display().to_string())?;
        let Some(config) = model.get::<PlanetoidConfig>() else {
            let what = format!("it holds a {}, which does not classify nodes", model.model_type());
            return Err(TrainError::OtherModel { path: folder, what });
        };
        let specs = Network::specs(config);
        let mut stored = read_tensors(&folder.join(WEIGHTS))?;
        let weights =
            specs.iter().map(|spec| stored.take(&spec.name, &spec.shape)).collect::<Result<_, _>>()?;
        let parameters = Parameters::from_tensors(specs, weights, Kind::Float);
        let state = fs::read_to_string(folder.join(STATE)).unwrap_or_default();
        let state: Value = serde_json::from_str(&state).unwrap_or_default();
        let trained_on = state.pointer("/config/data/corpus").and_then(Value::as_str).map(PathBuf::from);
        Ok(Self { network: Network::with(config.clone(), parameters), path: folder, trained_on })
    }

    /// What it is.
    pub fn config(&self) -> &PlanetoidConfig {
        &self.network.config
    }

    /// Opens the graph at `data`, or else that of the training.
    pub fn material(&self, data: Option<&Path>) -> Result<Material, TrainError> {
        let Some(path) = data.or(self.trained_on.as_deref()) else {
            let what = "the model folder does not say which graph it was trained on\nhint: add --data FOLDER";
            return Err(TrainError::Layout(what.into()));
        };
        let mut config = self.network.config.clone();
        Material::of(config.data(path)?, &mut config)
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

/// Writes `nodes`, `[nodes]`, i64, and `embeddings`, `[nodes, d_embed]`, as a safetensors file.
pub fn write_embeddings(path: &Path, nodes: &[u32], embeddings: &[Vec<f32>]) -> Result<(), TrainError> {
    let numbers: Vec<i64> = nodes.iter().map(|node| i64::from(*node)).collect();
    let width = embeddings.first().map_or(0, Vec::len) as i64;
    let table = Tensor::from_slice(&embeddings.concat()).view([embeddings.len() as i64, width]);
    publish_tensors(path, &[("nodes".into(), Tensor::from_slice(&numbers)), ("embeddings".into(), table)])
}

/// Rows of features from a file with a row a line: `column:value`, columns from 0 and rising, with spaces between; an empty line is a row of
/// zeros. What a line begins with before the first of them, such as a node's number, is left out.
pub fn read_rows(path: &Path, columns: usize) -> Result<SparseRows, DataError> {
    let text = fs::read_to_string(path).map_err(|source| DataError::Read { path: path.into(), source })?;
    let mut rows = SparseRows::new(columns);
    for (number, line) in (1..).zip(text.lines()) {
        let bad = |why: String| DataError::BadLine { path: path.into(), line: number, why };
        let row = entries(line).map_err(bad)?;
        rows.push(row).map_err(|why| DataError::BadLine { path: path.into(), line: number, why })?;
    }
    Ok(rows)
}

fn entries(line: &str) -> Result<Vec<(u32, f32)>, String> {
    let mut words = line.split_whitespace().peekable();
    words.next_if(|first| !first.contains(':'));
    let entry = |word: &str| {
        let (column, value) = word.split_once(':')?;
        Some((column.parse().ok()?, value.parse().ok()?))
    };
    words.map(|word| entry(word).ok_or_else(|| format!("`{word}` is not `column:value`"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_features_are_read_with_and_without_a_number_before_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        fs::write(&path, "7 0:1 3:0.5\n\n2:-1e-3\n9\n").unwrap();
        let rows = read_rows(&path, 4).unwrap();
        let row = |number| (rows.row(number).0.to_vec(), rows.row(number).1.to_vec());
        assert_eq!(rows.len(), 4);
        assert_eq!((row(0), row(2)), ((vec![0, 3], vec![1.0, 0.5]), (vec![2], vec![-1e-3])));
        assert_eq!((row(1), row(3)), ((vec![], vec![]), (vec![], vec![])));
        for (text, why) in [("0:1\n1:x", "line 2"), ("4:1", "line 1"), ("1 2", "`2`"), ("3:1 1:1", "line 1")]
        {
            fs::write(&path, text).unwrap();
            let message = read_rows(&path, 4).unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }
}
