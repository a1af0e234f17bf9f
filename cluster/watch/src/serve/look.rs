//! Snapshots of runs as text, rendered once for all clients.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::page::{whole, without_curves};
use crate::{RunView, Runs, now, prometheus};

/// How often the folders of runs are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// What stands around the data of a server-sent event.
const EVENT: (&str, &str) = ("data: ", "\n\n");

/// Runs as they were seen at a look.
#[derive(Default)]
pub struct Look {
    /// How many looks there were before.
    pub number: u64,
    /// When, in seconds since 1970.
    at: f64,
    /// One that has not changed is the same object as before.
    runs: Vec<Arc<RunView>>,
    before: Vec<Arc<RunView>>,
    everything: OnceLock<Bytes>,
    changes: OnceLock<Bytes>,
    metrics: OnceLock<Bytes>,
}

impl Look {
    fn new(runs: &mut Runs, before: Option<&Self>) -> Self {
        let known = before.map_or(&[][..], |before| &before.runs);
        let seen = |(i, run): (usize, &RunView)| match known.get(i) {
            Some(same) if **same == *run => Arc::clone(same),
            _ => Arc::new(run.clone()),
        };
        let number = before.map_or(0, |before| before.number + 1);
        let runs = runs.look().enumerate().map(seen).collect();
        Self { number, at: now(), runs, before: known.to_vec(), ..Self::default() }
    }

    /// All runs, as an event.
    pub fn everything(&self) -> Bytes {
        let all = || self.event(self.runs.iter().enumerate().map(|(i, run)| whole(i, run)).collect());
        self.everything.get_or_init(all).clone()
    }

    /// All runs, as JSON.
    pub fn json(&self) -> Bytes {
        let event = self.everything();
        event.slice(EVENT.0.len()..event.len() - EVENT.1.len())
    }

    /// The runs that are not what they were at the look before, as an event; curves only of those that have grown. Runs keep their numbers,
    /// new ones come last.
    pub fn changes(&self) -> Bytes {
        let changed = |(i, run): (usize, &Arc<RunView>)| match self.before.get(i) {
            Some(before) if Arc::ptr_eq(before, run) => None,
            Some(before) if before.series == run.series => Some(without_curves(i, run)),
            _ => Some(whole(i, run)),
        };
        let all = || self.event(self.runs.iter().enumerate().filter_map(changed).collect());
        self.changes.get_or_init(all).clone()
    }

    /// All runs, for Prometheus.
    pub fn metrics(&self) -> Bytes {
        self.metrics.get_or_init(|| prometheus::exposition(self.runs.iter().map(Arc::as_ref)).into()).clone()
    }

    fn event(&self, runs: Vec<Value>) -> Bytes {
        format!("{}{}{}", EVENT.0, json!({ "now": self.at, "runs": runs }), EVENT.1).into()
    }
}

/// Polls the runs on a thread of its own, as file systems may be slow. The thread ends when the last receiver is dropped.
pub fn follow(mut runs: Runs) -> std::io::Result<watch::Receiver<Arc<Look>>> {
    let (told, seen) = watch::channel(Arc::new(Look::new(&mut runs, None)));
    thread::Builder::new().name("watch-runs".into()).spawn(move || {
        while !told.is_closed() {
            thread::sleep(EVERY);
            let before = Arc::clone(&told.borrow());
            told.send_replace(Arc::new(Look::new(&mut runs, Some(&before))));
        }
    })?;
    Ok(seen)
}
