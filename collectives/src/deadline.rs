//! A deadline for whatever a rank waits for: the library's own calls wait for ever.
//!
//! A thread looks at the [`calls`](crate::calls) that go on; one that has waited too long ends the job with [`EXIT_CODE`], and says for
//! whom it waited. That works where the call itself gives nothing
//! back, and where the network to the other host is gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::calls::longest_wait;
use crate::stderr::print_line;

/// Exit code of a job that waited longer than its deadline.
pub const EXIT_CODE: i32 = 82;

/// What to do about a wait that was too long.
pub(crate) const ADVICE: &str = "look at the hosts of the other ranks and at the network between them, then start the job again: it resumes \
     from the last checkpoint. A longer wait is allowed by train.deadline";

/// How long the launcher may take to end the job, before this process ends by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// In milliseconds; 0 for none.
static DEADLINE: AtomicU64 = AtomicU64::new(0);
/// The step that is being made, for the message.
static STEP: AtomicU64 = AtomicU64::new(0);
/// When a rank was last heard of that others wait for and that gets on.
static GETS_ON: Mutex<Option<Instant>> = Mutex::new(None);
/// What is done before a job ends that has waited too long.
static LAST: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Begins to look at what waits. `abort` ends the job on
/// all ranks with the code it is given, and need not come back.
pub(crate) fn watch(abort: impl Fn(i32) + Send + Sync + 'static) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let look = move || loop {
            std::thread::sleep(pause());
            if let Some(message) = overdue() {
                // First, for whoever reads what is printed may hang too.
                end_soon();
                print_line(&message);
                finish();
                abort(EXIT_CODE);
            }
        };
        // Without the thread there is no deadline, which is what a job has that cannot start one.
        let _ = std::thread::Builder::new().name("deadline".into()).spawn(look);
    });
}

/// How long a rank may wait in one call; zero for as long as it takes.
pub fn set(deadline: Duration) {
    DEADLINE.store(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// How long a rank may wait in one call; `None` for as long as it takes.
pub fn limit() -> Option<Duration> {
    Some(Duration::from_millis(DEADLINE.load(Ordering::Relaxed))).filter(|deadline| !deadline.is_zero())
}

/// Takes note that what others wait for gets on: deadlines count from now.
pub fn gets_on() {
    *GETS_ON.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

/// How long a call that began so long ago has waited without a sign that what it waits for gets on.
pub(crate) fn waited(ago: Duration) -> Duration {
    let heard = *GETS_ON.lock().unwrap_or_else(PoisonError::into_inner);
    heard.map_or(ago, |heard| ago.min(heard.elapsed()))
}

/// Does what is done before a job ends that has waited too long.
pub(crate) fn finish() {
    LAST.get().into_iter().for_each(|work| work());
}

/// Tells which step is being made.
pub fn at_step(step: u64) {
    STEP.store(step, Ordering::Relaxed);
}

/// The step that is being made; 0 before the first.
pub fn step() -> u64 {
    STEP.load(Ordering::Relaxed)
}

/// Sets what is done before a job ends that has waited too long, once: somebody may want to know how it stood.
pub fn before_the_end(work: impl Fn() + Send + Sync + 'static) {
    let _ = LAST.set(Box::new(work));
}

fn pause() -> Duration {
    let deadline = Duration::from_millis(DEADLINE.load(Ordering::Relaxed));
    (deadline / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

/// What to say of a call that has waited too long.
fn overdue() -> Option<String> {
    let deadline = limit()?;
    let wait = longest_wait().filter(|wait| waited(wait.ago) > deadline)?;
    let (rank, call) = (wait.call.rank, wait.call.name);
    let peer = wait.call.peer.map_or("other ranks".into(), |peer| format!("rank {peer}"));
    let step = match step() {
        0 => "before the first step".into(),
        step => format!("in step {step}"),
    };
    Some(format!(
        "segue: error on rank {rank}: {call} has waited {} s for {peer}, {step}\nhint: {ADVICE}",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_from_the_last_sign() {
        let long = Duration::from_secs(3600);
        gets_on();
        assert!(waited(long) < long && waited(Duration::ZERO) == Duration::ZERO);
    }
}
