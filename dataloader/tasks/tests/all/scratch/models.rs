//! A model that is fine-tuned, for configurations of tests.

use std::sync::LazyLock;

use schemars::JsonSchema;
use segue_configs::{ConfigError, ModelSection, ModelType, Models, SectionType};
use segue_dataloader::sections::SegmentConfig;
use segue_tasks::TaskConfig;
use serde::{Deserialize, Serialize};

/// The one model.
pub static MODELS: LazyLock<Models> = LazyLock::new(|| Models::new(vec![ModelType::of::<Encoder>()]));

/// Its section, which is empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Encoder {}

impl ModelSection for Encoder {
    const TYPE: &'static str = "encoder";
    const TITLE: &'static str = "Encoder";
    const SECTIONS: &'static [SectionType] =
        &[SectionType::of::<SegmentConfig>(), SectionType::of::<TaskConfig>()];
    const READS: &'static [&'static str] = &["task", "train"];

    fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}
