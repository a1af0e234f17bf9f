//! What is called how in the folder of a run.

/// Folder of the best model, in the folder of a run that keeps it.
pub const BEST: &str = "best";
/// What the evaluation found that a best model is of: its step, its `value`, and more.
pub const METRICS: &str = "metrics.json";
/// Prefix of the folder with the model of a stage; the number of the stage follows.
pub const STAGE: &str = "stage-";
/// The folder of a run's checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
