//! The step engine: micro-steps, gradient buckets, reduction over ranks, update, evaluation. It knows
//! objectives and ranks, and nothing of any particular model.

mod buckets;
mod data;
mod evaluate;
mod layout;
mod reducer;
mod replicas;
mod run;
mod step;

pub use buckets::GradientBuckets;
pub use data::open_lanes;
pub use evaluate::{EvalOptions, Evaluation, evaluate};
pub use layout::{Layout, check_ranks};
pub use run::{Event, Outcome, Started, pretrain};
pub use step::{Engine, StepReport};
