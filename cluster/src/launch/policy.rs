//! What follows from how an attempt of a job ended: nothing, another attempt, or the end of trying.

use std::fmt;
use std::time::Duration;

use crate::exit_code::{
    BAD_CONFIG, BAD_DATA, CANNOT_CREATE, IO_FAILED, NO_INPUT, NOT_A_NUMBER, PREEMPTED, USAGE,
};

/// How an attempt ended, as the supervisor saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Exit code of the launcher; 128 + N where signal N ended it.
    pub code: i32,
    /// The supervisor ended it, since nothing was heard of it any more.
    pub hung: bool,
    /// The supervisor was told to stop meanwhile.
    pub stopping: bool,
    /// All ranks were heard of.
    pub begun: bool,
    /// Step of the newest checkpoint after it.
    pub step: u64,
    /// The host of the rank that failed first, where that is known.
    pub host: Option<String>,
}

/// When to start again.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Restarts in all.
    pub restarts: usize,
    /// Restarts in a row without a newer checkpoint, after which it is given up.
    pub without_progress: usize,
    /// Wait before the first restart; twice as long before each further one without progress.
    pub back_off: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// Failures of one host, with which it is left out as long as the others are enough.
    pub blocked_after: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            restarts: 100,
            without_progress: 3,
            back_off: Duration::from_secs(1),
            longest: Duration::from_secs(300),
            blocked_after: 3,
        }
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The job is done.
    Done,
    /// It stopped as it was asked to: with a checkpoint, or before there was anything to keep.
    Stopped,
    /// It is started again after a wait.
    Restart(Duration),
    /// No attempt would end otherwise, or too many have been made: the supervisor ends with this code, and says why.
    GiveUp {
        /// Exit code of the supervisor.
        code: i32,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Stopped => f.write_str("stopped with a checkpoint"),
            Self::Restart(wait) => write!(f, "again in {} s", wait.as_secs_f64()),
            Self::GiveUp { why, .. } => write!(f, "given up: {why}"),
        }
    }
}

/// Exit codes that another attempt meets again: the command line, the data, a missing input, an output that cannot be made, the
/// configuration, a loss that is not a number.
const FOR_GOOD: [i32; 6] = [USAGE, BAD_DATA, NO_INPUT, CANNOT_CREATE, BAD_CONFIG, NOT_A_NUMBER];
/// Exit codes of ranks that did not come to their last checkpoint, and would not the next time: those of above, but one that may come of ranks
/// that are still ending, and one of files that cannot be written.
const FAILED: [i32; 6] = [USAGE, BAD_DATA, NO_INPUT, IO_FAILED, BAD_CONFIG, NOT_A_NUMBER];

/// What has happened so far.
#[derive(Debug, Default)]
pub struct History {
    restarts: usize,
    fruitless: usize,
    step: u64,
    failures: Vec<(String, usize)>,
}

impl History {
    /// Of a job whose newest checkpoint is of `step`.
    pub fn new(step: u64) -> Self {
        Self { step, ..Self::default() }
    }

    /// Takes note of an attempt, and says what is to be done next.
    pub fn after(&mut self, ended: &Ended, policy: &Policy) -> Next {
        let progress = ended.step > self.step;
        self.step = self.step.max(ended.step);
        match ended.code {
            0 if !ended.hung => return Next::Done,
            PREEMPTED if !ended.hung => return Next::Stopped,
            // A job that is queued again after a full disk, say, comes to that again, and again.
            code if ended.stopping && FAILED.contains(&code) && !ended.hung => {
                return Next::GiveUp { code, why: "it was asked to stop, and failed".into() };
            }
            // What lies there is gone on from, though it may be older than the signal; and where no step was made, nothing is lost.
            _ if ended.stopping && (ended.step > 0 || !ended.begun) => return Next::Stopped,
            code if ended.stopping => {
                return Next::GiveUp {
                    code,
                    why: "it was asked to stop, and ended without a checkpoint".into(),
                };
            }
            code if FOR_GOOD.contains(&code) && !ended.hung => {
                return Next::GiveUp { code, why: format!("another attempt would end with {code} too") };
            }
            _ => {}
        }
        if let Some(host) = &ended.host {
            match self.failures.iter_mut().find(|(known, _)| known == host) {
                Some((_, count)) => *count += 1,
                None => self.failures.push((host.clone(), 1)),
            }
        }
        self.fruitless = if progress { 0 } else { self.fruitless + 1 };
        self.restarts += 1;
        if self.fruitless > policy.without_progress {
            let of_step = match self.step {
                0 => "no checkpoint".to_string(),
                step => format!("no newer checkpoint than that of step {step}"),
            };
            let why = match policy.without_progress {
                0 => format!("this attempt has brought {of_step}"),
                1 => format!("a restart has brought {of_step}"),
                restarts => format!("{restarts} restarts in a row have brought {of_step}"),
            };
            return Next::GiveUp { code: ended.code, why };
        }
        if self.restarts > policy.restarts {
            let why = match policy.restarts {
                0 => "it is not to be restarted".into(),
                1 => "it has been restarted once".into(),
                restarts => format!("it has been restarted {restarts} times"),
            };
            return Next::GiveUp { code: ended.code, why };
        }
        let doublings = self.fruitless.saturating_sub(1).min(16) as u32;
        Next::Restart(policy.back_off.saturating_mul(2u32.pow(doublings)).min(policy.longest))
    }

