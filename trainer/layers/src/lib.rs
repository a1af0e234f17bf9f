//! What families build their models of. Nothing here knows of ranks, nor of any particular model.

pub mod activation;
mod adaptive_softmax;
pub mod adversarial;
pub mod attention;
pub mod batch_norm;
mod cosine;
pub mod cross_entropy;
mod heads;
mod ids;
mod memory;
pub mod norm;
mod positions;
pub mod recompute;
pub mod recurrent;
mod residual;
pub mod rows;
pub mod weight_norm;
mod words;

use segue_kernels::cards::Source;

pub use activation::Activation;
pub use adaptive_softmax::AdaptiveSoftmax;
pub use adaptive_softmax::{ByCluster, Cluster};
pub use adversarial::{AdversarialConfig, Adversary, MarginGradient, MarginKind};
pub use attention::{Context, attention_mask, relative_shift, sinusoids, sinusoids_between};
pub use cosine::mean_cosine;
pub use heads::{
    Beam, HeadConfig, JudgedFrom, KernelHead, QUERY_SEGMENT, SpanHead, SpanLabels, SummaryHead, TagHead,
    by_choice, classification_losses, kernel_features, pair_losses, squared_errors,
};
pub use ids::Ids;
pub use memory::{Memory, NO_DOCUMENT};
pub use positions::{position_vector, position_vectors};
pub use residual::{NormPlace, Residual};
pub use words::WordVectors;

/// All kernels of layers for cards, and of the noise in them.
pub fn card_sources() -> impl Iterator<Item = &'static Source> {
    [
        &segue_kernels::noise::MASKS,
        &norm::card::NORMS,
        &activation::card::ACTIVATIONS,
        &cross_entropy::card::CROSS_ENTROPY,
        &attention::chunked::card::ATTENTION,
    ]
    .into_iter()
    .chain(&attention::flash::SOURCES)
}
