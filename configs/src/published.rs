use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[published]`: what a paper or a program says of the model of a recipe, for `--dry-run`. It changes nothing that is
/// computed, so it is no part of a run's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct PublishedConfig {
    /// Exact number of parameters, each shared one counted once; 0 where none is published.
    pub parameters: u64,
    /// Number of parameters as Yang 2019 rounds it, such as `151M`.
    pub thesis_parameters: String,
    /// Result that Yang 2019 reports for it, such as `24.0 perplexity`.
    pub thesis_result: String,
    /// Where figures and settings of the recipe come from.
    pub source: String,
}
