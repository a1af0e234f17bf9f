//! `[recovery]`: how a run goes on where it cannot go on as it began.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::out_of_range;
use crate::range;
use crate::{Config, ConfigError};

/// What follows a loss or a gradient that is not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// The run ends with exit code 80, after a checkpoint of the last good step.
    Stop,
    /// The step makes no update; its batch is left out.
    Skip,
    /// The run goes back to the newest of the checkpoints that `checkpoint.every` asks for, and leaves out the batches from
    /// there up to this step (Chowdhery 2022, section 5.1). Where there is none yet, as `skip`.
    RollBack,
}

/// `[recovery]`: how a run goes on where it cannot go on as it began. What is done is written in `trainer_state.json`; the
/// run is then no longer the one that its configuration alone gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoveryConfig {
    /// What follows a loss or a gradient that is not finite. All ranks do the same.
    pub non_finite: NonFinite,
    /// How often in a run that may happen before it stops all the same.
    pub at_most: u64,
    /// Steps whose batches are left out, such as `"120"` or `"4990-5010"`: they make no update.
    pub skip_steps: Vec<String>,
    /// Keys that may have other values than in the checkpoint that the run goes on from, such as `"optim.lr"`.
    pub allow_change: Vec<String>,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self { non_finite: NonFinite::Stop, at_most: 10, skip_steps: Vec::new(), allow_change: Vec::new() }
    }
}

impl RecoveryConfig {
    /// The steps of `skip_steps`.
    pub fn skipped(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        self.skip_steps.iter().filter_map(|text| steps(text))
    }
}

/// `"120"` or `"4990-5010"`.
fn steps(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (1 <= first && first <= last).then_some(first..=last)
}

impl Config {
    pub(crate) fn check_recovery(&self) -> Result<(), ConfigError> {
        range::check("recovery", &self.recovery)?;
        if let Some(bad) = self.recovery.skip_steps.iter().find(|text| steps(text).is_none()) {
            let why = "steps are numbers from 1, such as \"120\" or \"4990-5010\"";
            return Err(out_of_range("recovery.skip_steps", bad, why));
        }
        let json = self.to_json();
        let known = |key: &&String| json.pointer(&format!("/{}", key.replace('.', "/"))).is_some();
        match self.recovery.allow_change.iter().find(|key| !known(key)) {
            Some(bad) => Err(out_of_range("recovery.allow_change", bad, "no section has such a key")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::MODELS;

    #[test]
    fn steps_are_numbers_or_ranges() {
        let load = |value: &str| {
            let loaded = MODELS.load(None, &[format!("recovery.skip_steps={value}")]);
            loaded.map(|loaded| loaded.config.recovery.skipped().collect::<Vec<_>>())
        };
        assert_eq!(load(r#"["7", "120 - 140"]"#).unwrap(), [7..=7, 120..=140]);
        for bad in [r#"["0"]"#, r#"["9-3"]"#, r#"["x"]"#] {
            assert!(load(bad).unwrap_err().to_string().contains("recovery.skip_steps"), "{bad}");
        }
    }

    #[test]
    fn keys_that_may_change_must_be_there() {
        let load = |key: &str| MODELS.load(None, &[format!("recovery.allow_change=[\"{key}\"]")]);
        assert!(load("optim.lr").is_ok() && load("schedule").is_ok());
        assert!(load("optim.rate").unwrap_err().to_string().contains("optim.rate"));
    }
}
