//! The `[model]` section.

use std::any::Any;

use schemars::JsonSchema;
use segue_configs::range::{self, Range};
use segue_configs::{Config, ConfigError, DeviceKind, ModelSection};
use serde::{Deserialize, Serialize};

/// `model_type = "slope"`: a number is learnt from pairs (x, truth · x).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlopeConfig {
    /// The number that is to be learnt.
    #[schemars(transform = Range::any())]
    pub truth: f64,
}

impl Default for SlopeConfig {
    fn default() -> Self {
        Self { truth: 2.0 }
    }
}

impl ModelSection for SlopeConfig {
    const TYPE: &'static str = "slope";
    const TITLE: &'static str = "Slope";
    const TRAINS_ON_CARDS: bool = false;

    fn family() -> &'static (dyn Any + Send + Sync) {
        &super::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    fn run_defaults(config: &mut Config) {
        config.train.device = DeviceKind::Cpu;
    }
}
