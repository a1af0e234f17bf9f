use std::sync::LazyLock;

use schemars::JsonSchema;
use segue_configs::{Config, ConfigError, ModelSection, ModelType, Models};
use serde::{Deserialize, Serialize};

/// One model that asks nothing of a run, for what knows no family.
pub static MODELS: LazyLock<Models> = LazyLock::new(|| Models::new(vec![ModelType::of::<Plain>()]));

/// A model that reads streams.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Plain {
    /// Entries of the vocabulary.
    vocab_size: usize,
    /// Width of the hidden states.
    d_model: usize,
}

impl ModelSection for Plain {
    const TYPE: &'static str = "plain";
    const TITLE: &'static str = "Plain";
    const READS: &'static [&'static str] =
        &["data", "pairs", "objective", "adversarial", "task", "train", "eval", "average"];

    fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// A list with one model alone, for what knows one family.
pub fn models<T: ModelSection>() -> &'static Models {
    Box::leak(Box::new(Models::new(vec![ModelType::of::<T>()])))
}

/// The configuration of a run of this model, with overrides.
pub fn config<T: ModelSection>(keys: &[&str]) -> Config {
    let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
    models::<T>().load(None, &keys).unwrap().config
}

/// Operations of products `[m, k] × [k, n]`, given as (m, k, n): 2 m n k each.
pub fn flops(products: &[(u64, u64, u64)]) -> f64 {
    products.iter().map(|(m, n, k)| 2 * m * n * k).sum::<u64>() as f64
}