    /// Hosts that have failed too often to be used again.
    pub fn blocked(&self, policy: &Policy) -> Vec<String> {
        let often = self.failures.iter().filter(|(_, count)| *count >= policy.blocked_after);
        often.map(|(host, _)| host.clone()).collect()
    }

    /// Restarts so far.
    pub fn restarts(&self) -> usize {
        self.restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, step: u64) -> Ended {
        Ended { code, hung: false, stopping: false, begun: true, step, host: None }
    }

    #[test]
    fn an_end_that_another_attempt_would_meet_again_is_the_last() {
        let policy = Policy::default();
        let next = |ended: Ended| History::new(5).after(&ended, &policy);
        assert_eq!(next(ended(0, 9)), Next::Done);
        assert_eq!(next(ended(75, 9)), Next::Stopped);
        for code in [64, 65, 66, 73, 78, 80] {
            assert!(matches!(next(ended(code, 9)), Next::GiveUp { code: told, .. } if told == code));
        }
        for code in [1, 69, 70, 74, 81, 82, 137, 139] {
            assert_eq!(next(ended(code, 9)), Next::Restart(policy.back_off), "{code}");
        }
        assert_eq!(next(Ended { stopping: true, ..ended(137, 9) }), Next::Stopped);
        assert!(matches!(next(Ended { stopping: true, ..ended(137, 0) }), Next::GiveUp { code: 137, .. }));
        assert_eq!(next(Ended { stopping: true, begun: false, ..ended(143, 0) }), Next::Stopped);
        for code in [74, 78, 80] {
            let failed = Ended { stopping: true, ..ended(code, 9) };
            assert!(matches!(next(failed), Next::GiveUp { code: told, .. } if told == code));
        }
        assert_eq!(next(Ended { stopping: true, ..ended(0, 9) }), Next::Done);
        assert_eq!(next(Ended { hung: true, ..ended(137, 9) }), Next::Restart(policy.back_off));
    }

    #[test]
    fn waits_grow_without_progress_until_it_is_given_up() {
        let policy = Policy { longest: Duration::from_secs(3), without_progress: 4, ..Policy::default() };
        let mut history = History::new(0);
        let waits: Vec<Next> = (0..5).map(|_| history.after(&ended(137, 0), &policy)).collect();
        let wait = |seconds| Next::Restart(Duration::from_secs(seconds));
        assert_eq!(waits[..4], [wait(1), wait(2), wait(3), wait(3)]);
        assert!(matches!(&waits[4], Next::GiveUp { code: 137, why } if why.contains("4 restarts")));
        let long = Policy { back_off: Duration::MAX, ..policy.clone() };
        let mut history = History::new(0);
        assert_eq!([0; 2].map(|_| history.after(&ended(137, 0), &long)), [wait(3), wait(3)]);
        // A newer checkpoint begins the count anew.
        let mut history = History::new(0);
        for step in [0, 0, 0, 7, 7, 7, 8] {
            assert!(matches!(history.after(&ended(137, step), &policy), Next::Restart(_)));
        }
        assert_eq!(history.restarts(), 7);
        let few = Policy { restarts: 2, ..policy };
        let mut history = History::new(0);
        let all: Vec<Next> = (1..4).map(|step| history.after(&ended(82, step), &few)).collect();
        assert!(matches!(&all[2], Next::GiveUp { code: 82, why } if why.contains("2 times")), "{all:?}");
    }

    #[test]
    fn one_restart_and_none_are_told_as_such() {
        let why = |restarts, without_progress, step| {
            let policy = Policy { restarts, without_progress, ..Policy::default() };
            let mut history = History::new(0);
            loop {
                if let Next::GiveUp { why, .. } = history.after(&ended(137, step), &policy) {
                    return why;
                }
            }
        };
        assert_eq!(why(9, 0, 0), "this attempt has brought no checkpoint");
        assert_eq!(why(9, 1, 0), "a restart has brought no checkpoint");
        assert_eq!(why(9, 1, 4), "a restart has brought no newer checkpoint than that of step 4");
        assert_eq!(why(0, 9, 0), "it is not to be restarted");
        assert_eq!(why(1, 9, 0), "it has been restarted once");
    }

    #[test]
    fn hosts_that_fail_repeatedly_are_left_out() {
        let (policy, mut history) = (Policy { blocked_after: 2, ..Policy::default() }, History::new(0));
        for (step, host) in ["a", "b", "a"].into_iter().enumerate() {
            history.after(&Ended { host: Some(host.into()), ..ended(137, step as u64 + 1) }, &policy);
        }
        assert_eq!(history.blocked(&policy), ["a"]);
    }
}
