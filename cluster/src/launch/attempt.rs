//! One attempt of a job: started, listened to, and ended where it does not end by itself.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::command::Start;
use super::hearing::{FirstFailure, Heard, first_failure, lines, listen};
use super::hosts::Host;
use super::policy::STOPPED;
use super::pulse::{Beat, EVERY, Hello, identity};

/// How often the supervisor looks at what it has heard.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long the starter has to end once its ranks were killed.
const LAST_GRACE: Duration = Duration::from_secs(5);
/// How long it has once they ended by themselves. Rarely, Open MPI 4.1.4 waits for ever at its end.
const AFTER_ALL: Duration = Duration::from_secs(30);
/// How long a job may go on without a rank that was ended: long enough for the others to say what they see of it.
const WITHOUT_A_RANK: Duration = Duration::from_millis(500);
/// How long what was said is waited for when the starter has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// When an attempt is taken for hung, and how it is ended.
#[derive(Debug, Clone)]
pub struct Limits {
    /// All ranks have to be heard of within so long.
    pub start: Duration,
    /// A rank that has been heard of and is silent for so long is gone.
    pub silence: Duration,
    /// A job that makes no step for so long hangs; zero for never.
    pub stall: Duration,
    /// What ranks have for a checkpoint once they are asked to stop.
    pub grace: Duration,
}

/// A rank as it was heard of last.
#[derive(Debug, Clone, Serialize)]
pub struct RankSeen {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// What it said last.
    pub last: Beat,
    /// Seconds from then to the end of the attempt.
    pub silent_s: f64,
    /// Its connection was closed, so that its process has ended.
    pub left: bool,
}

/// How an attempt ended.
#[derive(Debug, Clone, Serialize)]
pub struct Attempt {
    /// Exit code that ranks tell, else that of the starter; 128 + N where signal N ended it.
    pub code: i32,
    /// Why the supervisor ended it, where it did.
    pub hung: Option<String>,
    /// It was asked to stop.
    pub stopping: bool,
    /// The rank that failed first, as far as is known.
    pub first: Option<FirstFailure>,
    /// All ranks that were heard of.
    pub ranks: Vec<RankSeen>,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// The last lines of its stderr.
    pub last_lines: Vec<String>,
    /// How long ranks that may still run, out of sight, can go on.
    #[serde(skip)]
    pub lease_left: Duration,
}

/// Lines of stderr that a report keeps: a panic comes with a long trace.
const KEPT_LINES: usize = 200;
/// What is said of a rank that its starter ended well without.
const NEVER_DONE: &str = "its starter ended with 0, and it did not say that it was done";
/// Exit codes of a job whose ranks are gone, and nobody says why; and of one that does not get on.
const RANKS_GONE: i32 = 69;
const HUNG: i32 = 82;
/// What is said of a rank of which nothing else is known.
const ENDED: &str = "its process ended";

struct Seen {
    hello: Hello,
    beat: Beat,
    at: Instant,
    left: bool,
}

/// Runs one attempt to its end. `stop` is asked now and then; once it says so the ranks are asked to stop with a checkpoint, and
/// have the grace for it.
///
/// # Errors
///
/// The command cannot be started.
pub async fn run(
    start: &Start,
    listener: &TcpListener,
    token: &str,
    limits: &Limits,
    stop: &dyn Fn() -> bool,
    hear: &mut dyn FnMut(&Heard),
) -> io::Result<Attempt> {
    let mut command = start.command();
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Command::from(command).kill_on_drop(true).spawn()?;
    let (heard_by, mut heard) = unbounded_channel();
    let said = child.stderr.take().map(|stderr| tokio::spawn(lines(stderr, heard_by.clone(), Heard::Line)));
    let told = child.stdout.take().map(|stdout| tokio::spawn(lines(stdout, heard_by.clone(), Heard::Result)));
    let mut watched = Watched::new(limits, &start.hosts, start.ranks);
    let mut listeners = JoinSet::new();
    let following =
        watched.follow(&mut child, (listener, token), &mut listeners, (&heard_by, &mut heard), stop, hear);
    let status = following.await?;
    // Without their starter, ranks that were stopped would go on for ever.
    watched.kill_ranks_here();
    // What the job has said to its end. Ranks that are left over elsewhere may hold its streams open.
    for reader in [said, told].into_iter().flatten() {
        let _ = timeout(LOOK_EVERY, reader).await;
    }
    drop(heard_by);
    let until = Instant::now() + LAST_WORDS;
    while let Ok(Some(message)) = timeout(until.saturating_duration_since(Instant::now()), heard.recv()).await
    {
        watched.take(message, hear);
    }
    // Whoever is left over elsewhere gets no answer from now on, and ends.
    drop(listeners);
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
    Ok(watched.attempt(code))
}

