//! Models: what turns token ids and memory into hidden states and losses. Nothing here knows of ranks.

mod activation;
mod attention;
mod heads;
mod memory;
mod norm;
mod transfo_xl;
mod words;
mod xlnet;

use segue_configs::ModelConfig;
use tch::Tensor;

use crate::ParameterSpec;

pub use attention::{Context, attention_mask, relative_shift, sinusoids, sinusoids_between};
pub use heads::{
    Beam, HeadConfig, KernelHead, SpanHead, SpanLabels, SummaryHead, TagHead, by_choice,
    classification_losses, kernel_features, pair_losses, squared_errors,
};
pub use memory::{Memory, NO_DOCUMENT};
pub(crate) use transfo_xl::cluster_shapes;
pub use transfo_xl::{AdaptiveEmbedding, AdaptiveSoftmax, Encoding, Output, Positions, Segment, TransfoXl};
pub use words::WordVectors;
pub(crate) use xlnet::BLOCK_ROWS;
pub use xlnet::{Sequence, States, Visibility, Xlnet};

/// Parameters of the configured model, without making them.
pub fn specs(config: &ModelConfig) -> Vec<ParameterSpec> {
    match config {
        ModelConfig::TransfoXl(config) => TransfoXl::specs(config),
        ModelConfig::Xlnet(config) => Xlnet::specs(config),
    }
}

/// Names under which Hugging Face also stores a parameter of the configured model: `(its name, ours)`.
pub fn aliases(config: &ModelConfig) -> Vec<(String, String)> {
    match config {
        ModelConfig::TransfoXl(config) => TransfoXl::aliases(config),
        ModelConfig::Xlnet(config) => Xlnet::aliases(config),
    }
}

/// Parameters of the configured model that Hugging Face's package finds under other names only, once for each:
/// `(its name, ours)`.
pub fn copies(config: &ModelConfig) -> Vec<(String, String)> {
    match config {
        ModelConfig::TransfoXl(_) => Vec::new(),
        ModelConfig::Xlnet(config) => Xlnet::copies(config),
    }
}

/// Tensors that Hugging Face stores and that follow from the configuration alone.
pub fn buffers(config: &ModelConfig) -> Vec<(String, Tensor)> {
    match config {
        ModelConfig::TransfoXl(config) => TransfoXl::buffers(config),
        ModelConfig::Xlnet(_) => Vec::new(),
    }
}
