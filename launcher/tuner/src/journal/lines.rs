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
    /// Its loss was not a number.
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
}

impl Told {
    /// Of a trial with the lowest loss `loss`. One that is not a number makes it infeasible, whatever else it is.
    pub fn new(trial: usize, state: State, loss: f64, turns: Vec<f64>) -> Self {
        let finite = loss.is_finite() && state != State::Infeasible;
        let turns = turns.into_iter().take_while(|loss| loss.is_finite()).collect();
        let state = if finite { state } else { State::Infeasible };
        Self { trial, state, loss: finite.then_some(loss), turns }
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
}