/// What is known of a running attempt.
struct Watched<'a> {
    limits: &'a Limits,
    hosts: &'a [Host],
    begun: Instant,
    ranks: Vec<Option<Seen>>,
    first: Option<FirstFailure>,
    lines: Vec<String>,
    /// The highest step that was heard of, and when it was first.
    step: (u64, Instant),
    hung: Option<String>,
    /// When a rank was ended.
    broken: Option<Instant>,
    /// When the ranks were asked to stop, or the job was ended.
    asked: Option<Instant>,
    ended: Option<Instant>,
}

impl<'a> Watched<'a> {
    fn new(limits: &'a Limits, hosts: &'a [Host], ranks: usize) -> Self {
        let now = Instant::now();
        Self {
            limits,
            hosts,
            begun: now,
            ranks: (0..ranks).map(|_| None).collect(),
            first: None,
            lines: Vec::new(),
            step: (0, now),
            hung: None,
            broken: None,
            asked: None,
            ended: None,
        }
    }

    async fn follow(
        &mut self,
        child: &mut Child,
        (listener, token): (&TcpListener, &str),
        listeners: &mut JoinSet<()>,
        (heard_by, heard): (&UnboundedSender<Heard>, &mut UnboundedReceiver<Heard>),
        stop: &dyn Fn() -> bool,
        hear: &mut dyn FnMut(&Heard),
    ) -> io::Result<std::process::ExitStatus> {
        let group = child.id().and_then(|id| Pid::from_raw(id as i32));
        let mut look = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                status = child.wait() => return status,
                Some(message) = heard.recv() => self.take(message, hear),
                Ok((stream, _)) = listener.accept() => {
                    listeners.spawn(listen(stream, token.to_string(), heard_by.clone()));
                }
                _ = look.tick() => {
                    // What was heard meanwhile counts before anybody is called silent.
                    while let Ok(message) = heard.try_recv() {
                        self.take(message, hear);
                    }
                    // What has ended meanwhile cannot be sent anything.
                    match (self.next_signal(stop), group) {
                        (Some(Signal::KILL), Some(group)) => _ = kill_process_group(group, Signal::KILL),
                        (Some(Signal::TERM), Some(group)) => {
                            self.kill_ranks_here();
                            _ = kill_process(group, Signal::TERM);
                        }
                        (Some(signal), Some(group)) => _ = kill_process(group, signal),
                        _ => {}
                    }
                }
            }
        }
    }

    /// What is to be sent now. The starter passes USR1 on to all ranks, which stop with a checkpoint.
    fn next_signal(&mut self, stop: &dyn Fn() -> bool) -> Option<Signal> {
        let grace = self.limits.grace;
        match (self.ended, self.asked) {
            (Some(at), _) => (at.elapsed() > LAST_GRACE).then_some(Signal::KILL),
            (None, Some(at)) if at.elapsed() > grace => {
                self.ended = Some(Instant::now());
                Some(Signal::TERM)
            }
            _ if self.broken.is_some_and(|since| since.elapsed() > WITHOUT_A_RANK) => {
                // The starter sees it too, and ends the others in its own time.
                self.ended = Some(Instant::now());
                self.kill_ranks_here();
                None
            }
            _ if self.all_have_left() => {
                self.ended = Some(Instant::now());
                Some(Signal::KILL)
            }
            _ => {
                if let Some(why) = self.trouble() {
                    self.hung = Some(why);
                    self.ended = Some(Instant::now());
                    return Some(Signal::TERM);
                }
                if self.asked.is_none() && stop() {
                    self.asked = Some(Instant::now());
                    return Some(Signal::USR1);
                }
                None
            }
        }
    }

    /// Whether all ranks ended some time ago.
    fn all_have_left(&self) -> bool {
        let has_left =
            |seen: &Seen| (seen.left || seen.beat.leaving.is_some()) && seen.at.elapsed() > AFTER_ALL;
        self.ranks.iter().all(|seen| seen.as_ref().is_some_and(has_left))
    }

    /// Why the attempt is taken for hung. The rank that is to blame, where one is, is the first to have failed.
    fn trouble(&mut self) -> Option<String> {
        let is_silent = |seen: &&Seen| {
            let speaks = !seen.left && seen.beat.leaving.is_none();
            speaks && seen.at.elapsed() > self.limits.silence
        };
        let silent = self.ranks.iter().flatten().find(is_silent);
        if let Some(seen) = silent {
            let (rank, seconds) = (seen.hello.rank, seen.at.elapsed().as_secs_f64());
            let what = format!("it was silent for {seconds:.0} s");
            return Some(self.blame(rank, what));
        }
        if self.ranks.iter().any(Option::is_none) {
            let limit = self.limits.start;
            self.step.1 = Instant::now();
            return (self.begun.elapsed() > limit).then(|| self.blame_the_absent(limit));
        }
        let (step, since) = self.step;
        if self.limits.stall.is_zero() || since.elapsed() < self.limits.stall {
            return None;
        }
        let why = format!("no step followed step {step} for {:.0} s", since.elapsed().as_secs_f64());
        // All others wait for it.
        let late = self.ranks.iter().flatten().find(|seen| seen.beat.waits.is_none());
        match late.map(|seen| seen.hello.rank) {
            Some(rank) => Some(self.blame(rank, why)),
            None => Some(why),
        }
    }

    /// Where nobody was heard of, the starter may wait for any host, and none is to blame; else one that no rank was heard of from.
    fn blame_the_absent(&mut self, limit: Duration) -> String {
        let what = format!("it was not heard of within {} s", limit.as_secs());
        let present: Vec<Option<&str>> = (0..self.ranks.len())
            .filter(|rank| self.ranks[*rank].is_some())
            .map(|rank| self.host_of(rank))
            .collect();
        let is_suspect =
            |rank: &usize| self.ranks[*rank].is_none() && !present.contains(&self.host_of(*rank));
        match (0..self.ranks.len()).find(is_suspect).filter(|_| !present.is_empty()) {
            Some(rank) => self.blame(rank, what),
            None => format!("not all ranks were heard of within {} s", limit.as_secs()),
        }
    }

    fn blame(&mut self, rank: usize, what: String) -> String {
        let why = format!("rank {rank} on {}: {what}", self.host_of(rank).unwrap_or("its host"));
        self.first = Some(FirstFailure { rank, host: self.host_of(rank).map(Into::into), what });
        why
    }

    /// The host of a rank, by the name that it was given by: the one that the rank tells, or the one whose slots it is in.
    fn host_of(&self, rank: usize) -> Option<&str> {
        let told = self.ranks.get(rank).and_then(Option::as_ref).map(|seen| seen.hello.host.as_str());
        let short = |name: &'_ str| name.split('.').next().unwrap_or_default().to_string();
        let named = self.hosts.iter().find(|host| told.is_some_and(|told| short(told) == short(&host.name)));
        if let Some(host) = named {
            return Some(&host.name);
        }
        let mut before = 0;
        let placed = self.hosts.iter().find(|host| {
            before += host.slots;
            rank < before
        });
        placed.map(|host| host.name.as_str()).or(told)
    }

    /// Ends the ranks on this host that have not ended.
    fn kill_ranks_here(&self) {
        for seen in self.ranks.iter().flatten().filter(|seen| !seen.left) {
            // Numbers of processes are those of another host, or of another process by now, where this does not agree.
            let is_it = identity(seen.hello.process).is_some_and(|found| found == seen.hello.identity);
            if let Some(process) = Pid::from_raw(seen.hello.process as i32).filter(|_| is_it) {
                let _ = kill_process(process, Signal::KILL);
            }
        }
    }

    fn take(&mut self, message: Heard, hear: &mut dyn FnMut(&Heard)) {
        hear(&message);
        let now = Instant::now();
        match message {
            Heard::Result(_) => {}
            Heard::Line(line) => {
                if let Some(said) = first_failure(&line) {
                    self.note(said);
                }
                self.lines.push(line);
                let surplus = self.lines.len().saturating_sub(KEPT_LINES);
                self.lines.drain(..surplus);
            }
            Heard::Joined(hello) => {
                let rank = hello.rank;
                if let Some(place) = self.ranks.get_mut(rank) {
                    *place = Some(Seen { hello, beat: Beat::default(), at: now, left: false });
                }
            }
            Heard::Beat(rank, beat, at) => {
                // Another seed begins again with the first.
                if beat.step != self.step.0 {
                    self.step = (beat.step, at);
                }
                if let Some(Some(seen)) = self.ranks.get_mut(rank) {
                    (seen.beat, seen.at) = (beat, at);
                }
            }
            Heard::Left(rank) => {
                let Some(Some(seen)) = self.ranks.get_mut(rank) else { return };
                (seen.left, seen.at) = (true, now);
                if seen.beat.leaving.is_none() {
                    self.broken.get_or_insert(now);
                    self.note(FirstFailure { rank, host: None, what: ENDED.into() });
                }
            }
        }
    }

    /// Takes note of a failure: the first that is heard of before the job is ended, and what more is said of the same rank.
    fn note(&mut self, failure: FirstFailure) {
        match &mut self.first {
            None if self.ended.is_none() => self.first = Some(failure),
            None => {}
            Some(first) if first.rank == failure.rank && first.what == ENDED => *first = failure,
            Some(_) => {}
        }
    }

    /// The exit code of the job. Ranks know theirs better than their starter: it may get stuck at its own end, count those that it killed itself,
    /// or, as Slurm's srun does where it could not start a step, end with 0.
    fn code(&mut self, starters: i32) -> i32 {
        let own = |seen: &Option<Seen>| seen.as_ref().and_then(|seen| seen.beat.leaving);
        let codes: Vec<Option<u8>> = self.ranks.iter().map(own).collect();
        let of_first = self.first.as_ref().and_then(|first| codes.get(first.rank).copied().flatten());
        let unfinished = codes.iter().position(Option::is_none);
        match (self.hung.is_some(), unfinished) {
            (true, _) => HUNG,
            (false, None) => codes.into_iter().flatten().find(|code| *code != 0).unwrap_or(0).into(),
            (false, Some(_)) if of_first.is_some_and(|code| code != 0) => of_first.unwrap_or_default().into(),
            (false, Some(rank)) if starters == 0 => {
                self.note(FirstFailure { rank, host: None, what: NEVER_DONE.into() });
                RANKS_GONE
            }
            _ => starters,
        }
    }

    fn attempt(mut self, starters: i32) -> Attempt {
        let code = self.code(starters);
        let failed = ![0, STOPPED].contains(&code) || self.hung.is_some();
        let mut first = self.first.clone().filter(|_| failed);
        if let Some(first) = &mut first {
            first.host = self.host_of(first.rank).map(Into::into).or(first.host.take());
        }
        let own = identity(std::process::id()).unwrap_or_default();
        let place = |identity: &str| identity.rsplit_once(' ').map(|(place, _)| place.to_string());
        // Those on this host were killed.
        let out_of_sight = |seen: &&Seen| {
            let is_here = place(&own).is_some() && place(&own) == place(&seen.hello.identity);
            !seen.left && seen.beat.leaving.is_none() && !is_here
        };
        // A rank may have been answered just after it was heard of last.
        let lease = |seen: &Seen| (self.limits.silence + 2 * EVERY).saturating_sub(seen.at.elapsed());
        let lease_left =
            self.ranks.iter().flatten().filter(out_of_sight).map(lease).max().unwrap_or_default();
        let seen = self.ranks.into_iter().flatten();
        let ranks = seen.map(|seen| RankSeen {
            rank: seen.hello.rank,
            host: seen.hello.host,
            last: seen.beat,
            silent_s: seen.at.elapsed().as_secs_f64(),
            left: seen.left,
        });
        Attempt {
            code,
            hung: self.hung,
            stopping: self.asked.is_some(),
            first,
            ranks: ranks.collect(),
            seconds: self.begun.elapsed().as_secs_f64(),
            last_lines: self.lines,
            lease_left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        start: Duration::ZERO,
        silence: Duration::ZERO,
        stall: Duration::ZERO,
        grace: Duration::from_secs(1),
    };

    fn hello(rank: usize) -> Hello {
        Hello { token: String::new(), rank, host: format!("n{rank}"), process: 0, identity: String::new() }
    }

    #[test]
    fn ranks_know_their_exit_code_better_than_their_starter() {
        let code = |leaving: [Option<u8>; 2], said: &str, starters: i32| {
            let mut watched = Watched::new(&LIMITS, &[], 2);
            for (rank, leaving) in leaving.into_iter().enumerate() {
                watched.take(Heard::Joined(hello(rank)), &mut |_| {});
                let beat = Beat { leaving, ..Beat::default() };
                watched.take(Heard::Beat(rank, beat, Instant::now()), &mut |_| {});
            }
            watched.take(Heard::Line(said.into()), &mut |_| {});
            watched.attempt(starters).code
        };
        // Stuck at its end, and killed.
        assert_eq!(code([Some(0), Some(0)], "", 137), 0);
        assert_eq!(code([Some(75), Some(75)], "", 137), 75);
        // One rank's own failure, whatever the others were ended by.
        assert_eq!(code([None, Some(65)], "segue: error on rank 1: bad", 137), 65);
        // Nobody says more than the starter; a step that was not started.
        assert_eq!(code([Some(0), None], "", 137), 137);
        assert_eq!(code([None, None], "", 0), 69);
    }

    #[test]
    fn who_has_taken_leave_is_not_silent_and_the_absent_are_blamed_where_others_came() {
        let hosts = [Host { name: "n0".into(), slots: 1 }, Host { name: "n1".into(), slots: 1 }];
        let mut watched = Watched::new(&LIMITS, &hosts, 2);
        assert!(
            watched.trouble().is_some_and(|why| why.starts_with("not all ranks")) && watched.first.is_none()
        );
        watched.take(Heard::Joined(hello(0)), &mut |_| {});
        let leaving = Beat { leaving: Some(0), ..Beat::default() };
        watched.take(Heard::Beat(0, leaving.clone(), Instant::now()), &mut |_| {});
        assert!(watched.trouble().is_some_and(|why| why.contains("rank 1 on n1")));
        watched.take(Heard::Joined(hello(1)), &mut |_| {});
        assert!(watched.trouble().is_some_and(|why| why.contains("rank 1 on n1: it was silent")));
        watched.take(Heard::Beat(1, leaving, Instant::now()), &mut |_| {});
        assert_eq!(watched.trouble(), None);
    }
}
