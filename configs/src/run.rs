//! `[run]`, `[checkpoint]` and `[log]`: where a run lives, and what of it is kept and reported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::Range;

/// `[run]`: where a run lives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Folder of the run: configuration, checkpoints, metrics, logs. Required.
    pub dir: String,
}

/// `[checkpoint]`: when state is written, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Steps between checkpoints; 0 for the last step only.
    pub every: u64,
    /// Minutes between checkpoints, by the clock of rank 0, beside those of `every`; 0 for none.
    #[schemars(transform = Range::at_least(0.0).in_double())]
    pub minutes: f64,
    /// Checkpoints of every so many steps are kept for good; 0 for none.
    pub keep_every: u64,
    /// Pre-training: keep the model of the best evaluation in the run's folder `best`. Fine-tuning always does.
    pub best: bool,
    /// Number of newest checkpoints that are kept.
    #[schemars(transform = Range::at_least(2)
        .or_too_small("two checkpoints at least: the newest may be the one that breaks"))]
    pub keep: usize,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 1000, minutes: 0.0, keep_every: 0, best: false, keep: 3 }
    }
}

/// `[log]`: what is reported, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Steps between two reports.
    #[schemars(transform = Range::at_least(1))]
    pub every: u64,
    /// Write TensorBoard event files beside `metrics.jsonl`.
    pub tensorboard: bool,
    /// Where rows of `metrics.jsonl` go besides: `"csv"` to `RUN/metrics.csv`, `"mlflow"` to the file store of MLflow.
    pub sinks: Vec<SinkKind>,
    /// Folder of the MLflow store; empty for `RUN/mlruns`.
    pub mlflow_dir: String,
    /// Name of the MLflow experiment.
    pub mlflow_experiment: String,
    /// Every so many steps the gradient noise scale is measured, from the gradients of single micro-steps and of the whole
    /// batch; 0 for never. Needs two micro-steps at least.
    pub noise_scale_every: u64,
    /// First step that is traced.
    #[schemars(transform = Range::at_least(1))]
    pub trace_from: u64,
    /// Steps that are traced: what each thread of each rank does and when, to `RUN/trace`; 0 for none.
    pub trace_steps: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            every: 10,
            tensorboard: true,
            sinks: Vec::new(),
            mlflow_dir: String::new(),
            mlflow_experiment: "segue".into(),
            noise_scale_every: 0,
            trace_from: 1,
            trace_steps: 0,
        }
    }
}

/// What rows are written to besides `metrics.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SinkKind {
    /// A line for each number.
    Csv,
    /// MLflow's file store.
    Mlflow,
}
