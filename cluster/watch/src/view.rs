//! What there is to show of a run: plain data, that no view of it has to read anything for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::LiveRanks;

/// A curve: steps and values, in the order of the steps.
pub type Series = Vec<(u64, f64)>;

/// Whether a run goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// A process trains in it.
    Training,
    /// It has ended as asked: all of its steps are made, or it ended early by its own rules.
    Done,
    /// Nobody trains in it, and there is more to do.
    #[default]
    Stopped,
}

impl RunState {
    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Done => "done",
            Self::Stopped => "stopped",
        }
    }
}

/// All that is shown of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunView {
    /// What it goes by among those that are shown.
    pub name: String,
    /// Model or task.
    pub model: String,
    /// Whether it goes on.
    pub state: RunState,
    /// The step that was reported last.
    pub step: u64,
    /// The attempt that the newest row is of; 0 before the first.
    pub attempt: u64,
    /// Steps of the whole run; 0 where that is not known.
    pub steps: u64,
    /// Curves by name: `train/` and `eval/` in front of the key of `metrics.jsonl`. Who writes a view down thins them first.
    #[serde(skip)]
    pub series: BTreeMap<String, Series>,
    /// Last reported steps before another attempt went on.
    pub restarts: Vec<u64>,
    /// Rows of steps that a later attempt made again.
    pub superseded: u64,
    /// Steps of the checkpoints that are there.
    pub checkpoints: Vec<u64>,
    /// Attempts of `segue launch` that have ended.
    pub attempts: Vec<AttemptView>,
    /// Its ranks.
    pub ranks: RanksView,
    /// Text that the model wrote.
    pub samples: Vec<SampleView>,
    /// When it reported last, in seconds since 1970.
    pub updated: Option<f64>,
    /// What could not be read.
    pub problems: Vec<String>,
}

impl RunView {
    /// The newest value of a curve.
    pub fn last(&self, series: &str) -> Option<f64> {
        Some(self.series.get(series)?.last()?.1)
    }

    /// Attempts so far, as far as rows and reports tell.
    pub fn attempts_made(&self) -> u64 {
        self.attempt.max(self.attempts.len() as u64).max(self.ranks.seen.attempt)
    }

    /// The curve of speed: tokens a second, or examples.
    pub fn rate(&self) -> Option<&str> {
        let names = ["train/tokens_per_s", "train/examples_per_s"];
        names.into_iter().find(|name| self.series.contains_key(*name))
    }

    /// The curve that tells how good it is: what evaluations are chosen by, or their loss.
    pub fn evaluation(&self) -> Option<&str> {
        let names = [VALUE, "eval/loss"];
        names.into_iter().find(|name| self.series.contains_key(*name))
    }

    /// The metric that evaluations are chosen by, where they tell scores: the one with the same values.
    pub fn metric(&self) -> Option<&str> {
        let values = self.series.get(VALUE)?;
        let mut scores = self.series.iter().filter(|(name, _)| name.starts_with(SCORES));
        let (name, _) = scores.find(|(_, score)| *score == values)?;
        name.rsplit('/').next()
    }
}

/// Curves of evaluations: what they are chosen by, and all scores.
const VALUE: &str = "eval/value";
const SCORES: &str = "eval/scores/";

/// Ranks of a run, and how they are known.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RanksView {
    /// How they are known.
    pub from: RanksFrom,
    /// What is known of them.
    #[serde(flatten)]
    pub seen: LiveRanks,
}

/// How ranks are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RanksFrom {
    /// From a supervisor that hears them now.
    Live,
    /// From its report of the last attempt.
    Report,
    /// Not at all: no `segue launch` hears them, or has reported of them.
    #[default]
    Nobody,
}

/// An attempt of `segue launch` that has ended, from its report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptView {
    /// Its number.
    pub attempt: u64,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// How many ranks it had.
    pub world_size: usize,
    /// The step of the newest checkpoint before it.
    pub from_step: u64,
    /// The step of the newest checkpoint after it.
    pub to_step: u64,
    /// Exit code.
    pub code: i32,
    /// Why the supervisor ended it, where it did.
    pub hung: Option<String>,
    /// The rank that failed first, where one did.
    pub first: Option<FirstView>,
    /// What follows.
    pub next: String,
}

/// The rank that failed first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirstView {
    /// The rank.
    pub rank: usize,
    /// Its host, where that is known.
    pub host: Option<String>,
    /// What was said of it.
    pub what: String,
}

impl AttemptView {
    /// Why it ended, in a line.
    pub fn why(&self) -> String {
        match (&self.hung, &self.first) {
            (Some(why), _) => why.clone(),
            (None, Some(first)) => format!("rank {}: {}", first.rank, first.what),
            (None, None) if self.code == 0 => "done".into(),
            (None, None) => format!("exit code {}", self.code),
        }
    }
}

/// Text that the model wrote, as `segue generate samples --output RUN/samples` keeps it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SampleView {
    /// What was given.
    pub context: String,
    /// What the model wrote.
    pub sample: String,
    /// What really follows.
    pub reference: String,
}
