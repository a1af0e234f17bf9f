//! Protocols that look at a trained model, beyond the perplexity of a split: sliding windows, the cost of
//! a token, relative effective context length, dynamic evaluation, temperature, dropout, recovery, gates, samples of text, how word vectors
//! lie. They leave the model as they found it. Those that take a communicator share their work over ranks. One needs no model: which
//! dependencies training covers.

mod coverage;
mod dynamic;
mod embeddings;
mod fit;
mod gates;
mod gradient;
mod loss_cache;
mod monte_carlo;
mod positions;
mod recl;
mod recovery;
mod samples;
mod score;
mod sliding;
mod speed;
mod statistics;
mod temperature;
mod walk;
mod windows;

pub use coverage::{Coverage, Covered, Factorised, MAX_ORDERS};
pub use dynamic::{DynamicOptions, Rule, dynamic_evaluation, dynamic_passes, dynamic_trials};
pub use embeddings::{
    Density, Embeddings, Energy, States, density, energies, hull_distance, hull_distances, nearest_distances,
    normalised_singular_values, recognisable,
};
pub use fit::{LineFit, fit_line};
pub use gates::{GateMoments, LayerGates, Moments, gate_moments};
pub use gradient::GradientOf;
pub use loss_cache::{LossCache, weights_fingerprint};
pub use monte_carlo::{AfterPasses, Mean, MonteCarloOptions, Passes, monte_carlo};
pub use positions::{drawn_positions, spread_positions};
pub use recl::{DEFAULT_THRESHOLD, LossGroup, Recl, contexts_between};
pub use recovery::{Recovery, recovery};
pub use samples::{Sample, SampleOptions, draw_samples};
pub use score::score_file;
pub use sliding::{Sliding, SlidingOptions, sliding};
pub use speed::{Agreement, SpeedOptions, SpeedPoint, SpeedReport, THESIS_RATIOS, agreement, speed};
pub use statistics::{GradientStatistics, MeanOver, StatisticsOptions, gradient_statistics};
pub use temperature::{Tried, USUAL_TOKENS, best, search_temperature};
pub use walk::{Walk, token_losses};
pub use windows::{banded_losses, recurrent_losses, truncated_losses};
