//! Faults on purpose: what a test asks a process to suffer, and where.
//!
//! The code names its *points* ([`point`], [`io`], [`spoil`]). A process that is started with [`VARIABLE`] in its environment has a
//! plan of faults, and suffers each at its point:
//!
//! ```text
//! SEGUE_FAULTS="kill@publish.rename:rank=1:hit=3; nan@gradient:step=7; no-space@publish.*:step=10:hit=1.."
//! ```
//!
//! Without the variable a point costs the reading of one flag.

mod plan;

use std::env;
use std::io;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

pub use plan::{BadPlan, Kind, Plan};

/// The environment variable with the plan.
pub const VARIABLE: &str = "SEGUE_FAULTS";

static ARMED: AtomicBool = AtomicBool::new(false);
static PLAN: OnceLock<Plan> = OnceLock::new();
static STEP: AtomicU64 = AtomicU64::new(0);

/// How a tensor is spoiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoil {
    /// One value becomes NaN.
    Nan,
    /// One bit of one value flips.
    Flip,
}

/// Reads the plan of this process, which is rank `rank`; true where there is one.
///
/// # Errors
///
/// What of the plan cannot be read.
pub fn arm(rank: usize) -> Result<bool, BadPlan> {
    let Some(text) = env::var_os(VARIABLE) else { return Ok(false) };
    let plan = Plan::parse(&text.to_string_lossy(), rank)?;
    ARMED.store(PLAN.set(plan).is_ok(), Ordering::Release);
    Ok(true)
}

/// Tells which step is being made.
pub fn at_step(step: u64) {
    STEP.store(step, Ordering::Relaxed);
}

/// A place where a process may be ended, stopped or slowed down.
#[inline]
pub fn point(name: &str) {
    if ARMED.load(Ordering::Acquire) {
        due(name).into_iter().for_each(|kind| suffer(kind, name));
    }
}

/// A [`point`] before something is asked of the system, which may be refused.
///
/// # Errors
///
/// The refusal that was asked for.
#[inline]
pub fn io(name: &str) -> io::Result<()> {
    if !ARMED.load(Ordering::Acquire) {
        return Ok(());
    }
    for kind in due(name) {
        let refusal = match kind {
            Kind::NoSpace => Errno::NOSPC,
            Kind::IoError => Errno::IO,
            Kind::ReadOnly => Errno::ROFS,
            _ => {
                suffer(kind, name);
                continue;
            }
        };
        return Err(refusal.into());
    }
    Ok(())
}

/// A [`point`] at which a tensor may be spoiled, by whoever has it.
#[inline]
pub fn spoil(name: &str) -> Option<Spoil> {
    if !ARMED.load(Ordering::Acquire) {
        return None;
    }
    let mut found = None;
    for kind in due(name) {
        match kind {
            Kind::Nan => found = Some(Spoil::Nan),
            Kind::Flip => found = Some(Spoil::Flip),
            _ => suffer(kind, name),
        }
    }
    found
}

fn due(name: &str) -> Vec<Kind> {
    PLAN.get().map_or(Vec::new(), |plan| plan.due(name, STEP.load(Ordering::Relaxed)))
}

fn suffer(kind: Kind, name: &str) {
    let signal = match kind {
        Kind::Kill => Signal::KILL,
        Kind::Stop => Signal::STOP,
        Kind::Segv => Signal::SEGV,
        Kind::Term => Signal::TERM,
        Kind::Panic => panic!("a fault on purpose at {name}"),
        Kind::Exit(code) => process::exit(code),
        Kind::Slow(ms) => return thread::sleep(Duration::from_millis(ms)),
        Kind::Trace => return eprintln!("fault point {name} in step {}", STEP.load(Ordering::Relaxed)),
        // Nothing here can be refused or spoiled.
        Kind::NoSpace | Kind::IoError | Kind::ReadOnly | Kind::Nan | Kind::Flip => return,
    };
    // The standard library's handler of SIGSEGV takes the first for an accident of the stack, and gives way to the default, which ends
    // the process at the second.
    for _ in 0..if signal == Signal::SEGV { 2 } else { 1 } {
        // A signal to oneself is always allowed.
        let _ = kill_process(getpid(), signal);
    }
}
