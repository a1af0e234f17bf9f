//! How a rank tells its supervisor that it lives, and how it ends where the supervisor is gone.
//!
//! Over TCP, a line of JSON each: a rank says who it is ([`Hello`]), then once a second how far it is ([`Beat`]); the supervisor answers
//! each line with a byte, which may ask the rank to write down how it stands before the job is ended. A rank without an answer for longer than its lease ends itself: on a host that is cut off it would write into
//! the run beside the ranks that have taken its place.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The variable with what a rank needs to find its supervisor: address, token and lease in seconds, with spaces between.
pub const VARIABLE: &str = "SEGUE_SUPERVISOR";
/// The variable with the number of the attempt that a process belongs to.
pub const ATTEMPT: &str = "SEGUE_ATTEMPT";
/// How often a rank says that it lives.
pub const EVERY: Duration = Duration::from_secs(1);
/// Milliseconds that a rank waits before it tries again, each time.
const TRY_AGAIN: [u64; 5] = [50, 100, 200, 400, 800];
/// What is said of a connection that the other side has closed.
const CLOSED: [ErrorKind; 3] = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
/// What the supervisor answers, and what it answers where it also wants to know how the rank stands.
pub(super) const HEARD: u8 = b'.';
pub(super) const TELL: u8 = b'?';
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
    /// What tells this process from all others of that number, on other hosts and at other times.
    pub identity: String,
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
    /// A number that grows as long as it gets on.
    #[serde(default)]
    pub progress: u64,
    /// How long it has waited for other ranks in all, in seconds.
    #[serde(default)]
    pub waited: f64,
    /// Bytes that it has resident.
    pub resident: u64,
    /// It is about to end by itself, with this exit code: whoever leaves without this word has been ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<u8>,
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

/// A rank's word to its supervisor, until it takes its leave.
pub struct Pulse {
    leave: Sender<u8>,
    /// Closed when all is said.
    said: Receiver<()>,
}

impl Pulse {
    /// Says that this process ends by itself, with this exit code.
    pub fn leave(&self, code: u8) {
        if self.leave.send(code).is_ok() {
            let _ = self.said.recv();
        }
    }
}

/// What tells process `process` of this host from all others: boot, namespace of processes, and when it started. `None` where the system does
/// not tell, or there is no such process.
pub fn identity(process: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program stands in parentheses and may hold anything; the start is the 20th field behind it.
    let started = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.to_string();
    Some(format!("{} {} {started}", boot.trim(), namespace.display()))
}

/// Begins to tell the supervisor how far this rank is. `beat` says it; `tell` writes down how the rank stands; `lost` ends the process, with a
/// reason.
///
/// # Errors
///
/// The supervisor cannot be reached.
pub fn start(
    address: &Address,
    hello: &Hello,
    beat: impl Fn() -> Beat + Send + 'static,
    tell: impl Fn() + Send + 'static,
    lost: impl Fn(&str) + Send + Sync + 'static,
) -> io::Result<Pulse> {
    let (mut stream, begun) = join(address, hello)?;
    let lease = Arc::new(Mutex::new(Lease { unanswered: VecDeque::new(), answered: begun, closed: false }));
    let (answers, ours) = (stream.try_clone()?, Arc::clone(&lease));
    thread::Builder::new().name("supervisor-in".into()).spawn(move || {
        let mut told = false;
        for byte in BufReader::new(answers).bytes() {
            {
                let mut lease = ours.lock().unwrap_or_else(PoisonError::into_inner);
                match (&byte, lease.unanswered.pop_front()) {
                    (Ok(_), Some(said)) => lease.answered = said,
                    _ => break,
                }
            }
            if matches!(byte, Ok(TELL)) && !std::mem::replace(&mut told, true) {
                tell();
            }
        }
        ours.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
    })?;
    let (leave, leaving) = channel();
    let (saying, said) = channel();
    let longest = address.lease;
    thread::Builder::new().name("supervisor-out".into()).spawn(move || {
        let _saying: Sender<()> = saying;
        loop {
            let code = match leaving.recv_timeout(EVERY) {
                Ok(code) => Some(code),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now = Instant::now();
            let (silent, closed) = {
                let mut lease = lease.lock().unwrap_or_else(PoisonError::into_inner);
                lease.unanswered.push_back(now);
                (now.duration_since(lease.answered), lease.closed)
            };
            // An error shows in the answers that do not come.
            let _ = write_line(&mut stream, &Beat { leaving: code, ..beat() });
            match code {
                Some(_) => {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                None if closed => lost("the supervisor is gone"),
                None if silent > longest => {
                    lost(&format!("the supervisor has not answered for {:.0} s", silent.as_secs_f64()));
                }
                None => {}
            }
        }
    })?;
    Ok(Pulse { leave, said })
}

/// Connects to the supervisor and waits for its answer; gives the connection and when the greeting was sent. A connection that is closed before is tried again: on a crowded port
/// the newest push out those that have not been listened to yet.
fn join(address: &Address, hello: &Hello) -> io::Result<(TcpStream, Instant)> {
    let mut waits = TRY_AGAIN.into_iter();
    loop {
        let mut stream = TcpStream::connect_timeout(&address.at, address.lease)?;
        stream.set_nodelay(true)?;
        // Neither a send nor the first answer is waited for for ever.
        stream.set_write_timeout(Some(address.lease))?;
        stream.set_read_timeout(Some(address.lease))?;
        let begun = Instant::now();
        match write_line(&mut stream, hello).and_then(|()| stream.read_exact(&mut [0])) {
            Ok(()) => {
                stream.set_read_timeout(None)?;
                return Ok((stream, begun));
            }
            Err(error) if CLOSED.contains(&error.kind()) => match waits.next() {
                Some(wait) => thread::sleep(Duration::from_millis(wait)),
                None => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}

/// How long a rank may go on: it counts from when it said what was answered last, which the supervisor cannot have heard later.
struct Lease {
    /// When the lines were sent that have no answer yet.
    unanswered: VecDeque<Instant>,
    answered: Instant,
    /// There will be no more answers.
    closed: bool,
}

fn write_line(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_that_is_closed_before_it_is_answered_is_tried_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let answering = thread::spawn(move || {
            drop(listener.accept().unwrap());
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[HEARD]).unwrap();
            let mut line = String::new();
            io::BufRead::read_line(&mut BufReader::new(stream), &mut line).unwrap();
            serde_json::from_str::<Hello>(&line).unwrap()
        });
        let hello =
            Hello { token: "t".into(), rank: 1, host: "n1".into(), process: 1, identity: String::new() };
        let address = Address { at, token: "t".into(), lease: Duration::from_secs(60) };
        join(&address, &hello).unwrap();
        assert_eq!(answering.join().unwrap(), hello);
    }
}
