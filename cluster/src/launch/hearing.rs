//! What a supervisor hears of the ranks that it has started: over their connections, and by what they and their starter print.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;

use super::progress::Straggler;
use super::pulse::{Beat, HEARD, Hello, LONGEST_LINE, TELL};

/// How long whoever connects has to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// What the supervisor hears of while an attempt runs.
#[derive(Debug)]
pub enum Heard {
    /// A line of the job's stderr.
    Line(String),
    /// A line of its stdout.
    Result(String),
    /// A rank has joined.
    Joined(Hello),
    /// A rank says how far it is, at that moment.
    Beat(usize, Beat, Instant),
    /// The others wait for a rank.
    Straggles(Straggler),
    /// The attempt is taken for hung, and will be ended: why.
    Hung(String),
    /// A rank's connection is closed.
    Left(usize),
}

/// The rank whose failure came first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirstFailure {
    /// The rank.
    pub rank: usize,
    /// Its host, where that is known.
    pub host: Option<String>,
    /// What was said of it.
    pub what: String,
}

/// Passes on what is said, line by line.
pub async fn lines(
    stream: impl AsyncRead + Unpin,
    heard: UnboundedSender<Heard>,
    as_what: fn(String) -> Heard,
) {
    let mut stream = BufReader::new(stream).split(b'\n');
    while let Ok(Some(line)) = stream.next_segment().await {
        let _ = heard.send(as_what(String::from_utf8_lossy(&line).trim_end_matches('\r').into()));
    }
}

/// Hears a rank to the end of its connection, and asks it how it stands once `wants_to_know`. Whoever does not have the token is not
/// listened to.
pub async fn listen(
    stream: TcpStream,
    token: String,
    heard: UnboundedSender<Heard>,
    wants_to_know: Arc<AtomicBool>,
) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    let mut rank = None;
    loop {
        line.clear();
        let mut limited = (&mut lines).take(LONGEST_LINE as u64);
        let reading = limited.read_until(b'\n', &mut line);
        // Of a rank that is known, the silence is watched by whoever hears of it.
        let read = match rank {
            None => timeout(HELLO_WITHIN, reading).await.unwrap_or(Ok(0)),
            Some(_) => reading.await,
        };
        match read {
            Ok(n) if n > 0 && line.ends_with(b"\n") => {}
            _ => break,
        }
        let message = match rank {
            None => match serde_json::from_slice::<Hello>(&line) {
                Ok(hello) if hello.token == token => {
                    rank = Some(hello.rank);
                    Heard::Joined(Hello { token: String::new(), ..hello })
                }
                _ => return,
            },
            Some(rank) => match serde_json::from_slice::<Beat>(&line) {
                Ok(beat) => Heard::Beat(rank, beat, Instant::now()),
                Err(_) => break,
            },
        };
        let answer = if wants_to_know.load(Ordering::Relaxed) { TELL } else { HEARD };
        if heard.send(message).is_err() || writer.write_all(&[answer]).await.is_err() {
            break;
        }
    }
    if let Some(rank) = rank {
        let _ = heard.send(Heard::Left(rank));
    }
}

/// The failure of a rank that a line of stderr tells of: a rank's own words, or what the starter noticed.
pub fn first_failure(line: &str) -> Option<FirstFailure> {
    let failure = |rank: usize, host: Option<&str>| FirstFailure {
        rank,
        host: host.map(Into::into),
        what: line.trim().into(),
    };
    if let Some(rest) = line.strip_prefix("segue: error") {
        let rank = rest.strip_prefix(" on rank ").and_then(|rest| rest.split(':').next()?.parse().ok());
        return Some(failure(rank.unwrap_or(0), None));
    }
    // Open MPI: "mpirun noticed that process rank 1 with PID 0 on node n2 exited on signal 9 (Killed)."
    if let Some((_, rest)) = line.split_once("noticed that process rank ") {
        let rank = rest.split(' ').next()?.parse().ok()?;
        let host = rest.split_once(" on node ").and_then(|(_, rest)| rest.split(' ').next());
        return Some(failure(rank, host));
    }
    // Slurm: "srun: error: n2: task 1: Killed"
    let rest = line.strip_prefix("srun: error: ")?;
    let (host, rest) = rest.split_once(": task ")?;
    let rank = rest.split(':').next()?.parse().ok()?;
    Some(failure(rank, Some(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_failed_first_is_read_from_what_is_said() {
        for (line, rank, host) in [
            ("segue: error: no space", 0, None),
            ("segue: error on rank 3: MPI_Allgather has waited", 3, None),
            (
                "mpirun noticed that process rank 1 with PID 0 on node n2 exited on signal 9 (Killed).",
                1,
                Some("n2"),
            ),
            ("srun: error: n2: task 1: Killed", 1, Some("n2")),
        ] {
            let found = first_failure(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((found.rank, found.host.as_deref()), (rank, host));
        }
        assert_eq!(first_failure("step 10/20: loss 5.4"), None);
    }
}
