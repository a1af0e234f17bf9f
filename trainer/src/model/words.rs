use segue_configs::ModelConfig;
use tch::Tensor;

use super::{AdaptiveEmbedding, TransfoXl, Xlnet, xlnet};
use crate::{ParameterSpec, Parameters};

/// What the names of all parameters begin with that word vectors are made of.
const EMBEDDING: &str = "transformer.word_emb";

/// The vectors that a model begins with, each word's the same wherever it stands.
pub enum WordVectors {
    /// XLNet's table, `[vocabulary, d_model]`.
    Table(Tensor),
    /// Transformer-XL's tables and their projections.
    Adaptive(Box<AdaptiveEmbedding>),
}

impl WordVectors {
    /// Their parameters in the configured model.
    pub fn specs(config: &ModelConfig) -> Vec<ParameterSpec> {
        let specs = match config {
            ModelConfig::Xlnet(config) => Xlnet::specs(config),
            ModelConfig::TransfoXl(config) => TransfoXl::specs(config),
        };
        specs.into_iter().filter(|spec| spec.name.starts_with(EMBEDDING)).collect()
    }

    /// The vectors over `parameters`, which must hold [`WordVectors::specs`].
    pub fn new(config: &ModelConfig, parameters: &Parameters) -> Self {
        match config {
            ModelConfig::Xlnet(_) => Self::Table(parameters.get(xlnet::EMBEDDING)),
            ModelConfig::TransfoXl(config) => {
                Self::Adaptive(Box::new(AdaptiveEmbedding::new(config, parameters)))
            }
        }
    }

    /// `ids`: `[rows, length]`; returns `[rows, length, d_model]`.
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        match self {
            Self::Table(table) => Tensor::embedding(table, ids, -1, false, false),
            Self::Adaptive(embedding) => embedding.forward(ids),
        }
    }
}
