//! `RUN/launch/ranks.json`: what a supervisor heard last of each rank, which it writes anew about once a second.

use serde::{Deserialize, Serialize};

/// The file's name in the folder of reports of a run.
pub const RANKS_FILE: &str = "ranks.json";

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveRanks {
    /// The attempt that they belong to.
    pub attempt: u64,
    /// How many ranks it has.
    pub world_size: usize,
    /// When this was written, in seconds since 1970.
    pub written: f64,
    /// Those that were heard of.
    pub ranks: Vec<RankState>,
}

/// A rank as it was heard of last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankState {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// The step that it makes; 0 before the first.
    pub step: u64,
    /// Bytes that it has resident.
    pub resident: u64,
    /// What it waits for, where it does.
    pub waits: Option<WaitState>,
    /// Seconds from its last word to when this was written.
    pub age_s: f64,
    /// Its connection is closed, or it has taken its leave.
    pub left: bool,
}

/// A wait for other ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitState {
    /// The call.
    pub call: String,
    /// For whom, where it is one rank.
    pub peer: Option<usize>,
    /// How long by then, in seconds.
    pub seconds: f64,
}

impl LiveRanks {
    /// Steps that `rank` is behind the one that is furthest.
    pub fn lag(&self, rank: &RankState) -> u64 {
        self.ranks.iter().map(|other| other.step).max().unwrap_or(0).saturating_sub(rank.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_that_behind_the_furthest() {
        let rank = |rank, step| RankState { rank, step, ..RankState::default() };
        let live = LiveRanks { ranks: vec![rank(0, 7), rank(1, 4)], ..LiveRanks::default() };
        assert_eq!([0, 1].map(|i| live.lag(&live.ranks[i])), [0, 3]);
    }
}
