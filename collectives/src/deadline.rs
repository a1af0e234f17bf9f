//! A deadline for whatever a rank waits for: the library's own calls wait for ever.
//!
//! A call that may wait for another rank holds a [`Waiting`] meanwhile. A thread looks at all of them; one that has waited too
//! long ends the job with [`EXIT_CODE`], and says for whom it waited. That works where the call itself gives nothing
//! back, and where the network to the other host is gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::stderr::print_line;

/// Exit code of a job that waited longer than its deadline.
pub const EXIT_CODE: i32 = 82;

/// How long the launcher may take to end the job, before this process ends by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// In milliseconds; 0 for none.
static DEADLINE: AtomicU64 = AtomicU64::new(0);
/// The step that is being made, for the message.
static STEP: AtomicU64 = AtomicU64::new(0);
static WAITING: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static NUMBER: AtomicU64 = AtomicU64::new(0);

struct Entry {
    number: u64,
    since: Instant,
    rank: usize,
    call: &'static str,
    peer: Option<usize>,
}

/// A wait that the deadline holds for, until it is dropped.
pub(crate) struct Waiting(u64);

/// Begins to look at what waits. `abort` ends the job on
/// all ranks with the code it is given, and need not come back.
pub(crate) fn watch(abort: impl Fn(i32) + Send + Sync + 'static) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let look = move || loop {
            std::thread::sleep(pause());
            if let Some(message) = overdue() {
                print_line(&message);
                end_soon();
                abort(EXIT_CODE);
            }
        };
        // Without the thread there is no deadline, which is what a job has that cannot start one.
        let _ = std::thread::Builder::new().name("deadline".into()).spawn(look);
    });
}

/// How long a rank may wait in one call; zero for as long as it takes.
pub fn set(deadline: Duration) {
    DEADLINE.store(deadline.as_millis() as u64, Ordering::Relaxed);
}

/// Tells which step is being made.
pub fn at_step(step: u64) {
    STEP.store(step, Ordering::Relaxed);
}

/// The step that is being made; 0 before the first.
pub fn step() -> u64 {
    STEP.load(Ordering::Relaxed)
}

/// What this process waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The call.
    pub call: &'static str,
    /// For which rank, where it is one.
    pub peer: Option<usize>,
    /// How long by now.
    pub so_far: Duration,
}

/// The longest wait for another rank that this process is in.
pub fn longest_wait() -> Option<Wait> {
    let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let longest = waiting.iter().min_by_key(|entry| entry.since)?;
    Some(Wait { call: longest.call, peer: longest.peer, so_far: longest.since.elapsed() })
}

fn pause() -> Duration {
    let deadline = Duration::from_millis(DEADLINE.load(Ordering::Relaxed));
    (deadline / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

/// What to say of a call that has waited too long.
fn overdue() -> Option<String> {
    let deadline = Duration::from_millis(DEADLINE.load(Ordering::Relaxed));
    let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = waiting.iter().find(|entry| !deadline.is_zero() && entry.since.elapsed() > deadline)?;
    let (rank, call) = (entry.rank, entry.call);
    let peer = entry.peer.map_or("other ranks".into(), |peer| format!("rank {peer}"));
    let step = match step() {
        0 => "before the first step".into(),
        step => format!("in step {step}"),
    };
    Some(format!(
        "segue: error on rank {rank}: {call} has waited {} s for {peer}, {step}\nhint: look at the hosts of the other ranks \
         and at the network between them, then start the job again: it resumes from the last checkpoint. A longer wait is \
         allowed by train.deadline",
        deadline.as_secs()
    ))
}

/// Ends this process by itself where aborting does not: what aborts talks over the same network.
fn end_soon() {
    let end = || {
        std::thread::sleep(PATIENCE);
        end_now(EXIT_CODE)
    };
    let _ = std::thread::Builder::new().name("deadline-end".into()).spawn(end);
}

/// Ends this process at once.
pub fn end_now(code: i32) -> ! {
    // SAFETY: ends the process without running anything of it; handlers of the library could wait as well.
    unsafe { libc::_exit(code) }
}

impl Waiting {
    /// `rank` begins to wait for `peer`, or for all ranks, in `call`.
    pub(crate) fn begin(rank: usize, call: &'static str, peer: Option<usize>) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { number, since: Instant::now(), rank, call, peer };
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        Self(number)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|entry| entry.number != self.0);
    }
}
