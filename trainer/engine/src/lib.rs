//! The engine: the loop over steps, micro-steps, gradient buckets, reduction over ranks, updates, checkpoints. It knows
//! learners, families and ranks by trait, and nothing of any particular model.

mod agreement;
mod alignment;
mod averages;
mod best;
mod buckets;
mod carries;
pub mod checkpoint;
mod cursors;
mod digest;
mod doubles;
mod evaluation;
mod event;
mod family;
mod fill;
mod groups;
mod guard;
pub mod identity;
mod jobs;
mod keeper;
mod kept;
mod layout;
mod learner;
mod micro_step;
mod network;
pub mod optim;
mod preparation;
mod publication;
mod recovery;
mod reducer;
mod repeat;
mod replicas;
mod row_counter;
mod rows;
mod run;
mod scattered;
mod search;
mod shard;
mod share;
mod snapshot;
mod sound;
mod spoil;
mod stages;
mod staging;
mod state;
mod step;
mod sums;
mod tables;

pub use agreement::{kernels, program};
pub use buckets::GradientBuckets;
pub use buckets::group;
pub use event::{EarlyEnd, Event, Outcome, Started};
pub use family::{
    Begun, Better, Family, FamilyBatch, FamilyReader, KeepBest, Labels, LossAs, Measures, Place, Prepared,
};
pub use fill::fill;
pub use groups::by_group;
pub use layout::{Layout, check_ranks};
pub use learner::{Learner, Look, Loss, Tally, Turn};
pub use network::Network;
pub use run::train;
pub use share::{Share, Watch};
pub use state::{LossSum, check_same_run};
pub use step::{Engine, StepReport};
pub use sums::library as nccl;
