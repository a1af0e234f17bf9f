//! Where the threads of this process are: what to look at where one hangs.
//!
//! The invariants of the unsafe code: the handler of the signal is installed once, before any signal is sent. It neither allocates nor
//! locks, for the thread that it interrupts may be about to: it writes the addresses of its own thread's calls to one table of atomic
//! numbers. The system's unwinder, which finds these, does the same with glibc from 2.35 and libgcc from 12; an older one takes the lock of the
//! loader, and waits where another thread has it. [`of_threads`] alone asks, one caller at a time, and names the addresses.

use std::ffi::c_void;
use std::fs;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread has to tell. One that the system does not wake tells nothing.
const PATIENCE: Duration = Duration::from_millis(200);
/// Frames of the handler and of what leads to it.
const MARK: &str = "__restore_rt";

/// Calls that a thread tells of at most.
const MOST_CALLS: usize = 128;
/// No thread is asked.
const NOBODY: i32 = 0;
/// The asked thread is writing its calls.
const TELLING: i32 = -1;
/// The asked thread's calls are complete.
const TOLD: i32 = -2;

/// The thread that is asked, or how far it is.
static ASKED: AtomicI32 = AtomicI32::new(NOBODY);
/// Where each call of that thread goes on, the innermost first, and 0 behind the last.
static CALLS: [AtomicUsize; MOST_CALLS] = [const { AtomicUsize::new(0) }; MOST_CALLS];

/// Where a thread is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ThreadState {
    /// Its name.
    pub name: String,
    /// Its number in the system.
    pub id: i32,
    /// As the system says it, such as `S (sleeping)`.
    pub state: String,
    /// Its calls, the innermost first; none where it does not tell. A stripped program names those of its libraries alone.
    pub stack: Vec<String>,
}

/// Where all threads of this process are but the calling one; of those that are not asked before `within` is over, no stack.
pub fn of_threads(within: Duration) -> Vec<ThreadState> {
    let begun = Instant::now();
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    install();
    // SAFETY: the call has no conditions.
    let own = unsafe { libc::gettid() };
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| *id != own).map(|id| state_of(id, begun.elapsed() < within)).collect()
}

fn state_of(id: i32, ask: bool) -> ThreadState {
    let status = fs::read_to_string(format!("/proc/self/task/{id}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_string()
    };
    ThreadState {
        name: field("Name:"),
        id,
        state: field("State:"),
        stack: if ask { stack_of(id) } else { Vec::new() },
    }
}

fn stack_of(id: i32) -> Vec<String> {
    // One that began to tell and never came to an end has the table for good.
    let free = |now| (now != TELLING).then_some(id);
    if ASKED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).is_err() {
        return Vec::new();
    }
    // SAFETY: a signal to a thread of this process, whose handler is installed; a thread that has ended is an error and no more.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, signal()) };
    let begun = Instant::now();
    while sent == 0 && begun.elapsed() < PATIENCE {
        if ASKED.load(Ordering::SeqCst) == TOLD {
            let calls = CALLS.iter().map(|call| call.load(Ordering::SeqCst));
            return named(calls.take_while(|call| *call != 0));
        }
        thread::sleep(Duration::from_millis(1));
    }
    // It is not asked any more, unless it has just begun to tell.
    let _ = ASKED.compare_exchange(id, NOBODY, Ordering::SeqCst, Ordering::SeqCst);
    Vec::new()
}

/// The functions that calls go on in, those of the handler left out.
fn named(calls: impl Iterator<Item = usize>) -> Vec<String> {
    let mut names = Vec::new();
    for call in calls {
        let before = names.len();
        // Several, where functions are inlined.
        backtrace::resolve(call as *mut c_void, |symbol| {
            names.extend(symbol.name().map(|name| format!("{name:#}")));
        });
        if names.len() == before {
            names.push("<unknown>".into());
        }
    }
    let behind = names
        .iter()
        .position(|name| name.contains(MARK) || name.contains("tell"))
        .map_or(0, |place| place + 1);
    names[behind..].to_vec()
}

/// A signal that nobody else has a use for.
fn signal() -> i32 {
    libc::SIGRTMIN() + 9
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // What the first walk loads is there when a handler walks.
        backtrace::trace(|_| false);
        // SAFETY: a zeroed action with a handler and an empty mask is a whole one; calls that it interrupts are begun again.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = tell as *const () as usize;
            // On the stack of the thread: those for signals are too small for the unwinder. Where a kernel has borrowed the stack pointer this
            // writes over its memory; the process that asks is about to end.
            action.sa_flags = libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(signal(), &action, ptr::null_mut());
        }
    });
}

extern "C" fn tell(_: i32) {
    // SAFETY: the place of this thread's own error number, which whoever was interrupted may be about to read; the other call has no
    // conditions.
    let (errno, id) = unsafe { (libc::__errno_location(), libc::gettid()) };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // One that was asked long ago, and answers only now, is not meant.
    if ASKED.compare_exchange(id, TELLING, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        let mut told = 0;
        // SAFETY: its lock is for the tables of names, which no walk without names reads.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                CALLS[told].store(frame.ip() as usize, Ordering::SeqCst);
                told += 1;
                told < MOST_CALLS
            });
        }
        if let Some(behind) = CALLS.get(told) {
            behind.store(0, Ordering::SeqCst);
        }
        ASKED.store(TOLD, Ordering::SeqCst);
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[inline(never)]
    fn waits_here(wait: &std::sync::mpsc::Receiver<()>) {
        let _ = wait.recv();
        std::hint::black_box(());
    }

    #[test]
    fn a_thread_that_waits_tells_where() {
        let (sender, receiver) = channel::<()>();
        let work = move || waits_here(&receiver);
        let thread = thread::Builder::new().name("waits-for-long".into()).spawn(work).unwrap();
        // It may still be on its way there.
        let begun = Instant::now();
        let found = loop {
            let found = of_threads(PATIENCE * 50).into_iter().find(|thread| thread.name == "waits-for-long");
            let found = found.filter(|thread| thread.stack.iter().any(|call| call.contains("waits_here")));
            if found.is_some() || begun.elapsed() > Duration::from_secs(20) {
                break found;
            }
        };
        assert!(found.is_some_and(|thread| !thread.state.is_empty()));
        drop(sender);
        thread.join().unwrap();
    }
}
