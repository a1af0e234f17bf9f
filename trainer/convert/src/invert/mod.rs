//! Tables of programs read from right to left: a model as a checkpoint of its program.

pub(super) mod recurrent;
mod transfo_xl;
mod xlnet;

use segue_configs::{ModelConfig, ModelSection};
use segue_foreign::{BundleTensor, ElementType};
use segue_transfo_xl::TransfoXlConfig;
use segue_xlnet::XlnetConfig;
use serde_json::{Map, Value};
use tch::{Kind, Tensor};

use super::head::TensorFlowHead;
use super::write::TensorFlowFiles;

/// A TensorFlow program that models can be written for. Errors say what it has no place for.
pub(super) trait Program: Sync {
    /// The scope of the layer that scores a sequence, where `heads` have one. `asked`: on the command line, `said`: by
    /// `config.json`.
    fn scope_of_scores(
        &self,
        heads: &[(String, Tensor)],
        asked: Option<&TensorFlowHead>,
        said: &Map<String, Value>,
    ) -> Result<Option<String>, String>;

    /// Whether one of its heads has a parameter of this name; `None` where it knows no heads.
    fn knows(&self, model: &ModelConfig, name: &str) -> Option<bool>;

    /// Parameters of the model and of heads as its variables. `scope`: that of the layer that scores a sequence.
    fn variables(
        &self,
        model: &ModelConfig,
        weights: &[(String, Tensor)],
        scope: Option<&str>,
    ) -> Result<Vec<BundleTensor>, String>;

    /// A whole checkpoint that holds `variables`.
    fn files(&self, model: &ModelConfig, variables: Vec<BundleTensor>) -> TensorFlowFiles;
}

/// The programs, by the model that they train.
const PROGRAMS: [(&str, &dyn Program); 2] =
    [(TransfoXlConfig::TYPE, &transfo_xl::TransformerXl), (XlnetConfig::TYPE, &xlnet::Xlnet)];

/// The program for a model.
pub(super) fn program_of(model: &ModelConfig) -> Option<&'static dyn Program> {
    PROGRAMS.iter().find(|(name, _)| *name == model.model_type()).map(|(_, program)| *program)
}

/// Layers by number as one variable, the first layer first; all of them, or it is an error.
fn stacked(name: &str, mut layers: Vec<(u64, Tensor)>, n_layer: usize) -> Result<BundleTensor, String> {
    if layers.len() != n_layer {
        return Err(format!("`{name}` is of {n_layer} layers, and {} are there", layers.len()));
    }
    layers.sort_by_key(|(number, _)| *number);
    let layers: Vec<Tensor> = layers.into_iter().map(|(_, tensor)| tensor).collect();
    Ok(variable(name.into(), &Tensor::stack(&layers, 0)))
}

/// A variable of single precision.
fn variable(name: String, tensor: &Tensor) -> BundleTensor {
    let tensor = tensor.detach().to_kind(Kind::Float).contiguous();
    let mut bytes = vec![0u8; tensor.numel() * Kind::Float.elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    let shape = tensor.size().iter().map(|&size| size as usize).collect();
    BundleTensor { name, dtype: ElementType::F32, shape, bytes }
}
