//! Threads and time.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::simulation::{Resource, Seat, current, enter};

/// A thread that was started.
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: thread::JoinHandle<T>,
    end: Arc<End>,
}

/// Whether a thread of a simulation has come to its end.
#[derive(Debug)]
struct End {
    resource: Resource,
    reached: OnceLock<()>,
}

/// Starts a thread, of the simulation that the calling one belongs to.
///
/// # Errors
///
/// The system has no thread to give.
pub fn spawn<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let end = Arc::new(End { resource: Resource::new(), reached: OnceLock::new() });
    let builder = thread::Builder::new().name(name.into());
    let Some(Seat { simulation, me }) = current() else {
        return Ok(JoinHandle { thread: builder.spawn(work)?, end });
    };
    let its_end = end.clone();
    let thread = simulation.start(me, name);
    let thread = builder.spawn(move || {
        enter(simulation, thread, || {
            let _ended = Ended(its_end);
            work()
        })
    })?;
    Ok(JoinHandle { thread, end })
}

struct Ended(Arc<End>);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.reached.set(());
        if let Some(seat) = current() {
            seat.simulation.wake(self.0.resource);
        }
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    ///
    /// What it panicked with.
    pub fn join(self) -> thread::Result<T> {
        if let Some(seat) = current() {
            while self.end.reached.get().is_none() {
                seat.simulation.wait(seat.me, self.end.resource);
            }
        }
        self.thread.join()
    }
}

/// The time by a clock that never goes back.
pub fn now() -> Instant {
    current().map_or_else(Instant::now, |seat| seat.simulation.now())
}

/// Waits for so long.
pub fn sleep(duration: Duration) {
    match current() {
        Some(seat) => seat.simulation.sleep(seat.me, seat.simulation.now() + duration),
        None => thread::sleep(duration),
    }
}
