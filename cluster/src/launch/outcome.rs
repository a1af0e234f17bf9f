//! What an attempt of a job is allowed, and how it ended.

use std::time::Duration;

use serde::Serialize;

use super::hearing::FirstFailure;
use super::pulse::Beat;

/// How long a job may go on without getting on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// As long as its ranks allow each other.
    Never,
    /// Without a step, so long.
    Steps(Duration),
    /// By the pauses that it has made so far.
    Learnt,
}

/// When an attempt is taken for hung, and how it is ended.
#[derive(Debug, Clone)]
pub struct Limits {
    /// All ranks have to be heard of within so long.
    pub start: Duration,
    /// A rank that has been heard of and is silent for so long is gone.
    pub silence: Duration,
    /// When a job hangs whose ranks are all heard of.
    pub stall: Stall,
    /// What ranks have for a checkpoint once they are asked to stop.
    pub grace: Duration,
}

/// A rank as it was heard of last.
#[derive(Debug, Clone, Serialize)]
pub struct RankSeen {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// What it said last.
    pub last: Beat,
    /// Seconds from then to the end of the attempt.
    pub silent_s: f64,
    /// Its connection was closed, so that its process has ended.
    pub left: bool,
}

/// How an attempt ended.
#[derive(Debug, Clone, Serialize)]
pub struct Attempt {
    /// Exit code that ranks tell, else that of the starter; 128 + N where signal N ended it.
    pub code: i32,
    /// Why the supervisor ended it, where it did.
    pub hung: Option<String>,
    /// It did since a rank was out of sight, and not since none got on.
    #[serde(skip)]
    pub out_of_sight: bool,
    /// It was asked to stop.
    pub stopping: bool,
    /// All ranks were heard of.
    #[serde(skip)]
    pub begun: bool,
    /// The rank that failed first, as far as is known.
    pub first: Option<FirstFailure>,
    /// All ranks that were heard of.
    pub ranks: Vec<RankSeen>,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// The last lines of its stderr.
    pub last_lines: Vec<String>,
    /// How long ranks that may still run, out of sight, can go on.
    #[serde(skip)]
    pub lease_left: Duration,
}
