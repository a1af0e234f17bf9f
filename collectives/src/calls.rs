//! The last calls of this process to other ranks, and those that it is in: what to look at where a job hangs.
//!
//! A call that may wait for another rank holds a [`Waiting`] meanwhile. It stays known after its end, until many others have come after it.
//! Nothing here needs the thread that is stuck: any other one may ask for [`recent`] or [`longest_wait`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::trace_span;

/// Calls that stay known.
const KEPT: usize = 512;

static CALLS: Mutex<VecDeque<Entry>> = Mutex::new(VecDeque::new());
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds that the main thread has waited for other ranks.
static WAITED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Calls that this thread has begun: the threads of all ranks make the same ones in the same order.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

struct Entry {
    number: u64,
    call: Call,
    began: Instant,
    took: Option<Duration>,
}

/// A call to other ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The thread that made it; each has a channel of its own.
    pub thread: String,
    /// Which call of its thread it is, from 1.
    pub sequence: u64,
    /// This rank.
    pub rank: usize,
    /// The function of the library.
    pub name: &'static str,
    /// For which rank, where it is one.
    pub peer: Option<usize>,
    /// How many bytes of this rank are in it.
    pub bytes: usize,
}

/// A [`Call`], and when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    /// What it is.
    pub call: Call,
    /// How long ago it began.
    pub ago: Duration,
    /// How long it took; `None` while it goes on.
    pub took: Option<Duration>,
}

/// A call that goes on, until it is dropped.
pub(crate) struct Waiting {
    number: u64,
    _span: tracing::span::EnteredSpan,
}

impl Waiting {
    /// `rank` begins to wait for `peer`, or for all ranks, in the call `name`, with `bytes` of its own.
    pub(crate) fn begin(rank: usize, name: &'static str, peer: Option<usize>, bytes: usize) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let sequence = BEGUN.get() + 1;
        BEGUN.set(sequence);
        let thread = std::thread::current().name().unwrap_or_default().to_string();
        let call = Call { thread, sequence, rank, name, peer, bytes };
        let mut calls = lock();
        calls.push_back(Entry { number, call, began: Instant::now(), took: None });
        if calls.len() > KEPT
            && let Some(oldest) = calls.iter().position(|entry| entry.took.is_some())
        {
            calls.remove(oldest);
        }
        drop(calls);
        Self { number, _span: trace_span!(target: "communication", "call", call = name, bytes).entered() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut calls = lock();
        let Some(entry) = calls.iter_mut().rev().find(|entry| entry.number == self.number) else { return };
        let took = entry.began.elapsed();
        entry.took = Some(took);
        if entry.call.thread == "main" {
            WAITED.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// The last calls of this process, the oldest first.
pub fn recent() -> Vec<Recent> {
    let recent =
        |entry: &Entry| Recent { call: entry.call.clone(), ago: entry.began.elapsed(), took: entry.took };
    lock().iter().map(recent).collect()
}

/// The call that this process has been in for longest.
pub fn longest_wait() -> Option<Recent> {
    recent().into_iter().find(|recent| recent.took.is_none())
}

/// How long the main thread has waited for other ranks in all: the rank that all others wait for waits least.
pub fn waited() -> Duration {
    Duration::from_nanos(WAITED.load(Ordering::Relaxed))
}

fn lock() -> MutexGuard<'static, VecDeque<Entry>> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of this process share the calls: each looks at those of its own thread.
    fn own(name: &str) -> Vec<Recent> {
        recent().into_iter().filter(|recent| recent.call.thread == name).collect()
    }

    #[test]
    fn calls_stay_known_and_those_that_go_on_for_longest() {
        let work = || {
            let outer = Waiting::begin(3, "first", None, 7);
            for nth in 0..2 * KEPT {
                Waiting::begin(3, "later", Some(nth), 0);
            }
            let found = own("calls");
            assert!(found.len() <= KEPT && found.len() > KEPT / 2);
            let first = &found[0];
            assert_eq!((first.call.name, first.call.bytes, first.took), ("first", 7, None));
            let sequences: Vec<u64> = found.iter().map(|recent| recent.call.sequence).collect();
            assert!(sequences.is_sorted() && sequences.ends_with(&[2 * KEPT as u64 + 1]));
            assert!(longest_wait().is_some_and(|wait| wait.ago >= first.ago));
            drop(outer);
            assert!(own("calls").iter().all(|recent| recent.took.is_some()));
        };
        std::thread::Builder::new().name("calls".into()).spawn(work).unwrap().join().unwrap();
    }
}
