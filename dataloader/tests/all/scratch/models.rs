//! A model for configurations of tests of the crates in `dataloader/`, which know none: one that reads pairs.

use std::sync::LazyLock;

use schemars::JsonSchema;
use segue_configs::model::width;
use segue_configs::{Config, ConfigError, ModelSection, ModelType, Models, SectionType, range};
use segue_dataloader::sections::{
    DataConfig, DataOrder, ObjectiveConfig, ObjectiveKind, PairsConfig, SegmentConfig, TextEvalConfig,
};
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
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<PairsConfig>(),
        SectionType::of::<SegmentConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<TextEvalConfig>(),
    ];
    const READS: &'static [&'static str] = &["data", "pairs", "objective", "task", "train", "eval"];

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    fn run_defaults(config: &mut Config) {
        config.change(|data: &mut DataConfig| data.order = DataOrder::Pairs);
        config.change(|segments: &mut SegmentConfig| segments.segment = 512);
        config.change(|objective: &mut ObjectiveConfig| objective.kind = ObjectiveKind::Permutation);
    }

    fn reuse_len(&self) -> Option<usize> {
        Some(self.reuse_len)
    }
}
