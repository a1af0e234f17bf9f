//! How a rank tells its supervisor that it lives, and how it ends where the supervisor is gone.
//!
//! Over TCP, a line of JSON each: a rank says who it is ([`Hello`]), then once a second how far it is ([`Beat`]); the supervisor answers
//! each line with a byte. A rank without an answer for longer than its lease ends itself: on a host that is cut off it would write into
//! the run beside the ranks that have taken its place.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The variable with what a rank needs to find its supervisor: address, token and lease in seconds, with spaces between.
pub const VARIABLE: &str = "SEGUE_SUPERVISOR";
/// The variable with the number of the attempt that a process belongs to.
pub const ATTEMPT: &str = "SEGUE_ATTEMPT";
/// How often a rank says that it lives.
pub const EVERY: Duration = Duration::from_secs(1);
/// Longest line that either side reads.
pub const LONGEST_LINE: usize = 4096;

/// Who a rank is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What the supervisor gave to the ranks that it started.
    pub token: String,
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Its process there.
    pub process: u32,
}

/// How far a rank is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// The step that is being made; 0 before the first.
    pub step: u64,
    /// Steps of the whole run; 0 where that is not known yet.
    #[serde(default)]
    pub steps: u64,
    /// The loss that was reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// What it waits for, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Wait>,
    /// Bytes that it has resident.
    pub resident: u64,
    /// It is about to end by itself: whoever leaves without this word has been ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

/// A wait for other ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// The call.
    pub call: String,
    /// For whom, where it is one rank.
    pub peer: Option<usize>,
    /// How long by now, in seconds.
    pub seconds: f64,
}

/// What [`VARIABLE`] holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where the supervisor listens.
    pub at: SocketAddr,
    /// What tells its ranks from others.
    pub token: String,
    /// How long a rank goes on without an answer.
    pub lease: Duration,
}

impl Address {
    /// As text for the variable.
    pub fn text(&self) -> String {
        format!("{} {} {}", self.at, self.token, self.lease.as_secs())
    }

    /// From the text of the variable.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (at, token, lease) = (words.next()?, words.next()?, words.next()?);
        let lease = Duration::from_secs(lease.parse().ok()?);
        Some(Self { at: at.parse().ok()?, token: token.into(), lease })
    }
}

/// A rank's word to its supervisor, until it is dropped: then it takes its leave.
pub struct Pulse {
    until_dropped: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Pulse {
    fn drop(&mut self) {
        drop(self.until_dropped.take());
        if let Some(thread) = self.thread.take() {
            // It panics nowhere, and could not say more than that here.
            let _ = thread.join();
        }
    }
}

/// Begins to tell the supervisor how far this rank is. `beat` says it; `lost` ends the process, with a reason.
///
/// # Errors
///
/// The supervisor cannot be reached.
pub fn start(
    address: &Address,
    hello: &Hello,
    beat: impl Fn() -> Beat + Send + 'static,
    lost: impl Fn(&str) + Send + Sync + 'static,
) -> io::Result<Pulse> {
    let mut stream = TcpStream::connect_timeout(&address.at, address.lease)?;
    stream.set_nodelay(true)?;
    // A send that the other side does not take in time is no reason to wait for ever.
    stream.set_write_timeout(Some(address.lease))?;
    write_line(&mut stream, hello)?;
    let begun = Instant::now();
    let answered = Arc::new(AtomicU64::new(0));
    let lost = Arc::new(lost);
    let (answers, heard) = (BufReader::new(stream.try_clone()?), Arc::clone(&answered));
    let lease = address.lease;
    thread::Builder::new().name("supervisor-in".into()).spawn(move || {
        for byte in answers.bytes() {
            if byte.is_err() {
                return;
            }
            heard.store(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
    })?;
    let (until_dropped, dropped) = channel::<()>();
    let out = thread::Builder::new().name("supervisor-out".into()).spawn(move || {
        loop {
            let leaving = dropped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
            // An error shows in the answers that do not come.
            let _ = write_line(&mut stream, &Beat { leaving, ..beat() });
            if leaving {
                return;
            }
            let silent =
                begun.elapsed().saturating_sub(Duration::from_millis(answered.load(Ordering::Relaxed)));
            if silent > lease {
                lost(&format!("the supervisor has not answered for {:.0} s", silent.as_secs_f64()));
            }
        }
    })?;
    Ok(Pulse { until_dropped: Some(until_dropped), thread: Some(out) })
}

fn write_line(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}
