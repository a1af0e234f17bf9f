//! Signals as flags that the training loop polls.
//!
//! Handlers run on the stack that a thread has for signals. Kernels that oneDNN makes at run time use the stack pointer for a number like any
//! other (8 % of the samples of a step of the demo on a Zen 4): a handler on the stack that it seems to point to would write over tensors, or over the
//! bookkeeping of the heap.

use std::ffi::c_int;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level};

use crate::ClusterError;

/// The exit code of a process that SIGINT ended, by the shell's convention of 128 + signal.
const INTERRUPTED_EXIT_CODE: c_int = 128 + SIGINT;

/// Whether this process has been asked to stop: by SIGUSR1 (a batch system's warning before the time
/// limit), SIGTERM (cancelled, or the node is wanted back), SIGINT (Ctrl-C) or SIGHUP (the terminal is gone).
///
/// The signals only set a flag. The training loop asks [`requested`](Preemption::requested) once a
/// step, agrees on the answer with the other ranks, writes a checkpoint and ends. A second SIGINT ends
/// the process at once, with code 130.
///
/// ```
/// let preemption = segue_cluster::Preemption::install().unwrap();
/// assert!(!preemption.requested());
/// signal_hook::low_level::raise(signal_hook::consts::SIGUSR1).unwrap();
/// assert!(preemption.requested());
/// assert_eq!(preemption.signal_name(), Some("SIGUSR1"));
/// ```
#[derive(Debug, Clone)]
pub struct Preemption {
    /// The latest signal that came, 0 before the first.
    signal: Arc<AtomicUsize>,
}

impl Preemption {
    /// Listens from now on, for the rest of the process: first thing, as a signal that comes before ends it. A second call gives what the first
    /// has begun.
    pub fn install() -> Result<Preemption, ClusterError> {
        static INSTALLED: Mutex<Option<Preemption>> = Mutex::new(None);
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(preemption) = &*installed {
            return Ok(preemption.clone());
        }
        let preemption = Self::listen()?;
        Ok(installed.insert(preemption).clone())
    }

    fn listen() -> Result<Preemption, ClusterError> {
        let signal = Arc::new(AtomicUsize::new(0));
        let interrupted = Arc::new(AtomicBool::new(false));
        let refused = |signal: c_int| move |source| ClusterError::Signal { signal: name_of(signal), source };

        // Handlers run in the order of their registration: the shutdown looks at the flag of an earlier
        // SIGINT before this one sets it.
        flag::register_conditional_shutdown(SIGINT, INTERRUPTED_EXIT_CODE, Arc::clone(&interrupted))
            .map_err(refused(SIGINT))?;
        flag::register(SIGINT, interrupted).map_err(refused(SIGINT))?;
        // Who starts a process with nohup wants it to outlive the terminal.
        let of_terminal = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for number in [SIGUSR1, SIGTERM, SIGINT].into_iter().chain(of_terminal) {
            // Signal numbers are small and positive.
            flag::register_usize(number, Arc::clone(&signal), number as usize).map_err(refused(number))?;
            handle_on_own_stack(number).map_err(refused(number))?;
        }
        Ok(Preemption { signal })
    }

    /// Whether any of the signals has come since [`install`](Preemption::install).
    pub fn requested(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// The name of the latest signal that came.
    pub fn signal_name(&self) -> Option<&'static str> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            number => Some(name_of(number as c_int)),
        }
    }
}

/// Bytes of the stack for signals: what the widest registers take, 12 KiB, and room for handlers.
const STACK: usize = 64 << 10;

