//! A job, its supervisor and two pages of it under hostile connections: `SEGUE_SOAK_CONNECTIONS` of them (20,000), on the loopback alone,
//! for `SEGUE_SOAK_MINUTES` at most.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use segue_tests::http::Server;
use segue_tests::{Workplace, alone, children, succeed, wait_for};
use serde_json::Value;

use super::{limit, number};

/// Threads that connect, connections that each holds open, and how many it makes in a second: a host that is kept busy with nothing else answers
/// nobody.
const THREADS: u64 = 2;
const HELD: usize = 400;
const PER_SECOND: f64 = 1250.0;
/// Connections before memory is measured: code is loaded with its first use, and what is freed is kept for the next.
const WARMED_UP: u64 = 2000;
/// What memory may grow by.
const FLAT: u64 = 5 << 20;
/// Within which time whoever has the token is answered.
const SOON: Duration = Duration::from_secs(1);
const STEPS: &str = "train.steps=400";

/// What strangers say, to one who expects a request and to one who expects a rank.
fn sayings() -> Vec<Vec<u8>> {
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let rank =
        r#"{"token":"0123456789abcdef0123456789abcdef","rank":0,"host":"n","process":1,"identity":""}"#;
    let texts = [
        String::new(),
        "GET / HTTP/1.1\r\nHost: ".into(),
        request("/runs.json").repeat(200),
        request("/events"),
        request("/?token=0123456789abcdef0123456789abcdef"),
        format!("GET / HTTP/1.1\r\nCookie: {}", "c".repeat(64 << 10)),
        "{\"token\":".into(),
        format!("{rank}\n"),
        "[".repeat(64 << 10),
        "\n".into(),
    ];
    texts.map(String::into_bytes).into()
}

/// What all threads share.
struct Soak {
    /// Ports to connect to: those of the pages, and that of the supervisor while there is one.
    ports: [AtomicU16; 3],
    made: AtomicU64,
    most: u64,
    ends: AtomicBool,
}

impl Soak {
    fn is_over(&self) -> bool {
        self.ends.load(Ordering::Relaxed) || self.made.load(Ordering::Relaxed) >= self.most
    }

    /// Connects again and again, says something, and reads nothing.
    fn attack(&self, first: u64) {
        let (sayings, mut held, begun) = (sayings(), VecDeque::new(), Instant::now());
        for round in (first..).step_by(THREADS as usize) {
            if self.is_over() {
                return;
            }
            let due = Duration::from_secs_f64((round / THREADS) as f64 / PER_SECOND);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            let port = self.ports[round as usize % 3].load(Ordering::Relaxed);
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
                // A supervisor that has ended, or no ports left on this side.
                continue;
            };
            let _ = stream.set_nonblocking(true);
            let _ = stream.write(&sayings[round as usize / 3 % sayings.len()]);
            held.push_back(stream);
            if held.len() > HELD {
                held.pop_front();
            }
            self.made.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Asks a page again and again; the longest time to an answer, and how many connections were closed without.
    fn ask(&self, port: u16, shown: &str) -> (Duration, u64, u64) {
        let (mut longest, mut answers, mut closed) = (Duration::ZERO, 0, 0);
        while !self.is_over() {
            let begun = Instant::now();
            while let Err(error) = runs(port, shown) {
                closed += 1;
                assert!(begun.elapsed() < SOON, "no answer: {error}");
            }
            longest = longest.max(begun.elapsed());
            assert!(longest < SOON, "an answer took {longest:?}");
            answers += 1;
            thread::sleep(Duration::from_millis(20));
        }
        (longest, answers, closed)
    }
}

/// Asks for what is known of the runs.
fn runs(port: u16, shown: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    write!(stream, "GET /runs.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{shown}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let whole = answer.starts_with("HTTP/1.1 200") && answer.ends_with("}]}");
    if whole { Ok(()) } else { Err(std::io::Error::other(answer)) }
}

/// Bytes that a process has resident.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// How much memory a process has had, from some time on.
#[derive(Default)]
struct Memory {
    first: Option<u64>,
    most: u64,
}

impl Memory {
    /// Looks at a process that lives.
    fn look(&mut self, process: u32) {
        let now = resident(process);
        if now > 0 {
            self.first.get_or_insert(now);
            self.most = self.most.max(now);
        }
    }

    fn growth(&self) -> u64 {
        self.most - self.first.unwrap_or(self.most)
    }
}

