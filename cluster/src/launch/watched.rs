//! What a supervisor knows of a running attempt, and what it does about it: pure decisions over what was heard, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use segue_world::now;

use super::hearing::{FirstFailure, Heard, first_failure};
use super::hosts::{self, Host};
use super::outcome::{Attempt, Limits, RankSeen, Stall};
use super::progress::{Progress, Straggler};
use super::pulse::{Beat, EVERY, Hello, identity};
use crate::exit_code::{OVERDUE, PREEMPTED, UNAVAILABLE};

/// How long ranks of a job that hangs have to write down how they stand.
const TELL_WITHIN: Duration = Duration::from_millis(2500);
/// How long the starter has to end once its ranks were killed.
const LAST_GRACE: Duration = Duration::from_secs(5);
/// How long it has once they ended by themselves. Rarely, Open MPI 4.1.4 waits for ever at its end.
const AFTER_ALL: Duration = Duration::from_secs(30);
/// How long a job may go on without a rank that was ended: long enough for the others to say what they see of it.
const WITHOUT_A_RANK: Duration = Duration::from_millis(500);
/// Lines of stderr that a report keeps: a panic comes with a long trace.
const KEPT_LINES: usize = 200;
/// How ssh ends where it reaches no host, and mpirun with it.
const OF_SSH: i32 = 255;
/// What is said of a rank that its starter ended well without.
const NEVER_DONE: &str = "its starter ended with 0, and it did not say that it was done";
/// What is said of a rank of which nothing else is known.
const ENDED: &str = "its process ended";

struct Seen {
    hello: Hello,
    beat: Beat,
    at: Instant,
    left: bool,
}

/// What is known of a running attempt.
pub struct Watched<'a> {
    limits: &'a Limits,
    hosts: &'a [Host],
    begun: Instant,
    ranks: Vec<Option<Seen>>,
    first: Option<FirstFailure>,
    lines: Vec<String>,
    /// The highest step that was heard of, and when it was first.
    step: (u64, Instant),
    hung: Option<String>,
    /// It is so since a rank is out of sight.
    out_of_sight: bool,
    /// When it was taken for hung; until it is ended, ranks are asked how they stand.
    hung_at: Option<Instant>,
    wants_to_know: Arc<AtomicBool>,
    /// What the ranks have made of their time.
    progress: Progress,
    /// When a rank was ended.
    broken: Option<Instant>,
    /// When the ranks were asked to stop, or the job was ended.
    asked: Option<Instant>,
    ended: Option<Instant>,
}

impl<'a> Watched<'a> {
    /// Of an attempt that begins now with `ranks` ranks on `hosts`.
    pub fn new(limits: &'a Limits, hosts: &'a [Host], ranks: usize) -> Self {
        let now = now();
        Self {
            limits,
            hosts,
            begun: now,
            ranks: (0..ranks).map(|_| None).collect(),
            first: None,
            lines: Vec::new(),
            step: (0, now),
            hung: None,
            out_of_sight: false,
            hung_at: None,
            wants_to_know: Arc::default(),
            progress: Progress::new(ranks),
            broken: None,
            asked: None,
            ended: None,
        }
    }
    /// What is to be sent now. The starter passes USR1 on to all ranks, which stop with a checkpoint.
    pub fn next_signal(&mut self, stop: &dyn Fn() -> bool) -> Option<Signal> {
        let grace = self.limits.grace;
        match (self.ended, self.asked) {
            (Some(at), _) => (since(at) > LAST_GRACE).then_some(Signal::KILL),
            (None, Some(at)) if since(at) > grace => {
                self.ended = Some(now());
                Some(Signal::TERM)
            }
            _ if self.broken.is_some_and(|at| since(at) > WITHOUT_A_RANK) => {
                // The starter sees it too, and ends the others in its own time.
                self.ended = Some(now());
                self.kill_ranks_here();
                None
            }
            _ if self.all_have_left() => {
                self.ended = Some(now());
                Some(Signal::KILL)
            }
            _ => {
                if self.hung_at.is_some_and(|at| since(at) > TELL_WITHIN) {
                    self.ended = Some(now());
                    return Some(Signal::TERM);
                }
                // Who was asked to stop writes a checkpoint, and has the grace for it.
                if self.hung.is_none()
                    && self.asked.is_none()
                    && let Some(why) = self.trouble()
                {
                    self.hung = Some(why);
                    self.hung_at = Some(now());
                    self.wants_to_know.store(true, Ordering::Relaxed);
                    return None;
                }
                if self.asked.is_none() && stop() {
                    self.asked = Some(now());
                    if !self.has_begun() {
                        // Ranks that are being loaded would die of the other one, which nobody has told them of yet.
                        self.ended = Some(now());
                        return Some(Signal::TERM);
                    }
                    return Some(Signal::USR1);
                }
                None
            }
        }
    }

