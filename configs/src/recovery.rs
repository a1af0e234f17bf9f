//! `[recovery]`: how a run goes on where it cannot go on as it began.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::Range;
use crate::refusal::{no_effect, out_of_range};
use crate::{Config, ConfigError};

/// What follows a loss, a gradient or weights that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// The run ends with exit code 80, after a checkpoint of the last good step. Of weights that are not finite there is none.
    Stop,
    /// The step makes no update; its batch is left out. Weights that are not finite end the run: no batch mends them.
    Skip,
    /// The run goes back to the newest of the checkpoints that `checkpoint.every` asks for, and leaves out the batches from
    /// there up to this step (Chowdhery 2022, section 5.1). Where there is none yet, as `skip`.
    RollBack,
    /// The run goes on from the weights and the optimizer of its best evaluation, at `rate_factor` of the learning rate,
    /// and leaves out this step (Melis 2023, §4.4). Averages begin anew, and lanes with a fresh carry; they stay at their
    /// place in the data. Before the first evaluation it goes on from the weights it began with.
    RestoreBest,
}

/// `[recovery]`: how a run goes on where it cannot go on as it began. What is done is written in `trainer_state.json`; the
/// run is then no longer the one that its configuration alone gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoveryConfig {
    /// What follows a loss or a gradient that is not finite, or such weights, moments and averages, which are looked at before each checkpoint
    /// and evaluation. All ranks do the same.
    pub non_finite: NonFinite,
    /// How often in a run that may happen before it stops all the same.
    pub at_most: u64,
    /// With `restore_best`: what the learning rate is multiplied by each time, for the rest of the run.
    #[schemars(transform = Range::above(0.0).at_most(1.0))]
    pub rate_factor: f64,
    /// With `restore_best`, but not for tasks and `planetoid`: a validation loss of so much more than the best one counts as not finite; 0 for none does.
    /// Melis' runs over words: 0.5 nats.
    #[schemars(transform = Range::at_least(0.0).in_double())]
    pub diverged_by: f64,
    /// With `restore_best`: so does one of more than this many times the best one. Melis' runs over characters: 1.2.
    #[schemars(transform = Range::at_least(0.0).in_double())]
    pub diverged_times: f64,
    /// Steps whose batches are left out, such as `"120"` or `"4990-5010"`: they make no update.
    pub skip_steps: Vec<String>,
    /// Keys that may have other values than in the checkpoint that the run goes on from, such as `"optim.lr"`.
    pub allow_change: Vec<String>,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            non_finite: NonFinite::Stop,
            at_most: 10,
            rate_factor: 0.9,
            diverged_by: 0.0,
            diverged_times: 0.0,
            skip_steps: Vec::new(),
            allow_change: Vec::new(),
        }
    }
}

impl RecoveryConfig {
    /// Whether validation losses are compared with the best one.
    pub fn judges_losses(&self) -> bool {
        self.diverged_by > 0.0 || self.diverged_times > 0.0
    }

    /// Whether a validation loss is that of a run that has diverged, where `best` is the best so far.
    pub fn diverged(&self, loss: f64, best: Option<f64>) -> bool {
        let above = |limit: f64| loss > limit;
        let by = |best: &f64| self.diverged_by > 0.0 && above(best + self.diverged_by);
        let times = |best: &f64| self.diverged_times > 0.0 && above(best * self.diverged_times);
        !loss.is_finite() || best.is_some_and(|best| by(&best) || times(&best))
    }

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
        if let Some(bad) = self.recovery.skip_steps.iter().find(|text| steps(text).is_none()) {
            let why = "steps are numbers from 1, such as \"120\" or \"4990-5010\"";
            return Err(out_of_range("recovery.skip_steps", bad, why));
        }
        let (own, default) = (&self.recovery, RecoveryConfig::default());
        let of_best = [
            ("recovery.rate_factor", own.rate_factor, default.rate_factor),
            ("recovery.diverged_by", own.diverged_by, default.diverged_by),
            ("recovery.diverged_times", own.diverged_times, default.diverged_times),
        ];
        let restores = own.non_finite == NonFinite::RestoreBest;
        if let Some((key, set, _)) = of_best.into_iter().find(|(_, set, default)| !restores && set != default)
        {
            return Err(no_effect(key, set, "needs recovery.non_finite = \"restore_best\""));
        }
        if 0.0 < own.diverged_times && own.diverged_times < 1.0 {
            let why = "must be 0 or at least 1: the best loss itself has not diverged";
            return Err(out_of_range("recovery.diverged_times", own.diverged_times, why));
        }
        if let Some((key, set, _)) =
            of_best[1..].iter().find(|(_, set, _)| !self.task.name.is_empty() && *set > 0.0)
        {
            return Err(no_effect(key, set, "is for losses, and tasks are judged by their measures"));
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

    /// Row M11.
    #[test]
    fn a_loss_diverges_by_a_distance_or_a_ratio() {
        let load = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| format!("recovery.{key}")).collect();
            MODELS.load(None, &keys).map(|loaded| loaded.config.recovery).map_err(|e| e.to_string())
        };
        let words = load(&["non_finite=restore_best", "diverged_by=0.5"]).unwrap();
        assert!(
            words.diverged(4.6, Some(4.0)) && !words.diverged(4.4, Some(4.0)) && !words.diverged(9.0, None)
        );
        let characters = load(&["non_finite=restore_best", "diverged_times=1.2"]).unwrap();
        assert!(characters.diverged(1.3, Some(1.0)) && !characters.diverged(1.1, Some(1.0)));
        assert!(words.diverged(f64::NAN, None) && characters.diverged(f64::INFINITY, Some(1.0)));
        for (keys, named) in [
            (&["diverged_by=0.5"][..], "recovery.diverged_by"),
            (&["non_finite=skip", "rate_factor=0.5"], "recovery.rate_factor"),
            (&["non_finite=restore_best", "diverged_times=0.9"], "recovery.diverged_times"),
            (&["non_finite=restore_best", "rate_factor=0"], "recovery.rate_factor"),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(&format!("`{named}`")), "{keys:?}: {message}");
        }
    }

    #[test]
    fn keys_that_may_change_must_be_there() {
        let load = |key: &str| MODELS.load(None, &[format!("recovery.allow_change=[\"{key}\"]")]);
        assert!(load("optim.lr").is_ok() && load("schedule").is_ok());
        assert!(load("optim.rate").unwrap_err().to_string().contains("optim.rate"));
    }
}
