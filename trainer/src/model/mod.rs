//! Models: what turns token ids and memory into hidden states and losses. Nothing here knows of ranks.

mod adaptive;
mod attention;
mod encoding;
mod layer;
mod memory;
mod transfo_xl;

use segue_configs::ModelConfig;
use tch::Tensor;

use crate::ParameterSpec;

pub(crate) use adaptive::cluster_shapes;
pub use adaptive::{AdaptiveEmbedding, AdaptiveSoftmax};
pub use attention::{Context, attention_mask, relative_shift, sinusoids};
pub use encoding::{Encoding, Positions};
pub use memory::{Memory, NO_DOCUMENT};
pub use transfo_xl::{Output, Segment, TransfoXl};

/// Parameters of the configured model, without making them.
pub fn specs(config: &ModelConfig) -> Vec<ParameterSpec> {
    match config {
        ModelConfig::TransfoXl(config) => TransfoXl::specs(config),
    }
}

/// Names under which Hugging Face also stores a parameter of the configured model: `(its name, ours)`.
pub fn aliases(config: &ModelConfig) -> Vec<(String, String)> {
    match config {
        ModelConfig::TransfoXl(config) => TransfoXl::aliases(config),
    }
}

/// Tensors that Hugging Face stores and that follow from the configuration alone.
pub fn buffers(config: &ModelConfig) -> Vec<(String, Tensor)> {
    match config {
        ModelConfig::TransfoXl(config) => TransfoXl::buffers(config),
    }
}
