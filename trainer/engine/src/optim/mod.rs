//! From gradients to updates: clipping, update rules, averages of weights, the learning rate.

mod adam;
pub mod averaging;
mod build;
mod clip;
mod counts;
mod lamb;
mod loss_scale;
mod noise_scale;
mod optimizer;
mod piece;
mod schedule;
mod sgd;
mod state;
#[cfg(test)]
mod tests;
mod update;

pub use adam::Adam;
pub use build::{build, updates_rows};
pub use clip::card::NORMS;
pub use clip::{chunks, clip_factor, joint_norm, norms};
pub use counts::Counts;
pub use lamb::Lamb;
pub use lamb::card::LAMB;
pub use loss_scale::{LossScale, LossScaler, Scaled};
pub use noise_scale::{NoiseEstimate, NoiseScale};
pub use optimizer::Optimizer;
pub use piece::Piece;
pub use schedule::Schedule;
pub use sgd::Sgd;
pub use state::State;
pub use update::Update;
