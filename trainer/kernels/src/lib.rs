//! Tensors below any layer: what speaks to libtorch past `tch`, products, kernels for cards and loops for the processor, noise, named
//! parameters and how they start, what lanes carry. It knows no layer, no learner and no rank.

mod arrivals;
pub mod cards;
mod carry;
mod compute;
mod error;
mod kernels;
pub mod libtorch;
pub mod noise;
mod parameters;
mod row_map;
pub mod simd;
pub mod threads;

pub use arrivals::{Arrivals, Awaited};
pub use carry::Carry;
pub use compute::Compute;
pub use error::{NoWayBack, TrainError};
pub use kernels::Kernels;
pub use parameters::{Init, Options, ParameterSpec, Parameters};
pub use row_map::RowMap;
