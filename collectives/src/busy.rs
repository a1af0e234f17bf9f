//! Work of one rank that others wait for, such as a large file. It may take longer than their [`deadline`], as long as it gets on: the rank that is at
//! work says so from time to time. Of what hangs nothing more is heard, and the deadline counts from there. A flush to the disk is one call, which
//! cannot say how far it is: it counts as getting on for some deadlines, and then as hanging.
//!
//! ```
//! use segue_collectives::{Communicator, busy, simulated};
//! let made = simulated::run(3, |comm| busy::first_works(comm, || 0, || comm.rank() + 7).unwrap());
//! assert_eq!(made, [Some(7), None, None]);
//! ```

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{CollectiveError, Communicator, deadline};

/// The words of a rank to those that wait in [`await_end`].
const GETS_ON: [u8; 1] = [1];
const DONE: [u8; 1] = [0];

/// Signs of a deadline's length, and how far apart they are at most.
const SIGNS: u32 = 10;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Deadlines for which a single flush gets on. With the wait that follows, a disk that does not answer ends a job after four.
const FLUSH: u32 = 3;

/// How long a rank that is at work is silent; `None` where nobody counts.
fn pause() -> Option<Duration> {
    deadline::limit().map(|limit| (limit / SIGNS).min(LONGEST_PAUSE))
}

/// What of a flush that has lasted so long counts as progress.
fn progress_of_flush(lasts: Option<Duration>, deadline: Duration) -> Duration {
    lasts.unwrap_or_default().min(deadline.saturating_mul(FLUSH))
}

/// Does `work`, and meanwhile gives a `sign` now and then, where `progress` has grown since the one before, or a flush goes on. Signs come from
/// another thread: `work` must not talk over what they talk over.
///
/// # Errors
///
/// That of a sign, once the work is over; there are none after it.
pub fn with_signs<T>(
    progress: impl Fn() -> u64 + Send,
    sign: impl FnMut() -> Result<(), CollectiveError> + Send,
    work: impl FnOnce() -> T,
) -> Result<T, CollectiveError> {
    let (Some(deadline), Some(pause)) = (deadline::limit(), pause()) else { return Ok(work()) };
    let progress = move || (progress(), progress_of_flush(segue_world::flushing(), deadline));
    with_signs_every(pause, progress, sign, work)
}

fn with_signs_every<T, P: PartialEq + Copy + Send>(
    pause: Duration,
    progress: impl Fn() -> P + Send,
    mut sign: impl FnMut() -> Result<(), CollectiveError> + Send,
    work: impl FnOnce() -> T,
) -> Result<T, CollectiveError> {
    thread::scope(|scope| {
        let (working, over) = channel::<()>();
        let mut before = progress();
        let give = move || {
            while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let now = progress();
                if std::mem::replace(&mut before, now) != now {
                    deadline::gets_on();
                    sign()?;
                }
            }
            Ok(())
        };
        // Without the thread there are no signs, and others wait no longer than they always do.
        let signs = thread::Builder::new().name("signs".into()).spawn_scoped(scope, give);
        let made = work();
        drop(working);
        match signs.map(|signs| signs.join()) {
            Ok(Ok(Err(error))) => Err(error),
            _ => Ok(made),
        }
    })
}

/// Collective. Rank 0 does `work`, of which nothing is said over `comm`, and the others wait for its end, for as long as `progress` grows there.
/// Rank 0 gets what it has made.
///
/// # Errors
///
/// A rank is lost.
pub fn first_works<T>(
    comm: &dyn Communicator,
    progress: impl Fn() -> u64 + Send,
    work: impl FnOnce() -> T,
) -> Result<Option<T>, CollectiveError> {
    if comm.rank() > 0 {
        return await_end(comm).map(|()| None);
    }
    let made = with_signs(progress, || say(comm, &GETS_ON), work)?;
    end(comm)?;
    Ok(Some(made))
}

