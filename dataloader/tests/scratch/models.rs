//! A model for configurations of tests of the crates in `dataloader/`, which know none: one that reads pairs.

use std::sync::LazyLock;

use schemars::JsonSchema;
use segue_configs::model::width;
use segue_configs::{Config, ConfigError, DataOrder, ModelSection, ModelType, Models, ObjectiveKind, range};
use serde::{Deserialize, Serialize};

/// The one model.
pub static MODELS: LazyLock<Models> = LazyLock::new(|| Models::new(vec![ModelType::of::<Paired>()]));

/// Its section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paired {
    /// First positions of a sequence that are those of the one before.
    #[schemars(transform = width())]
    pub reuse_len: usize,
}

impl Default for Paired {
    fn default() -> Self {
        Self { reuse_len: 256 }
    }
}

impl ModelSection for Paired {
    const TYPE: &'static str = "paired";
    const TITLE: &'static str = "Paired";
    const READS: &'static [&'static str] = &["data", "pairs", "objective", "task", "train", "eval"];

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        config.check_pairs(self.reuse_len)?;
        config.check_text()
    }

    fn run_defaults(config: &mut Config) {
        config.data.order = DataOrder::Pairs;
        config.train.segment = 512;
        config.objective.kind = ObjectiveKind::Permutation;
    }

    fn reuse_len(&self) -> Option<usize> {
        Some(self.reuse_len)
    }
}
