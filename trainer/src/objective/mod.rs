//! Objectives: what turns a batch and memory into a loss. They return sums, never means, so that the
//! engine can divide once by the weight of the whole global batch.

mod language_model;

use segue_configs::{EvalConfig, ModelConfig};
use tch::{Kind, Tensor};

use crate::Parameters;
use crate::model::Memory;
use crate::noise::Noise;

pub use language_model::LanguageModel;

/// One micro-batch.
#[derive(Debug)]
pub struct Batch {
    /// Token ids, `[micro_batch, segment]`.
    pub inputs: Tensor,
    /// The token after each, `[micro_batch, segment]`.
    pub targets: Tensor,
}

/// What one micro-step gives.
pub struct Loss {
    /// Sum over targets, in nats; scalar, with its graph.
    pub sum: Tensor,
    /// Targets it is a sum of.
    pub weight: f64,
    /// What the lanes carry to their next segment.
    pub memory: Memory,
}

/// A trainable objective over one set of parameters.
pub trait Objective {
    /// What is trained.
    fn parameters(&self) -> &Parameters;

    /// What `lanes` carry before their first segment.
    fn memory_start(&self, lanes: i64) -> Memory;

    /// Loss of one micro-batch; dropout is on where there is noise.
    fn loss(&self, batch: &Batch, memory: &Memory, noise: Option<&Noise>) -> Loss;

    /// How far attention looks: as `[eval]` says, or with `None` as in training.
    fn look(&mut self, eval: Option<&EvalConfig>);

    /// −log P of each target, `[micro_batch, segment]` in nats, and the next memory; no graph, no
    /// dropout.
    fn score(&self, batch: &Batch, memory: &Memory) -> (Tensor, Memory);
}

/// The objective of the configured model, with fresh weights drawn from `seed`.
pub fn build(config: &ModelConfig, seed: u64) -> Box<dyn Objective> {
    match config {
        ModelConfig::TransfoXl(_) => Box::new(LanguageModel::new(config, seed, Kind::Float)),
    }
}
