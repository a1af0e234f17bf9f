//! What takes the place of the system.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// A thread of a simulation, by number.
pub type Thread = usize;

/// What a thread waits for, and another tells it of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource(u64);

/// With what a thread unwinds whose process was killed: nothing of the process is to run any more.
#[derive(Debug)]
pub struct Killed;

/// What a simulation answers at a point of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing happens.
    None,
    /// What is asked of the system there is refused, with this number of its errors.
    System(i32),
    /// A tensor is spoiled there: one value becomes NaN.
    Nan,
    /// One bit of a value flips.
    Flip,
}

/// Decides which thread runs, one at a time, and what becomes of it.
///
/// A thread calls with its own number, `me`. Where its process was killed, a call unwinds with [`Killed`], unless the thread unwinds
/// already.
pub trait Simulation: Send + Sync {
    /// Takes note of a thread that `me` is about to start, and gives its number.
    fn start(&self, me: Thread, name: &'static str) -> Thread;
    /// The thread's first call: comes back when it may run.
    fn begin(&self, me: Thread);
    /// Its last.
    fn end(&self, me: Thread);
    /// Lets others run until somebody wakes `resource`, or for no reason.
    fn wait(&self, me: Thread, resource: Resource);
    /// What waits for `resource` may look again.
    fn wake(&self, resource: Resource);
    /// The time.
    fn now(&self) -> Instant;
    /// Lets others run until then.
    fn sleep(&self, me: Thread, until: Instant);
    /// The thread comes by the point `name`, where others may run, and something may happen.
    fn point(&self, me: Thread, name: &str) -> Refusal;
    /// What is at `path`, a file's bytes or a folder's names, is on the disk from now on.
    fn synced(&self, me: Thread, path: &Path);
    /// Whether the thread's process was killed.
    fn is_killed(&self, me: Thread) -> bool;
}

/// Whether there has ever been a simulation in this process.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// A thread's place in its simulation.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) simulation: Arc<dyn Simulation>,
    pub(crate) me: Thread,
}

pub(crate) fn current() -> Option<Seat> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    CURRENT.with_borrow(Clone::clone)
}

/// Runs `work` on the calling thread as thread `me` of `simulation`.
pub fn enter<T>(simulation: Arc<dyn Simulation>, me: Thread, work: impl FnOnce() -> T) -> T {
    /// However the work ends, the thread leaves.
    struct Leave(Option<Seat>, Seat);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.1.simulation.end(self.1.me);
            CURRENT.replace(self.0.take());
        }
    }
    ANY.store(true, Ordering::Relaxed);
    let seat = Seat { simulation, me };
    let _leave = Leave(CURRENT.replace(Some(seat.clone())), seat.clone());
    seat.simulation.begin(me);
    work()
}

/// The calling thread comes by the point `name`. Nothing outside of a simulation.
pub fn point(name: &str) -> Refusal {
    current().map_or(Refusal::None, |seat| seat.simulation.point(seat.me, name))
}

/// Tells a simulation that what is at `path`, a file's bytes or a folder's names, would outlast a power cut from now on.
pub fn synced(path: &Path) {
    if let Some(seat) = current() {
        seat.simulation.synced(seat.me, path);
    }
}

/// Whether the calling thread unwinds since its process was killed. Such a process leaves everything as it is, and so must what is
/// dropped.
pub fn is_killed() -> bool {
    current().is_some_and(|seat| seat.simulation.is_killed(seat.me))
}

impl Resource {
    #[allow(clippy::new_without_default)]
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Self(NUMBER.fetch_add(1, Ordering::Relaxed))
    }
}

impl Refusal {
    /// As the system says it.
    ///
    /// # Errors
    ///
    /// What is refused.
    pub fn as_io(self) -> io::Result<()> {
        match self {
            Self::System(number) => Err(io::Error::from_raw_os_error(number)),
            _ => Ok(()),
        }
    }
}
