//! Models, objectives, optimizers, the step engine, checkpoints, evaluation and generation.

pub mod checkpoint;
pub mod convert;
pub mod cost;
pub mod engine;
mod error;
pub mod evaluation;
pub mod generate;
mod kernels;
pub mod libtorch;
pub mod metrics;
pub mod model;
pub mod next_token;
pub mod noise;
pub mod objective;
pub mod optim;
mod parameters;
pub mod parity;
pub mod report;
mod simd;
pub mod tasks;
mod threads;

pub use error::TrainError;
pub use kernels::Kernels;
pub use parameters::{Init, ParameterSpec, Parameters};
