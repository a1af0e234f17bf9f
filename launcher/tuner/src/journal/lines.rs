//! What the lines of a journal say.

use std::collections::BTreeMap;

use segue_configs::study::SearchKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was trained to its end.
    Done,
    /// It was given up after a turn; its loss is the best up to there.
    Stopped,
    /// It has no loss: that was not a number, or there is a [`Cause`].
    Infeasible,
}

/// A proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Its number, from 0.
    pub trial: usize,
    /// What proposed it.
    pub by: SearchKind,
    /// Its point in the unit cube.
    pub point: Vec<f64>,
    /// The settings there, by key.
    pub settings: BTreeMap<String, String>,
}

/// Why a training ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Its exit code.
    pub code: i32,
    /// The error it said last.
    pub why: String,
}

impl Cause {
    /// Whether another one is the same error. Digits do not count: trials differ in their settings, steps and sizes.
    pub fn is_like(&self, other: &Cause) -> bool {
        let words = |why: &str| why.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        self.code == other.code && words(&self.why) == words(&other.why)
    }
}

/// The end of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its number.
    pub trial: usize,
    /// How it ended.
    pub state: State,
    /// The lowest loss of its evaluations, in nats a target.
    pub loss: Option<f64>,
    /// The losses at the ends of its turns.
    pub turns: Vec<f64>,
    /// Why it is infeasible, where that is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

impl Told {
    /// Of a trial with the lowest loss `loss`. One that is not a number makes it infeasible, whatever else it is.
    pub fn new(trial: usize, state: State, loss: f64, turns: Vec<f64>) -> Self {
        let finite = loss.is_finite() && state != State::Infeasible;
        let turns = turns.into_iter().take_while(|loss| loss.is_finite()).collect();
        let state = if finite { state } else { State::Infeasible };
        Self { trial, state, loss: finite.then_some(loss), turns, cause: None }
    }

    /// Of a trial that ended with an error as often as it was tried.
    pub fn failed(trial: usize, cause: Cause) -> Self {
        Self { cause: Some(cause), ..Self::new(trial, State::Infeasible, f64::NAN, Vec::new()) }
    }
}

/// The best trial's settings with another seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rerun {
    /// The trial.
    pub trial: usize,
    /// The seed of training.
    pub seed: u64,
    /// The lowest loss of its evaluations; none where that was not a number.
    pub loss: Option<f64>,
    /// Why there is none, where that is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// A training of the study: a trial, or with a seed a rerun of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Training {
    /// The trial.
    pub trial: usize,
    /// The seed of the rerun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// A training that ended with an error, and may be tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Fail {
    #[serde(flatten)]
    pub training: Training,
    pub cause: Cause,
}

/// What makes a study that one: other values are another study.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// A hash of the values.
    pub name: String,
    /// The values.
    pub of: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Line {
    Study {
        version: u32,
        study: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Value>,
    },
    Ask(Asked),
    Tell(Told),
    Rerun(Rerun),
    Fail(Fail),
    Retry(Training),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_alike_but_for_numbers() {
        let cause = |code, why: &str| Cause { code, why: why.into() };
        let one = cause(65, "a lane has 37 tokens");
        assert!(one.is_like(&cause(65, "a lane has 4 tokens")));
        assert!(!one.is_like(&cause(66, "a lane has 37 tokens")));
        assert!(!one.is_like(&cause(65, "a lane has no tokens")));
    }
}