    /// Why the attempt is taken for hung, where it is.
    pub fn hung(&self) -> Option<String> {
        self.hung.clone()
    }

    /// Whether ranks are to tell how they stand, for those who answer them.
    pub fn wants_to_know(&self) -> Arc<AtomicBool> {
        self.wants_to_know.clone()
    }

    /// Whether all ranks were heard of. Before, none can have made a step.
    fn has_begun(&self) -> bool {
        self.ranks.iter().all(Option::is_some)
    }

    /// Whether all ranks ended some time ago.
    fn all_have_left(&self) -> bool {
        let has_left = |seen: &Seen| (seen.left || seen.beat.leaving.is_some()) && since(seen.at) > AFTER_ALL;
        self.ranks.iter().all(|seen| seen.as_ref().is_some_and(has_left))
    }

    /// Why the attempt is taken for hung. The rank that is to blame, where one is, is the first to have failed.
    fn trouble(&mut self) -> Option<String> {
        let is_silent = |seen: &&Seen| {
            let speaks = !seen.left && seen.beat.leaving.is_none();
            speaks && since(seen.at) > self.limits.silence
        };
        let silent = self.ranks.iter().flatten().find(is_silent);
        if let Some(seen) = silent {
            let (rank, seconds) = (seen.hello.rank, since(seen.at).as_secs_f64());
            let what = format!("it was silent for {seconds:.0} s");
            self.out_of_sight = true;
            return Some(self.blame(rank, what));
        }
        if self.ranks.iter().any(Option::is_none) {
            let limit = self.limits.start;
            self.step.1 = now();
            self.out_of_sight = since(self.begun) > limit;
            return self.out_of_sight.then(|| self.blame_the_absent(limit));
        }
        let (step, at) = self.step;
        if self.limits.stall == Stall::Learnt {
            let (limit, still) = self.progress.stall(now())?;
            let (still, limit) = (still.as_secs_f64(), limit.as_secs_f64());
            let why = format!(
                "no rank got on for {still:.0} s in step {step}; {limit:.0} s are ten times the longest pause before"
            );
            return Some(self.blame_whoever_does_not_wait(why));
        }
        if !matches!(self.limits.stall, Stall::Steps(limit) if since(at) >= limit) {
            return None;
        }
        let why = format!("no step followed step {step} for {:.0} s", since(at).as_secs_f64());
        Some(self.blame_whoever_does_not_wait(why))
    }

    /// All others wait for it.
    fn blame_whoever_does_not_wait(&mut self, why: String) -> String {
        let late = self.ranks.iter().flatten().find(|seen| seen.beat.waits.is_none());
        match late.map(|seen| seen.hello.rank) {
            Some(rank) => self.blame(rank, why),
            None => why,
        }
    }

