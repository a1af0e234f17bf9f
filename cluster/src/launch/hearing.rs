//! What a supervisor hears of the ranks that it has started: over their connections, and by what they and their starter print.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use segue_door::{Limits, Place, same};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};
use tokio::time::timeout;

use super::progress::Straggler;
use super::pulse::{Beat, HEARD, Hello, LONGEST_LINE, TELL};

/// How long whoever connects has to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(1);
/// Longest line of a job that is passed on in one piece; the result of a command is one.
const LONGEST_SAID: u64 = 16 << 20;
/// Connections of strangers beside those of ranks, which are strangers until they have said who they are.
const STRANGERS: usize = 64;

/// How many connections there may be at once, where `ranks` ranks are expected, which may all be of one host.
pub fn connections(ranks: usize) -> Limits {
    let of_network = ranks.saturating_add(STRANGERS);
    Limits { strangers: of_network.saturating_mul(2), of_network, known: of_network }
}

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
    let (mut stream, mut line) = (BufReader::new(stream), Vec::new());
    while let Ok(1..) = (&mut stream).take(LONGEST_SAID).read_until(b'\n', &mut line).await {
        let said = line.strip_suffix(b"\n").unwrap_or(&line);
        let _ = heard.send(as_what(String::from_utf8_lossy(said).trim_end_matches('\r').into()));
        line.clear();
    }
}

/// What is listened to, and what is answered.
#[derive(Clone)]
pub struct Ear {
    /// What ranks of the attempt say first.
    pub token: String,
    /// Receivers of events. Connections of strangers do not hold it open.
    pub heard: WeakUnboundedSender<Heard>,
    /// Whether ranks are asked how they stand.
    pub wants_to_know: Arc<AtomicBool>,
}

/// Hears a rank to the end of its connection, and asks it how it stands once that is to be known. Whoever does not have the token is not
/// listened to.
pub async fn listen(stream: TcpStream, place: Place, ear: Ear) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::with_capacity(LONGEST_LINE, reader);
    let Ok(Some(hello)) = timeout(HELLO_WITHIN, message::<Hello>(&mut lines)).await else { return };
    let Some(heard) = ear.heard.upgrade().filter(|_| same(&hello.token, &ear.token) && place.keep()) else {
        return;
    };
    let rank = hello.rank;
    let mut next = Some(Heard::Joined(Hello { token: String::new(), ..hello }));
    // Of a rank that is known, the silence is watched by whoever hears of it.
    while let Some(message_of_rank) = next {
        let answer = if ear.wants_to_know.load(Ordering::Relaxed) { TELL } else { HEARD };
        if heard.send(message_of_rank).is_err() || writer.write_all(&[answer]).await.is_err() {
            break;
        }
        next = message(&mut lines).await.map(|beat| Heard::Beat(rank, beat, Instant::now()));
    }
    let _ = heard.send(Heard::Left(rank));
}

/// Next line of a connection; `None` at its end, or where no rank can have sent it.
async fn message<T: DeserializeOwned>(lines: &mut (impl AsyncBufRead + Unpin)) -> Option<T> {
    let mut line = Vec::new();
    lines.take(LONGEST_LINE as u64).read_until(b'\n', &mut line).await.ok()?;
    serde_json::from_slice(line.strip_suffix(b"\n")?).ok()
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
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};
    use std::thread;

    use segue_door::Door;
    use tokio::runtime::Builder;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    /// A port that listens for ranks that say `token`, where one is expected; what is heard there.
    fn listening() -> (std::net::SocketAddr, UnboundedReceiver<Heard>) {
        let (port, ports) = std::sync::mpsc::channel();
        let (heard_by, heard) = unbounded_channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = segue_door::listen((Ipv4Addr::LOCALHOST, 0).into(), 4096).unwrap();
                port.send(listener.local_addr().unwrap()).unwrap();
                let wants_to_know = Arc::default();
                let ear = Ear { token: "token".into(), heard: heard_by.downgrade(), wants_to_know };
                Door::new(connections(1))
                    .open(&listener, |stream, place| listen(stream, place, ear.clone()))
                    .await
            })
        });
        (ports.recv().unwrap(), heard)
    }

    fn hello(token: &str) -> Vec<u8> {
        let hello =
            Hello { token: token.into(), rank: 0, host: "n0".into(), process: 1, identity: String::new() };
        let mut line = serde_json::to_vec(&hello).unwrap();
        line.push(b'\n');
        line
    }

    #[test]
    fn a_connection_without_the_token_is_gone_within_a_second() {
        let (at, mut heard) = listening();
        let (begun, rank) = (Instant::now(), hello("token"));
        let streams = [&b""[..], b"{\"token\":", &hello("tokem"), b"\n", &b"x".repeat(1 << 20)].map(|said| {
            let mut stream = TcpStream::connect(at).unwrap();
            // A line without end is not read to its end.
            let _ = stream.write_all(said);
            stream
        });
        for mut stream in streams {
            assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
        }
        assert!(begun.elapsed() < 5 * HELLO_WITHIN, "{:?}", begun.elapsed());
        assert!(heard.try_recv().is_err());
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&rank).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert!(matches!(heard.blocking_recv(), Some(Heard::Joined(hello)) if hello.token.is_empty()));
    }

    #[test]
    fn a_rank_is_heard_beside_any_number_of_other_connections() {
        let (at, mut heard) = listening();
        let mut rank = TcpStream::connect(at).unwrap();
        rank.write_all(&hello("token")).unwrap();
        let others: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(at).unwrap()).collect();
        rank.write_all(b"{\"step\":7,\"resident\":1}\n").unwrap();
        rank.read_exact(&mut [0; 2]).unwrap();
        assert!(matches!(heard.blocking_recv(), Some(Heard::Joined(_))));
        assert!(matches!(heard.blocking_recv(), Some(Heard::Beat(0, beat, _)) if beat.step == 7));
        // The oldest have gone for the newest, and this is one.
        let mut others = others.into_iter();
        assert!(!matches!(others.next().unwrap().read(&mut [0]), Ok(1..)));
        drop(rank);
        assert!(matches!(heard.blocking_recv(), Some(Heard::Left(0))));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_line_without_end_is_passed_on_in_pieces() {
        let (heard_by, mut heard) = unbounded_channel();
        let text = format!("one\r\n{}\nlast", "x".repeat(LONGEST_SAID as usize + 3));
        lines(text.as_bytes(), heard_by, Heard::Line).await;
        let mut lengths = Vec::new();
        while let Some(Heard::Line(line)) = heard.recv().await {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [3, LONGEST_SAID as usize, 3, 4]);
    }

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
