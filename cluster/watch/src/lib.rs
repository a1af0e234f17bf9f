//! Runs as people see them: while they live and after, in a terminal, in a browser, in one file, in Prometheus.
//!
//! A run is its folder. [`Runs`] reads those of some runs, again and again, each into a plain [`RunView`]; the others are functions of such views:
//! [`terminal`] draws them, [`serve`] sends them to the page that [`report`] writes into a file, [`prometheus`] lists them. Nothing here
//! writes into the folder of a run, and nothing here knows a tensor.

mod error;
pub mod exit_code;
mod flatten;
pub mod page;
pub mod prometheus;
mod ranks;
pub mod report;
mod run;
pub mod serve;
mod tail;
pub mod terminal;
mod thin;
mod view;

pub use error::WatchError;
pub use flatten::{Numbers, numbers};
pub use ranks::{LiveRanks, RANKS_FILE, RankState, WaitState};
pub use run::{DONE_FILE, Runs, is_held};
pub use tail::{News, Tail};
pub use thin::thinned;
pub use view::{AttemptView, RanksFrom, RanksView, RunState, RunView, SampleView, Series};

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