/// Rank 0 tells all others that it gets on. They are in [`await_end`], or come to it.
pub fn gets_on(comm: &dyn Communicator) -> Result<(), CollectiveError> {
    say(comm, &GETS_ON)
}

/// Ends the others' [`await_end`].
pub fn end(comm: &dyn Communicator) -> Result<(), CollectiveError> {
    say(comm, &DONE)
}

/// Waits for the [`end`] of what rank 0 is at.
pub fn await_end(comm: &dyn Communicator) -> Result<(), CollectiveError> {
    let mut word = GETS_ON;
    while word != DONE {
        comm.recv(0, &mut word)?;
        deadline::gets_on();
    }
    Ok(())
}

fn say(comm: &dyn Communicator, word: &[u8]) -> Result<(), CollectiveError> {
    (1..comm.world_size()).try_for_each(|peer| comm.send(peer, word))
}

/// When a sign is due of a rank that gives them between the parts of its work.
pub struct Rhythm(Instant);

impl Rhythm {
    /// From now on.
    #[expect(clippy::new_without_default, reason = "it depends on the time")]
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Whether a sign is due; true once for each. This rank gets on.
    pub fn is_due(&mut self) -> bool {
        deadline::gets_on();
        let due = pause().is_some_and(|pause| self.0.elapsed() >= pause);
        if due {
            self.0 = Instant::now();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::simulated;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn work_that_gets_on_is_told_of_and_work_that_hangs_is_not() {
        let (progress, given) = (AtomicU64::new(0), AtomicU64::new(0));
        let sign = || {
            given.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let look = || progress.load(Ordering::SeqCst);
        let work = || {
            // Each part is over when somebody has heard of it.
            for part in 1..=3 {
                progress.store(part, Ordering::SeqCst);
                while given.load(Ordering::SeqCst) < part {
                    thread::yield_now();
                }
            }
            "made"
        };
        assert_eq!(with_signs_every(SHORT, look, sign, work).unwrap(), "made");
        assert_eq!(given.load(Ordering::SeqCst), 3);
        // Looked at often, nothing has changed.
        let looks = AtomicU64::new(0);
        let hangs = || {
            while looks.load(Ordering::SeqCst) < 5 {
                thread::yield_now();
            }
        };
        let look = || {
            looks.fetch_add(1, Ordering::SeqCst);
            7
        };
        with_signs_every(SHORT, look, sign, hangs).unwrap();
        assert_eq!(given.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_flush_gets_on_for_three_deadlines() {
        let seconds = Duration::from_secs;
        let of = |lasts: &[u64]| -> Vec<Duration> {
            lasts.iter().map(|lasts| progress_of_flush(Some(seconds(*lasts)), seconds(10))).collect()
        };
        assert_eq!(of(&[0, 1, 11, 29, 30]), [0, 1, 11, 29, 30].map(seconds));
        assert_eq!(of(&[31, 3600]), [30, 30].map(seconds));
        assert_eq!(progress_of_flush(None, seconds(10)), Duration::ZERO);
    }

    #[test]
    fn a_sign_that_cannot_be_given_is_told_when_the_work_is_over() {
        let progress = AtomicU64::new(0);
        let failed = std::sync::atomic::AtomicBool::new(false);
        let sign = || {
            failed.store(true, Ordering::SeqCst);
            Err(CollectiveError::NcclUnavailable { reason: "on purpose".into() })
        };
        let work = || {
            progress.store(1, Ordering::SeqCst);
            while !failed.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        };
        let error = with_signs_every(SHORT, || progress.load(Ordering::SeqCst), sign, work).unwrap_err();
        assert!(error.to_string().contains("on purpose"), "{error}");
    }

    #[test]
    fn others_wait_for_the_end_whatever_they_hear_before() {
        let heard = simulated::run(3, |comm| {
            if comm.rank() > 0 {
                return await_end(comm).is_ok();
            }
            (0..5).try_for_each(|_| gets_on(comm)).and_then(|()| end(comm)).is_ok()
        });
        assert_eq!(heard, [true; 3]);
    }
}