/// The port of the supervisor, as it tells its ranks.
fn port_of(launch: &Child) -> Option<u16> {
    let starter = children(launch.id()).first().copied()?;
    let environment = fs::read_to_string(format!("/proc/{starter}/environ")).ok()?;
    let address = environment.split('\0').find_map(|line| line.strip_prefix("SEGUE_SUPERVISOR="))?;
    address.split(' ').next()?.rsplit_once(':')?.1.parse().ok()
}

#[test]
#[ignore = "takes a minute: make soak"]
fn strangers_cost_a_job_and_its_pages_nothing() {
    let begun = Instant::now();
    let most = number("SEGUE_SOAK_CONNECTIONS").unwrap_or(20_000.0) as u64;
    let place = Workplace::new();
    let job =
        |run: &str| place.pretrain(run, &[STEPS, "checkpoint.every=50", "eval.every=0", "log.every=10"]);
    succeed(alone(&job("whole")));
    let (guarded, open) =
        (Server::start(&["--token"], &[place.text("whole")]), Server::start(&[], &[place.text("whole")]));
    let (_, token) = guarded.url.split_once("token=").expect("a token");
    let shown = format!("Authorization: Bearer {token}\r\n");
    let soak = Soak {
        ports: [guarded.port, open.port, 0].map(AtomicU16::new),
        made: AtomicU64::new(0),
        most,
        ends: AtomicBool::new(false),
    };
    let ended = thread::scope(|scope| {
        // Whatever fails ends the others too.
        let _ends = Ends(&soak.ends);
        (0..THREADS).for_each(|first| {
            _ = scope.spawn({
                let soak = &soak;
                move || soak.attack(first)
            })
        });
        let owner = scope.spawn(|| soak.ask(guarded.port, &shown));
        let anyone = scope.spawn(|| soak.ask(open.port, ""));
        let follower = scope.spawn(|| follow(&soak, guarded.port, &shown));
        let mut pages = [Memory::default(), Memory::default()];
        let (mut rounds, mut of_supervisors) = (0, 0);
        while !soak.is_over() && begun.elapsed() < limit() {
            let run = format!("run-{rounds}");
            let mut words = vec!["launch", "--json", "-n", "2"];
            let arguments = job(&run);
            words.extend(arguments.iter().map(String::as_str).filter(|word| *word != "--json"));
            let launched = alone(&words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            let mut launch = launched.expect("it starts");
            wait_for("a supervisor", Duration::from_secs(60), || port_of(&launch).is_some());
            soak.ports[2].store(port_of(&launch).unwrap_or(0), Ordering::Relaxed);
            let (mut supervisor, before) = (Memory::default(), soak.made.load(Ordering::Relaxed));
            while launch.try_wait().expect("a process of ours").is_none() {
                if soak.made.load(Ordering::Relaxed) > before + WARMED_UP {
                    supervisor.look(launch.id());
                    pages[0].look(guarded.process.id());
                    pages[1].look(open.process.id());
                }
                thread::sleep(Duration::from_millis(20));
            }
            soak.ports[2].store(0, Ordering::Relaxed);
            let output = launch.wait_with_output().expect("it has ended");
            let result: Value = serde_json::from_slice(&output.stdout).expect("a result");
            assert_eq!(result["attempts"], 1, "{result}");
            place.assert_same("whole", &run);
            fs::remove_dir_all(place.path(&run)).expect("a run of ours");
            rounds += 1;
            of_supervisors = of_supervisors.max(supervisor.growth());
        }
        soak.ends.store(true, Ordering::Relaxed);
        let growth = [of_supervisors, pages[0].growth(), pages[1].growth()];
        let answers = [owner, anyone].map(|asking| asking.join().expect("answers"));
        (rounds, growth, answers, follower.join().expect("events"))
    });
    let (rounds, growth, answers, events) = ended;
    println!(
        "{} connections in {:.0} s, {rounds} jobs of the same bytes. Growth of supervisors, the page with a token and the one without: {growth:?} \
         bytes. Longest time to an answer with the token and without one, how many, and how many connections were closed before: {answers:?}. \
         Events on one stream: {events}",
        soak.made.load(Ordering::Relaxed),
        begun.elapsed().as_secs_f64(),
    );
    assert!(growth.iter().all(|bytes| *bytes < FLAT), "{growth:?}");
}

/// Follows a page on one connection to the end; how many events came.
fn follow(soak: &Soak, port: u16, shown: &str) -> usize {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a page");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n{shown}\r\n").expect("a request");
    let lines = BufReader::new(stream).lines().map(|line| line.expect("the stream goes on"));
    let mut events = lines.filter(|line| line.starts_with("data: "));
    let mut count = 0;
    while !soak.is_over() {
        events.next().expect("the stream goes on");
        count += 1;
    }
    count
}

/// Ends all threads when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
