//! Protocols that look at a trained model, beyond the perplexity of a split: sliding windows, the cost of
//! a token, relative effective context length, dynamic evaluation, samples of text, how word vectors lie. All of
//! them run in one process and leave the model as they found it. One needs no model: which dependencies training covers.

mod coverage;
mod dynamic;
mod embeddings;
mod fit;
mod loss_cache;
mod positions;
mod recl;
mod samples;
mod score;
mod sliding;
mod speed;
mod windows;

pub use coverage::{Coverage, Covered, Factorised, MAX_ORDERS};
pub use dynamic::{DynamicOptions, GradientStatistics, Rule, dynamic_evaluation, gradient_statistics};
pub use embeddings::{
    Density, Embeddings, density, hull_distance, hull_distances, nearest_distances,
    normalised_singular_values,
};
pub use fit::{LineFit, fit_line};
pub use loss_cache::{LossCache, weights_fingerprint};
pub use positions::{drawn_positions, spread_positions};
pub use recl::{DEFAULT_THRESHOLD, LossGroup, Recl, contexts_between};
pub use samples::{Sample, SampleOptions, draw_samples};
pub use score::score_file;
pub use sliding::{Sliding, SlidingOptions, sliding};
pub use speed::{Agreement, SpeedOptions, SpeedPoint, SpeedReport, THESIS_RATIOS, agreement, speed};
pub use windows::{banded_losses, recurrent_losses, truncated_losses};
