//! Where the threads of this process are: what to look at where one hangs.
//!
//! The invariants of the unsafe code: the handler of the signal is installed once, before any signal is sent; it only walks its own
//! thread's stack and hands the result over by one atomic pointer, which [`of_threads`] alone takes from, one caller at a time.

use std::backtrace::Backtrace;
use std::fs;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread has to tell. One that the system does not wake tells nothing.
const PATIENCE: Duration = Duration::from_millis(200);
/// Frames of the handler and of what leads to it.
const MARK: &str = "__restore_rt";

static TOLD: AtomicPtr<(i32, Backtrace)> = AtomicPtr::new(ptr::null_mut());

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

/// Where all threads of this process are but the calling one; of those that are not asked before `within` is over, no stack. A last resort: a thread that is met within an allocation may stay there.
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
    TOLD.store(ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: a signal to a thread of this process, whose handler is installed; a thread that has ended is an error and no more.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, signal()) };
    let begun = Instant::now();
    while sent == 0 && begun.elapsed() < PATIENCE {
        let told = TOLD.swap(ptr::null_mut(), Ordering::SeqCst);
        if !told.is_null() {
            // SAFETY: the handler made it of a box and has let go of it.
            let (teller, stack) = *unsafe { Box::from_raw(told) };
            // One that was asked before, and answers only now, is not this one.
            if teller == id {
                return frames(&stack.to_string());
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Vec::new()
}

/// The functions of a backtrace as the standard library prints it.
fn frames(text: &str) -> Vec<String> {
    let named = text
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(number, _)| number.parse::<u32>().is_ok());
    let names: Vec<String> = named.map(|(_, name)| name.to_string()).collect();
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
        // SAFETY: a zeroed action with a handler and an empty mask is a whole one; calls that it interrupts are begun again.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = tell as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(signal(), &action, ptr::null_mut());
        }
    });
}

extern "C" fn tell(_: i32) {
    // SAFETY: the place of this thread's own error number, which whoever was interrupted may be about to read; the other call has no
    // conditions.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let told = Box::into_raw(Box::new((libc::gettid(), Backtrace::force_capture())));
        TOLD.store(told, Ordering::SeqCst);
        *errno = before;
    }
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
