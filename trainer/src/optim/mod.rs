//! From gradients to updates: clipping, Adam, the learning rate; and averages of the weights over updates.

mod adam;
mod average;
pub mod averaging;
mod clip;
mod schedule;

pub use adam::Adam;
pub use average::Average;
pub use clip::{clip_factor, global_norm};
pub use schedule::learning_rate;