    /// The rank that the others have waited for of late, and for which part of the time, where there is one; each is told of once.
    pub fn straggler(&mut self) -> Option<Straggler> {
        let found = self.progress.straggler()?;
        let host = self.host_of(found.rank).map(Into::into);
        Some(Straggler { host, ..found })
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

    /// The host of a rank, by the name that it was given by.
    fn host_of(&self, rank: usize) -> Option<&str> {
        let told = self.ranks.get(rank).and_then(Option::as_ref).map(|seen| seen.hello.host.as_str());
        hosts::of_rank(self.hosts, rank, told).map(|host| host.name.as_str()).or(told)
    }

    /// Ends the ranks on this host that have not ended.
    pub fn kill_ranks_here(&self) {
        for seen in self.ranks.iter().flatten().filter(|seen| !seen.left) {
            // Numbers of processes are those of another host, or of another process by now, where this does not agree.
            let is_it = identity(seen.hello.process).is_some_and(|found| found == seen.hello.identity);
            if let Some(process) = Pid::from_raw(seen.hello.process as i32).filter(|_| is_it) {
                let _ = kill_process(process, Signal::KILL);
            }
        }
    }

    /// Takes note of what was heard.
    pub fn take(&mut self, message: Heard, hear: &mut dyn FnMut(&Heard)) {
        hear(&message);
        let now = now();
        match message {
            Heard::Result(_) | Heard::Straggles(_) | Heard::Hung(_) => {}
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
                // Ranks may stand a step apart; another seed begins again with the first.
                let before = self.ranks.get(rank).and_then(Option::as_ref).map(|seen| seen.beat.step);
                if before != Some(beat.step) {
                    self.step = (beat.step, at);
                }
                self.progress.take(rank, &beat, at);
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
            (true, Some(_)) => OVERDUE,
            // All of them said so, and be it just before they were ended.
            (_, None) => codes.into_iter().flatten().find(|code| *code != 0).unwrap_or(0).into(),
            (false, Some(_)) if of_first.is_some_and(|code| code != 0) => of_first.unwrap_or_default().into(),
            (false, Some(rank)) if starters == 0 => {
                self.note(FirstFailure { rank, host: None, what: NEVER_DONE.into() });
                UNAVAILABLE
            }
            // No rank was heard of: mpirun could not start any on a host.
            _ if starters == OF_SSH && self.ranks.iter().all(Option::is_none) => UNAVAILABLE,
            _ => starters,
        }
    }

    /// How the attempt ended, whose starter ended with the code `starters`.
    pub fn attempt(mut self, starters: i32) -> Attempt {
        let (code, begun) = (self.code(starters), self.has_begun());
        let failed = ![0, PREEMPTED].contains(&code) || self.hung.is_some();
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
        let lease = |seen: &Seen| (self.limits.silence + 2 * EVERY).saturating_sub(since(seen.at));
        let lease_left =
            self.ranks.iter().flatten().filter(out_of_sight).map(lease).max().unwrap_or_default();
        let seen = self.ranks.into_iter().flatten();
        let ranks = seen.map(|seen| RankSeen {
            rank: seen.hello.rank,
            host: seen.hello.host,
            last: seen.beat,
            silent_s: since(seen.at).as_secs_f64(),
            left: seen.left,
        });
        Attempt {
            code,
            out_of_sight: self.out_of_sight && self.hung.is_some(),
            begun,
            hung: self.hung,
            stopping: self.asked.is_some(),
            first,
            ranks: ranks.collect(),
            seconds: since(self.begun).as_secs_f64(),
            last_lines: self.lines,
            lease_left,
        }
    }
}
/// How long ago that was.
fn since(at: Instant) -> Duration {
    now() - at
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        start: Duration::ZERO,
        silence: Duration::ZERO,
        stall: Stall::Never,
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
                watched.take(Heard::Beat(rank, beat, now()), &mut |_| {});
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
        watched.take(Heard::Beat(0, leaving.clone(), now()), &mut |_| {});
        assert!(watched.trouble().is_some_and(|why| why.contains("rank 1 on n1")));
        watched.take(Heard::Joined(hello(1)), &mut |_| {});
        assert!(watched.trouble().is_some_and(|why| why.contains("rank 1 on n1: it was silent")));
        watched.take(Heard::Beat(1, leaving, now()), &mut |_| {});
        assert_eq!(watched.trouble(), None);
    }
}
