//! What families build their models of. Nothing here knows of ranks, nor of any particular model.

pub(crate) mod activation;
mod adaptive_softmax;
pub(crate) mod adversarial;
pub(crate) mod attention;
mod cosine;
pub(crate) mod cross_entropy;
mod heads;
mod ids;
mod memory;
pub(crate) mod norm;
pub(crate) mod recompute;
pub mod recurrent;
mod words;

pub use activation::Activation;
pub use adaptive_softmax::AdaptiveSoftmax;
pub(crate) use adaptive_softmax::{ByCluster, Cluster};
pub use adversarial::Adversary;
pub use attention::{Context, attention_mask, relative_shift, sinusoids, sinusoids_between};
pub use cosine::mean_cosine;
pub use heads::{
    Beam, HeadConfig, JudgedFrom, KernelHead, QUERY_SEGMENT, SpanHead, SpanLabels, SummaryHead, TagHead,
    by_choice, classification_losses, kernel_features, pair_losses, squared_errors,
};
pub use ids::Ids;
pub use memory::{Memory, NO_DOCUMENT};
pub use words::WordVectors;

use crate::cards::Source;

/// All kernels of layers for cards, and of the noise in them.
pub(crate) fn card_sources() -> impl Iterator<Item = &'static Source> {
    [
        &crate::noise::MASKS,
        &norm::card::NORMS,
        &activation::card::ACTIVATIONS,
        &cross_entropy::card::CROSS_ENTROPY,
        &attention::chunked::card::ATTENTION,
    ]
    .into_iter()
    .chain(&attention::flash::SOURCES)
}
