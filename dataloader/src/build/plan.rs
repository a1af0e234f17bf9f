use std::collections::BTreeMap;
use std::path::Path;

use segue_data_error::DataError;
use segue_publish::read_regular;
use segue_tokenizer::TrainOptions;
use serde::{Deserialize, Serialize};

use super::inputs::Stretch;
use super::options::{BuildOptions, InvalidUtf8, TokenizerChoice};
use crate::corpus::Split;
use crate::preset::Preset;

/// Version of the files in a build's own folder; another version's build is begun anew.
const PLAN_VERSION: u32 = 3;
/// Name of the plan in a build's own folder.
pub(crate) const PLAN_FILE: &str = "plan.json";

/// Everything that the result of a build depends on. A build that finds another plan than its own in its output folder
/// begins anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    version: u32,
    preset: Preset,
    tokenizer: PlannedTokenizer,
    compress: bool,
    invalid_utf8: InvalidUtf8,
    #[serde(default)]
    split_sentences: bool,
    #[serde(default)]
    no_eod: bool,
    shard_tokens: u64,
    pub(crate) splits: BTreeMap<Split, Stretch>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PlannedTokenizer {
    Preset,
    Trained(TrainOptions),
    Given(String),
}

impl Plan {
    pub(crate) fn new(options: &BuildOptions, splits: BTreeMap<Split, Stretch>) -> Plan {
        Plan {
            version: PLAN_VERSION,
            preset: options.preset,
            tokenizer: match &options.tokenizer {
                TokenizerChoice::Preset => PlannedTokenizer::Preset,
                TokenizerChoice::Train(options) => PlannedTokenizer::Trained(options.clone()),
                TokenizerChoice::Given(tokenizer) => PlannedTokenizer::Given(tokenizer.fingerprint()),
            },
            compress: options.compress,
            invalid_utf8: options.invalid_utf8,
            split_sentences: options.split_sentences,
            no_eod: options.no_eod,
            shard_tokens: options.shard_tokens,
            splits,
        }
    }

    /// The plan of the build that was interrupted in this folder, if there is one that can be read.
    pub(crate) fn read(scratch: &Path) -> Option<Plan> {
        serde_json::from_slice(&read_regular(scratch.join(PLAN_FILE)).ok()?).ok()
    }

    pub(crate) fn write(&self, scratch: &Path) -> Result<(), DataError> {
        let text = serde_json::to_vec(self).map_err(|e| DataError::write(scratch, e.into()))?;
        Ok(segue_publish::write_file(&scratch.join(PLAN_FILE), &text)?)
    }

    /// What has changed since another plan, in the user's terms.
    pub(crate) fn difference(&self, old: &Plan) -> String {
        if self.version != old.version {
            return "the version of this program changed".into();
        }
        for (split, stretch) in &self.splits {
            let Some(before) = old.splits.get(split) else {
                return format!("the {split} split is new");
            };
            for (now, then) in stretch.sources.iter().zip(&before.sources) {
                if now.text_column != then.text_column {
                    return "the column of the text changed".into();
                }
                if now.path == then.path && now != then {
                    return format!("the input {} changed", now.path.display());
                }
            }
            if stretch != before {
                return format!("the inputs of the {split} split changed");
            }
        }
        match self.tokenizer == old.tokenizer {
            true => "the options changed".into(),
            false => "the tokenizer changed".into(),
        }
    }
}
