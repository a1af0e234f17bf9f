//! `[eval]`: evaluation while training.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::Range;

/// `[eval]`: evaluation of the validation split while training. A run without one is not evaluated. There is always
/// one after the last step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalConfig {
    /// Steps between evaluations; 0 for the end only.
    pub every: u64,
    /// Pre-training: stop when this many evaluations in a row bring nothing better, and keep the best model as
    /// `checkpoint.best` does; 0 for never.
    pub patience: u64,
    /// Minimum improvement that resets `patience`, in units of the measure that the best model is chosen by (nats a target of a loss), over the last evaluation that
    /// reset it. Any improvement replaces the best model.
    #[schemars(transform = Range::at_least(0.0).in_double())]
    pub min_delta: f64,
}
