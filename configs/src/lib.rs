//! Typed, validated configuration of a Segue run.
//!
//! A run is described by one TOML file (a *recipe*) and `key=value` overrides in the dotted names of
//! that file. [`load`] merges defaults, recipe and overrides, remembers where each value came from,
//! and returns a [`Config`] whose ranges hold: the rest of the program trusts it.
//!
//! ```
//! let loaded = segue_configs::load(None, &["train.lanes=4".into(), "model.d_model=64".into()])?;
//! assert_eq!(loaded.config.train.lanes, 4);
//! assert!(segue_configs::load(None, &["train.lane=4".into()]).unwrap_err().to_string().contains("train.lanes"));
//! # Ok::<(), segue_configs::ConfigError>(())
//! ```

mod average;
mod error;
mod merge;
mod model;
mod pretraining;
mod published;
mod sections;
pub mod sweep;
mod task;

pub use average::{AverageConfig, AverageKind, TwoTailedVariant};
pub use error::ConfigError;
pub use merge::{Loaded, load, load_over};
pub use model::{
    Activation, AttentionDirection, AttnType, InitKind, MemoryStart, ModelConfig, SameLengthKeys,
    TransfoXlConfig, XlnetConfig,
};
pub use pretraining::{MaskDraws, ObjectiveConfig, ObjectiveKind, PAIR_SPECIALS, PairsConfig, SpanKind};
pub use published::PublishedConfig;
pub use sections::{
    CheckpointConfig, Config, DataConfig, DataOrder, DecayFrom, DocumentEnd, EvalConfig, LayerDecay,
    LogConfig, LossKind, OptimConfig, OptimKind, RunConfig, ScheduleConfig, ScheduleKind, TrainConfig,
};
pub use task::{TaskConfig, TaskLoss, finetuning_defaults};
