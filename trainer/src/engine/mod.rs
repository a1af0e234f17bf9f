//! The step engine: micro-steps, gradient buckets, reduction over ranks, update, evaluation. It knows
//! objectives and ranks, and nothing of any particular model.

mod agreement;
mod buckets;
mod data;
mod evaluate;
mod evaluate_pairs;
mod layout;
mod reducer;
mod replicas;
mod rows;
mod run;
mod sources;
mod step;
mod updater;

pub(crate) use agreement::{check_agreement, newest_checkpoint};
pub use buckets::GradientBuckets;
pub use data::{micro_batches, open_lanes};
pub use evaluate::{EvalOptions, Evaluation, OfPairs, OfText, WithoutMemory, evaluate};
pub use evaluate_pairs::PairValidation;
pub use layout::{Layout, check_ranks};
pub(crate) use replicas::check_replicas;
pub use run::{Event, Outcome, Started, pretrain};
pub use sources::Sources;
pub use step::Engine;
pub use updater::{MicroLoss, StepReport, Updater};
