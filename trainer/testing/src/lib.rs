//! What tests of the crates below `trainer/` share.

pub mod emulated;
mod models;

pub use models::{MODELS, config, flops, models};
