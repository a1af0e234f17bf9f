//! Models for the tests of this crate, which knows none.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{ModelSection, ModelType, Models, check_heads, size, width};
use crate::{Config, ConfigError, DataOrder, ObjectiveKind, range};

/// A model that reads streams, and one of two networks that reads pairs.
pub static MODELS: LazyLock<Models> =
    LazyLock::new(|| Models::new(vec![ModelType::of::<Plain>(), ModelType::of::<Paired>()]));

/// A model that reads from left to right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Plain {
    /// Entries of the vocabulary; 0 takes the corpus'.
    #[schemars(transform = width())]
    pub vocab_size: usize,
    /// Width of the hidden states, even.
    #[schemars(transform = size())]
    pub d_model: usize,
    /// Number of heads of attention.
    #[schemars(transform = size())]
    pub n_head: usize,
    /// Width of the feed-forward layer.
    #[schemars(transform = size())]
    pub d_inner: usize,
    /// Number of layers of the model.
    #[schemars(transform = size())]
    pub n_layer: usize,
    /// Positions of memory in each layer.
    #[schemars(transform = width())]
    pub mem_len: usize,
    /// First ids of the clusters of words.
    pub cutoffs: Vec<usize>,
}

impl Default for Plain {
    fn default() -> Self {
        Self {
            vocab_size: 0,
            d_model: 8,
            n_head: 2,
            d_inner: 16,
            n_layer: 2,
            mem_len: 4,
            cutoffs: Vec::new(),
        }
    }
}

impl ModelSection for Plain {
    const TYPE: &'static str = "plain";
    const TITLE: &'static str = "Plain";
    const READS: &'static [&'static str] =
        &["data", "pairs", "objective", "adversarial", "task", "train", "eval", "average"];

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        check_heads(self.d_model, self.n_head, 0)
    }

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        config.check_text()
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn set_vocabulary(&mut self, size: usize, _: Option<u32>) -> Result<(), ConfigError> {
        self.vocab_size = size;
        Ok(())
    }

    fn mem_len(&self) -> usize {
        self.mem_len
    }
}

/// A model of two networks that reads pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Paired {
    /// Positions of memory in each layer.
    #[schemars(transform = width())]
    pub mem_len: usize,
    /// First positions of a segment that enter the memory.
    #[schemars(transform = width())]
    pub reuse_len: usize,
}

impl Default for Paired {
    fn default() -> Self {
        Self { mem_len: 384, reuse_len: 256 }
    }
}

impl ModelSection for Paired {
    const TYPE: &'static str = "paired";
    const TITLE: &'static str = "Paired";
    const READS: &'static [&'static str] =
        &["data", "pairs", "objective", "adversarial", "task", "train", "eval", "average"];
    const NETWORKS: &'static [&'static str] = &["reader", "writer"];

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        config.check_pairs(self.reuse_len)?;
        config.check_text()
    }

    fn run_defaults(config: &mut Config) {
        config.data.order = DataOrder::Pairs;
        config.train.segment = 512;
        config.objective.kind = ObjectiveKind::Permutation;
    }

    fn reuse_len(&self) -> Option<usize> {
        Some(self.reuse_len)
    }

    fn mem_len(&self) -> usize {
        self.mem_len
    }
}
