//! What a rank tells the supervisor that has started it, if one has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use segue_cluster::host_name;
use segue_cluster::launch::pulse::{self, Address, Beat, Hello, Pulse, VARIABLE, Wait};
use segue_collectives::{calls, deadline, print_line};

use crate::failure::{BAD_CONFIG, Failure, UNAVAILABLE};
use crate::hang;

/// How long a rank that has lost its supervisor may take to say so.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Steps of the run; 0 where that is not known yet.
static STEPS: AtomicU64 = AtomicU64::new(0);
/// Bits of the last loss; those of NaN before the first.
static LOSS: AtomicU64 = AtomicU64::new(f64::NAN.to_bits());

/// Tells how many steps the run has.
pub fn of_steps(steps: u64) {
    STEPS.store(steps, Ordering::Relaxed);
}

/// Tells the loss of the last steps.
pub fn of_loss(loss: f64) {
    LOSS.store(loss.to_bits(), Ordering::Relaxed);
}

/// The number of the attempt of its job that this process belongs to; 1 where nobody counts them.
pub fn attempt() -> u64 {
    std::env::var(pulse::ATTEMPT).ok().and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// Begins to tell the supervisor how far this rank is, where there is one.
pub fn start(rank: usize) -> Result<Option<Pulse>, Failure> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
    let Some(address) = Address::parse(&text) else {
        let message = format!("{VARIABLE}={text:?} is not what `segue launch` sets\nhint: unset it");
        return Err(Failure::new(BAD_CONFIG, message));
    };
    let process = std::process::id();
    let identity = pulse::identity(process).unwrap_or_default();
    let hello = Hello { token: address.token.clone(), rank, host: host_name(), process, identity };
    let lost = move |why: &str| {
        // Whoever reads what is printed may be gone too.
        std::thread::spawn(|| {
            std::thread::sleep(LAST_WORDS);
            deadline::end_now(deadline::EXIT_CODE)
        });
        print_line(&format!(
            "segue: error on rank {rank}: {why}: other ranks may have taken its place, and this one ends"
        ));
        // Nothing of this process may run on: it could write into the run beside those others.
        deadline::end_now(deadline::EXIT_CODE)
    };
    pulse::start(&address, &hello, beat, hang::write_down, lost).map(Some).map_err(|error| {
        let message = format!(
            "cannot reach the supervisor at {}: {error}\nhint: start the job with --listen ADDRESS, an address of the host of `segue launch` that all \
             hosts reach",
            address.at
        );
        Failure::new(UNAVAILABLE, message)
    })
}

fn beat() -> Beat {
    let waits = calls::longest_wait();
    let loss = f64::from_bits(LOSS.load(Ordering::Relaxed));
    Beat {
        step: deadline::step(),
        steps: STEPS.load(Ordering::Relaxed),
        loss: (!loss.is_nan()).then_some(loss),
        waits: waits.map(|wait| Wait {
            call: wait.call.name.into(),
            peer: wait.call.peer,
            seconds: wait.ago.as_secs_f64(),
        }),
        progress: segue_faults::visits(),
        waited: calls::waited().as_secs_f64(),
        resident: resident(),
        leaving: None,
    }
}

/// Bytes that this process has resident; 0 where the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}
