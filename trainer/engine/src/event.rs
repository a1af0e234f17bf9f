//! What a run tells of itself while it goes on, and how it ended.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::family::{Labels, Measures};
use super::state::LossSum;
use super::step::StepReport;
use crate::optim::NoiseScale;

/// What a run is about, told once.
#[derive(Debug, Clone)]
pub struct Started {
    /// Steps already made.
    pub step: u64,
    /// The last step that was evaluated, as far as the checkpoint knows.
    pub evaluated: u64,
    /// Steps to make in all.
    pub steps: u64,
    /// Times the run has been started.
    pub attempt: u64,
    /// Trained values.
    pub parameters: usize,
    /// Values of the model that stay as they are.
    pub held: usize,
    /// Ranks.
    pub world_size: usize,
    /// Bytes of optimizer state that this rank holds.
    pub optimizer_bytes: u64,
    /// In which words the run is reported.
    pub labels: Labels,
    /// The checkpoint it goes on from.
    pub resumed: Option<PathBuf>,
    /// Newer checkpoints that did not verify.
    pub refused: Vec<String>,
    /// Parameters that start as they are drawn although others were given.
    pub fresh: Vec<String>,
    /// Keys that have other values than in the checkpoint it goes on from, a line each.
    pub changed: Vec<String>,
}

/// What happens while a run goes on. Every rank sees every event.
#[derive(Debug)]
pub enum Event {
    /// Something that a family computes before its run is set up goes on.
    Preparing {
        /// What it is.
        what: &'static str,
        /// Parts done.
        done: u64,
        /// All.
        total: u64,
    },
    /// Everything is set up.
    Started(Started),
    /// A step is over.
    Step {
        /// What it did.
        report: StepReport,
        /// Targets trained on so far.
        tokens: u64,
        /// Work of the step over all ranks, in units of `Labels::rate_of`.
        work: f64,
        /// Loss since the last report, where one is due after this step.
        due: Option<LossSum>,
        /// The noise in the gradient of the report's network, as far as it has been measured.
        noise: Option<NoiseScale>,
        /// Wall time of the step.
        elapsed: Duration,
        /// Of it, waiting for data.
        data_wait: Duration,
        /// Of it, copying state or waiting for the checkpoint before.
        checkpoint_stall: Duration,
    },
    /// An evaluation goes on.
    Evaluating {
        /// Parts done.
        done: u64,
        /// All.
        total: u64,
    },
    /// An evaluation is over.
    Evaluated {
        /// After this step.
        step: u64,
        /// What it found.
        measures: Measures,
        /// Whether it is the best so far, where the best model is kept.
        best: Option<bool>,
    },
    /// A checkpoint is about to be written. What was told until now is of the steps before it, and is not told again by a run that goes on
    /// from it.
    Checkpointing,
    /// A checkpoint is on the disk (rank 0).
    Checkpointed {
        /// Its folder.
        path: PathBuf,
    },
    /// A step made no update: its batch was left out.
    Skipped {
        /// Its number.
        step: u64,
    },
    /// The gradients of a step overflowed under the scale of its loss: it made no update, and the scale shrinks. The step is told of all the same.
    Overflowed {
        /// Its number.
        step: u64,
        /// The scale.
        scale: f64,
    },
    /// The run stands again where its checkpoint of step `to` does.
    RolledBack {
        /// Steps made.
        to: u64,
        /// The last of them that was evaluated.
        evaluated: u64,
    },
    /// Something went wrong that does not end the run.
    Warning {
        /// What, in words.
        what: String,
    },
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Steps made.
    pub step: u64,
    /// Loss of the last step of this attempt.
    pub loss: Option<f64>,
    /// What the last evaluation of this attempt found.
    pub evaluation: Option<Value>,
    /// Step and value of the best evaluation, where the best model is kept.
    pub best: Option<(u64, f64)>,
    /// Stopped by a request, with a checkpoint, before its end.
    pub preempted: bool,
    /// Why it ended before its last step, where it did and is not to go on.
    pub stopped_early: Option<EarlyEnd>,
}

/// Why a run ended before its last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyEnd {
    /// No evaluation was better in as many in a row as its patience has.
    Patience(u64),
    /// The last stage of `average.fine_tuning` is over.
    Stages,
    /// `train.time_limit` is over.
    TimeLimit,
}
