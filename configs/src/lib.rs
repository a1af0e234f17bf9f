//! Typed, validated configuration of a Segue run.
//!
//! A run is described by one TOML file (a *recipe*) and `key=value` overrides in the dotted names of
//! that file. [`Models::load`] merges defaults, recipe and overrides, remembers where each value came from,
//! and returns a [`Config`] whose ranges hold: the rest of the program trusts it. This crate knows no model: each
//! declares its `[model]` section, a [`ModelSection`], and stands in the program's one list of [`Models`].

pub mod advice;
mod average;
mod config;
mod counted;
mod error;
mod eval;
pub mod exit_code;
pub mod foreign;
mod idle;
mod keys;
mod large_batch;
mod machine;
mod merge;
pub mod model;
mod models;
mod names;
mod optim;
mod own;
mod precision;
mod products;
mod published;
pub mod range;
mod reads;
mod recipe_reader;
mod recovery;
pub mod reference;
mod refusal;
mod run;
mod schedule;
pub mod schema;
mod section;
pub mod shipped;
pub mod study;
pub mod sweep;
mod tables;
mod task;
#[cfg(test)]
mod testing;
mod toml_text;
mod train;
mod unique;

pub use average::{AverageConfig, AverageKind, AverageTrigger, DecidingLoss, TwoTailedVariant};
pub use config::Config;
pub use counted::counted;
pub use error::ConfigError;
pub use eval::EvalConfig;
pub use idle::Idle;
pub use machine::{
    Achieved, Bandwidth, ByPrecision, Latency, Machine, MachineKind, Observed, ObservedModel, Series,
};
pub use merge::Loaded;
pub use model::{MemoryStart, ModelConfig, ModelSection};
pub use models::{ModelType, Models};
pub use names::{listed, nearest_name};
pub use optim::{LayerDecay, OptimConfig, OptimKind};
pub use own::{OwnSection, OwnSections, SectionType};
pub use precision::{LossScaleConfig, LossScaleKind};
pub use products::{Precision, Products};
pub use published::PublishedConfig;
pub use recipe_reader::{RecipeReader, model_layer};
pub use recovery::{NonFinite, RecoveryConfig};
pub use refusal::{no_effect, out_of_range};
pub use run::{CheckpointConfig, LogConfig, RunConfig, SinkKind};
pub use schedule::{CountOf, DecayFrom, Fall, LineEnd, RateScale, RisingRate, ScheduleConfig, ScheduleKind};
pub use task::{FinetuneConfig, finetuning_defaults};
pub use train::{CollectivesKind, DeviceKind, ReducePrecision, Shard, TrainConfig};
pub use unique::check_unique;
