//! Models with latent variables, and Monte-Carlo objectives whose information between x and z is constrained (Melis 2023, chapter 5). See `README.md` beside this file.
//!
//! [`Scores`] are what samples say of examples, of which an [`Objective`] is made; an [`Estimator`] gives its gradient by the parameters of q. A [`Running`] estimate
//! evaluates with many samples. Everything is per example: a batch is no part of any bound.

pub mod estimator;
mod keys;
pub mod latents;
mod learner;
pub mod network;
pub mod objective;
pub mod running;
pub mod scores;
#[cfg(test)]
mod tests;

pub use estimator::Estimator;
pub use keys::{
    DataConfig, EstimatorKind, LatentConfig, LatentEvalConfig, LatentKind, ObjectiveConfig, ObjectiveKind,
};
pub use latents::{Categorical, Gaussian};
pub use learner::{Model, Training, divergence};
pub use network::{Decoder, Dropout, Encoder, LatentSizes, Posterior, Sentences, Sizes};
pub use objective::{Counts, Factors, Objective, Term};
pub use running::Running;
pub use scores::{Scores, log_mean_exp};