/// Moves the handler of a signal, which is installed, to the stack for signals of the thread that it interrupts, and gives the calling thread one: the
/// main thread, which the system prefers for signals to the process. That of the standard library has no room to spare where registers are wide.
fn handle_on_own_stack(signal: c_int) -> io::Result<()> {
    thread_local!(static GIVEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    if !GIVEN.replace(true) {
        // It is there as long as the thread may be interrupted, which the main thread may until the end of the process.
        let stack = Box::leak(vec![0u8; STACK].into_boxed_slice());
        let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK };
        // SAFETY: nobody else uses these bytes, and they are never freed.
        if unsafe { libc::sigaltstack(&stack, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: an action of zeroes is one; the first call fills it with the one that is installed, which the second installs again. Between
    // them nobody else installs one: this is done once, at the start of the process.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(signal, ptr::null(), &mut action) {
            0 => {
                action.sa_flags |= libc::SA_ONSTACK;
                libc::sigaction(signal, &action, ptr::null_mut())
            }
            failed => failed,
        }
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: c_int) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

/// SIGINT (Ctrl-C) as a request to stop the task at hand, such as the writing of a text, and not the process.
///
/// It stops what is between [`begin`](Interruption::begin) and the end of the value that this gives. A second time before the task has stopped it
/// ends the process as it does without a handler, and so it does at other times, unless [`spare`](Interruption::spare) is asked for.
///
/// ```
/// let interruption = segue_cluster::signals::Interruption::install().unwrap();
/// let task = interruption.begin();
/// signal_hook::low_level::raise(signal_hook::consts::SIGINT).unwrap();
/// assert!(task.is_interrupted());
/// ```
#[derive(Debug, Clone)]
pub struct Interruption {
    /// Whether the next SIGINT ends the process.
    ends: Arc<AtomicBool>,
    /// Whether one that comes when no task is at hand does.
    ends_between_tasks: bool,
}

impl Interruption {
    /// Listens from now on, for the rest of the process. Once a process: of two, the one without a task would end it.
    pub fn install() -> Result<Interruption, ClusterError> {
        let refused = |source| ClusterError::Signal { signal: name_of(SIGINT), source };
        let ends = Arc::new(AtomicBool::new(true));
        // Handlers run in the order of their registration: the first SIGINT of a task only sees to it that the next one ends the process.
        flag::register_conditional_default(SIGINT, Arc::clone(&ends)).map_err(refused)?;
        flag::register(SIGINT, Arc::clone(&ends)).map_err(refused)?;
        handle_on_own_stack(SIGINT).map_err(refused)?;
        Ok(Interruption { ends, ends_between_tasks: true })
    }

    /// Lets a first SIGINT between tasks pass, for a program that reads Ctrl-C as a key: one that comes just after a task, before the terminal
    /// gives keys, was meant for the task.
    pub fn spare(self) -> Interruption {
        self.ends.store(false, Ordering::Relaxed);
        Interruption { ends_between_tasks: false, ..self }
    }

    /// Begins a task. One is at hand at a time.
    pub fn begin(&self) -> InterruptibleTask {
        self.ends.store(false, Ordering::Relaxed);
        InterruptibleTask { ends: Arc::clone(&self.ends), ends_after: self.ends_between_tasks }
    }
}

/// What a SIGINT stops; it ends with the value.
#[derive(Debug)]
pub struct InterruptibleTask {
    ends: Arc<AtomicBool>,
    /// Whether a SIGINT after the task ends the process.
    ends_after: bool,
}

impl InterruptibleTask {
    /// Whether SIGINT has come since the task began.
    pub fn is_interrupted(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

impl Drop for InterruptibleTask {
    fn drop(&mut self) {
        self.ends.store(self.ends_after, Ordering::Relaxed);
    }
}

/// Ends this process as a SIGINT that nobody handles does, for programs that read Ctrl-C from a terminal themselves.
pub fn end_as_interrupted() -> ! {
    // It fails for signals alone that have no default; SIGINT has one.
    let _ = low_level::emulate_default_handler(SIGINT);
    std::process::exit(INTERRUPTED_EXIT_CODE)
}

fn name_of(signal: c_int) -> &'static str {
    match signal {
        SIGUSR1 => "SIGUSR1",
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGHUP => "SIGHUP",
        _ => "a signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::low_level::raise;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    /// Signals are the process's own, so each test raises them in a child: `program` or `tasks` of this binary.
    fn child(program: &str, signals: &str) -> Command {
        // Tests may run under nohup, and a signal that is ignored stays so in children.
        let mut child = Command::new("env");
        child.arg("--default-signal=HUP").arg(std::env::current_exe().unwrap());
        let program = format!("signals::tests::{program}");
        child.args(["--exact", &program, "--ignored"]).env("SEGUE_TEST_SIGNALS", signals);
        child
    }

    fn raise_in_child(signals: &str) -> ExitStatus {
        child("program", signals).output().unwrap().status
    }

    #[test]
    #[ignore = "started by the other tests, in a process of its own"]
    fn program() {
        let preemption = Preemption::install().unwrap();
        assert_eq!((preemption.requested(), preemption.signal_name()), (false, None));
        for name in std::env::var("SEGUE_TEST_SIGNALS").unwrap().split(' ') {
            let signal =
                [SIGUSR1, SIGTERM, SIGINT, SIGHUP].into_iter().find(|signal| name_of(*signal) == name);
            raise(signal.unwrap()).unwrap();
            assert_eq!((preemption.requested(), preemption.signal_name()), (true, Some(name)));
        }
        if std::env::var_os("SEGUE_TEST_END").is_some() {
            end_as_interrupted();
        }
        std::process::exit(75);
    }

    #[test]
    #[ignore = "started by the other tests, in a process of its own"]
    fn tasks() {
        let interruption = Interruption::install().unwrap();
        let spares = std::env::var_os("SEGUE_TEST_SPARE").is_some();
        let interruption = if spares { interruption.spare() } else { interruption };
        if spares {
            raise(SIGINT).unwrap();
        }
        for count in std::env::var("SEGUE_TEST_SIGNALS").unwrap().split(' ') {
            let task = interruption.begin();
            assert!(!task.is_interrupted());
            for _ in 0..count.parse().unwrap() {
                raise(SIGINT).unwrap();
                assert!(task.is_interrupted());
            }
        }
        if std::env::var_os("SEGUE_TEST_END").is_some() {
            raise(SIGINT).unwrap();
        }
        std::process::exit(75);
    }

    #[test]
    fn an_interrupt_stops_a_task_and_two_or_one_between_tasks_end_the_process() {
        let ended = |counts| child("tasks", counts).output().unwrap().status;
        assert_eq!(ended("1 0 1").code(), Some(75));
        assert_eq!(ended("1 2").signal(), Some(SIGINT));
        let between = child("tasks", "1").env("SEGUE_TEST_END", "").output().unwrap().status;
        assert_eq!(between.signal(), Some(SIGINT));
        // Before a task and after one, whether that was interrupted or not.
        let spared = |counts| {
            let mut child = child("tasks", counts);
            child.env("SEGUE_TEST_END", "").env("SEGUE_TEST_SPARE", "").output().unwrap().status
        };
        assert_eq!(spared("0 1").code(), Some(75));
        assert_eq!(spared("1 2").signal(), Some(SIGINT));
    }

    #[test]
    fn an_interrupted_program_ends_by_the_signal_itself() {
        let status = child("program", "SIGTERM").env("SEGUE_TEST_END", "").output().unwrap().status;
        assert_eq!((status.code(), status.signal()), (None, Some(SIGINT)));
    }

    #[test]
    fn each_signal_sets_the_flag_and_ends_nothing() {
        for signal in ["SIGUSR1", "SIGTERM", "SIGINT", "SIGHUP", "SIGINT SIGTERM SIGUSR1", "SIGTERM SIGTERM"]
        {
            assert_eq!(raise_in_child(signal).code(), Some(75), "{signal}");
        }
    }

    /// What a kernel does that keeps a number in the stack pointer: a signal meanwhile must not touch the memory that it seems to point to.
    #[cfg(target_arch = "x86_64")]
    #[test]
    #[ignore = "started by the other tests, in a process of its own"]
    fn with_a_borrowed_stack_pointer() {
        Preemption::install().unwrap();
        let mut memory = vec![0x5a5a_5a5a_5a5a_5a5au64; 1 << 16];
        // SAFETY: the stack pointer is put back before anything else is done; the system call sends a signal to this thread, and leaves all
        // registers but three as they are.
        unsafe {
            let (process, thread) = (i64::from(libc::getpid()), i64::from(libc::gettid()));
            std::arch::asm!(
                "mov r12, rsp",
                "mov rsp, {inside}",
                "syscall",
                "mov rsp, r12",
                inside = in(reg) memory.as_mut_ptr().add(memory.len() / 2),
                inlateout("rax") libc::SYS_tgkill => _,
                in("rdi") process,
                in("rsi") thread,
                in("rdx") i64::from(SIGTERM),
                out("rcx") _,
                out("r11") _,
                out("r12") _,
            );
        }
        let untouched = memory.iter().all(|value| *value == 0x5a5a_5a5a_5a5a_5a5a);
        std::process::exit(if untouched { 75 } else { 1 });
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_signal_writes_nothing_where_a_kernel_has_borrowed_the_stack_pointer() {
        assert_eq!(child("with_a_borrowed_stack_pointer", "").output().unwrap().status.code(), Some(75));
    }

    #[test]
    fn a_second_interrupt_ends_at_once() {
        assert_eq!(raise_in_child("SIGINT SIGINT").code(), Some(130));
    }
}
