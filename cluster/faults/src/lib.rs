//! Faults on purpose: what a test asks a process to suffer, and where.
//!
//! The code names its *points* ([`point`], [`io`], [`spoil`]). A process that is started with [`VARIABLE`] in its environment has a
//! plan of faults, and suffers each at its point:
//!
//! ```text
//! SEGUE_FAULTS="kill@folder.rename:rank=1:hit=3; nan@gradient:step=7; no-space@folder.*:step=10:hit=1.."
//! ```
//!
//! Without the variable a point costs the reading of two flags and a count. In a simulation (`segue-world`) it is the simulation that says what
//! happens there.

mod plan;
mod points;

use std::cell::Cell;
use std::env;
use std::io;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

pub use plan::BadPlan;
use plan::{Kind, Plan};
use points::POINTS;
use segue_world::Refusal;

/// The environment variable with the plan.
pub const VARIABLE: &str = "SEGUE_FAULTS";

static ARMED: AtomicBool = AtomicBool::new(false);
static PLAN: OnceLock<Plan> = OnceLock::new();
/// Points that this process has come by.
static VISITS: AtomicU64 = AtomicU64::new(0);
static STEP: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The step of what this thread does, where that is not the one that is being made.
    static OWN_STEP: Cell<Option<u64>> = const { Cell::new(None) };
}

/// How a tensor is spoiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoil {
    /// One value becomes NaN.
    Nan,
    /// One bit of one value flips.
    Flip,
}

/// Reads the plan of this process, which is rank `rank` in attempt `attempt` of its job; true where it holds a fault. A second call changes nothing.
///
/// # Errors
///
/// The first fault that is not one.
pub fn arm(rank: usize, attempt: u64) -> Result<bool, BadPlan> {
    let text = env::var_os(VARIABLE).unwrap_or_default();
    let plan = Plan::parse(&text.to_string_lossy(), rank, attempt)?;
    if !plan.is_empty() {
        PLAN.get_or_init(|| plan);
        ARMED.store(true, Ordering::Release);
    }
    Ok(ARMED.load(Ordering::Acquire))
}

/// Sets the step that `step=` of a plan is compared with: the one that is being made.
pub fn at_step(step: u64) {
    STEP.store(step, Ordering::Relaxed);
}

/// Sets it for the calling thread, which works on another step than the one that is being made.
pub fn thread_at_step(step: u64) {
    OWN_STEP.set(Some(step));
}

fn step() -> u64 {
    OWN_STEP.get().unwrap_or_else(|| STEP.load(Ordering::Relaxed))
}

/// Counts as a point, without being one: this process gets on.
pub fn gets_on() {
    VISITS.fetch_add(1, Ordering::Relaxed);
}

/// How many points this process has come by: a number that grows as long as it gets on.
pub fn visits() -> u64 {
    VISITS.load(Ordering::Relaxed)
}

/// A place where a process may be ended, stopped or slowed down.
#[inline]
pub fn point(name: &str) {
    VISITS.fetch_add(1, Ordering::Relaxed);
    if ARMED.load(Ordering::Acquire) {
        due(name).into_iter().for_each(|kind| suffer(kind, name));
    }
    segue_world::point(name);
}

/// A [`point`] before something is asked of the system, which may be refused.
///
/// # Errors
///
/// The refusal that was asked for.
#[inline]
pub fn io(name: &str) -> io::Result<()> {
    VISITS.fetch_add(1, Ordering::Relaxed);
    segue_world::point(name).as_io()?;
    if !ARMED.load(Ordering::Acquire) {
        return Ok(());
    }
    for kind in due(name) {
        let refusal = match kind {
            Kind::NoSpace => Errno::NOSPC,
            Kind::IoError => Errno::IO,
            Kind::ReadOnly => Errno::ROFS,
            Kind::Unsupported => Errno::INVAL,
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
    let found = match segue_world::point(name) {
        Refusal::Nan => Some(Spoil::Nan),
        Refusal::Flip => Some(Spoil::Flip),
        Refusal::None | Refusal::System(_) => None,
    };
    spoil_in_callback(name).or(found)
}

/// The same inside of a library's call, through which nothing unwinds: a simulation, which ends its threads so, is not asked.
#[inline]
pub fn spoil_in_callback(name: &str) -> Option<Spoil> {
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
    debug_assert!(POINTS.iter().any(|(known, _)| *known == name), "{name} is not among the points");
    PLAN.get().map_or(Vec::new(), |plan| plan.due(name, step()))
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
        Kind::Trace => return eprintln!("fault point {name} in step {}", step()),
        // A pattern may name points of several classes: nothing here can be refused or spoiled.
        Kind::NoSpace | Kind::IoError | Kind::ReadOnly | Kind::Unsupported | Kind::Nan | Kind::Flip => return,
    };
    loop {
        // A signal to oneself is always allowed.
        let _ = kill_process(getpid(), signal);
        if signal != Signal::SEGV {
            return;
        }
        // The standard library's handler takes the first ones for an accident of the stack, and gives way to the default, which ends
        // the process.
    }
}
