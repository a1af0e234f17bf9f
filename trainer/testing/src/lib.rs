//! What tests of the crates below `trainer/` share.

pub mod emulated;
mod models;
mod runs;

pub use models::{MODELS, config, flops, models};
pub use runs::{assert_same_bytes, tables, write_idx};
