//! From gradients to updates: clipping, update rules, averages of weights, the learning rate.

mod adam;
pub mod averaging;
mod clip;
mod optimizer;
mod schedule;

pub use adam::Adam;
pub use clip::{clip_factor, global_norm};
pub use optimizer::{Counts, Optimizer, Update, build};
pub use schedule::learning_rate;
