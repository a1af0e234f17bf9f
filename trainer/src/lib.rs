//! Models, objectives, optimizers, the step engine, checkpoints, evaluation and generation.

mod arrivals;
pub mod cards;
pub mod checkpoint;
mod compute;
pub mod convert;
pub mod cost;
pub mod engine;
mod error;
pub mod evaluation;
pub mod families;
pub mod generate;
mod kernels;
pub mod layers;
pub mod libtorch;
pub mod metrics;
pub mod noise;
pub mod optim;
mod parameters;
pub mod parity;
pub mod report;
mod simd;
mod threads;

pub use arrivals::{Arrivals, Awaited};
pub use compute::Compute;
pub use error::{NoWayBack, TrainError};
pub use kernels::Kernels;
pub use parameters::{Init, Options, ParameterSpec, Parameters};

/// All kernels for cards.
pub fn card_sources() -> impl Iterator<Item = &'static cards::Source> {
    layers::card_sources().chain([&optim::LAMB, &optim::NORMS])
}

/// Those that cards were to work with and have not.
pub fn missing_kernels() -> Vec<cards::Missing> {
    cards::Missing::of(card_sources())
}
