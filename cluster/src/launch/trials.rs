//! What a job has tried so far: where its next attempt runs, and whether there is one.

use super::hosts::{Host, take};
use super::names::unreached;
use super::outcome::Attempt;
use super::policy::{Ended, History, Next, Policy};
use crate::exit_code::UNAVAILABLE;

/// The attempts of one job.
pub struct Trials<'a> {
    hosts: &'a [Host],
    ranks: usize,
    min_ranks: usize,
    policy: &'a Policy,
    history: History,
    /// Hosts that ranks went silent on: left out as long as the others are enough.
    avoided: Vec<String>,
}

impl<'a> Trials<'a> {
    /// Of a job that wants `ranks` ranks on `hosts`, takes `min_ranks` where hosts are lost, and whose newest checkpoint is of `step`.
    pub fn new(hosts: &'a [Host], ranks: usize, min_ranks: usize, policy: &'a Policy, step: u64) -> Self {
        Self { hosts, ranks, min_ranks, policy, history: History::new(step), avoided: Vec::new() }
    }

    /// Where the next attempt runs, with as many ranks as can be; none where `can_share` allows of no number that there is room for.
    pub fn choose(&self, can_share: &dyn Fn(usize) -> bool) -> Option<(Vec<Host>, usize)> {
        if self.hosts.is_empty() {
            return Some((Vec::new(), self.ranks)).filter(|(_, ranks)| can_share(*ranks));
        }
        let blocked = self.history.blocked(self.policy);
        let without_silent = [blocked.as_slice(), self.avoided.as_slice()].concat();
        [without_silent, blocked, Vec::new()].into_iter().find_map(|left_out| {
            let slots = take(self.hosts, &left_out, self.ranks).iter().map(|host| host.slots).sum();
            let ranks = (self.min_ranks..=slots).rev().find(|ranks| can_share(*ranks))?;
            Some((take(self.hosts, &left_out, ranks), ranks))
        })
    }

    /// Takes note of how an attempt ended, with `step` the newest checkpoint after it, and says what follows.
    pub fn after(&mut self, end: &Attempt, step: u64) -> Next {
        let host = end.first.as_ref().and_then(|first| first.host.clone());
        let host = host.filter(|host| self.hosts.iter().any(|known| known.name == *host));
        if end.out_of_sight {
            self.avoided.extend(host.clone().filter(|host| !self.avoided.contains(host)));
        }
        if let Some(given_up) = self.unreached(end) {
            return given_up;
        }
        let (hung, stopping, begun) = (end.hung.is_some(), end.stopping, end.begun);
        let ended = Ended { code: end.code, hung, stopping, begun, step, host };
        self.history.after(&ended, self.policy)
    }

    /// The end of a job that did not begin because ssh does not reach one of its hosts: no other attempt would, and there is no host to spare.
    fn unreached(&self, end: &Attempt) -> Option<Next> {
        let first = self.history.restarts() == 0 && end.ranks.is_empty() && !end.stopping;
        if !first || self.min_ranks < self.ranks {
            return None;
        }
        let (host, why) = unreached(end.last_lines.iter().map(String::as_str), self.hosts)?;
        let why = format!("ssh does not reach {host} ({why}): try `ssh {host} true`");
        Some(Next::GiveUp { code: UNAVAILABLE, why })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn unstarted(line: &str) -> Attempt {
        Attempt {
            code: UNAVAILABLE,
            hung: None,
            out_of_sight: false,
            stopping: false,
            begun: false,
            first: None,
            ranks: Vec::new(),
            seconds: 0.1,
            last_lines: vec![line.into()],
            lease_left: Duration::ZERO,
        }
    }

    #[test]
    fn a_host_that_ssh_does_not_reach_ends_a_job_that_needs_it() {
        let hosts = ["n1", "n2"].map(|name| Host { name: name.into(), slots: 1 });
        let policy = Policy::default();
        let after = |min_ranks: usize, line: &str| {
            Trials::new(&hosts, 2, min_ranks, &policy, 0).after(&unstarted(line), 0)
        };
        let refused = "ssh: connect to host n2 port 22: Connection refused";
        let why = "ssh does not reach n2 (Connection refused): try `ssh n2 true`".to_string();
        assert_eq!(after(2, refused), Next::GiveUp { code: UNAVAILABLE, why });
        assert!(matches!(after(1, refused), Next::Restart(_)));
        assert!(matches!(after(2, "no room"), Next::Restart(_)));
        // A host that was reached before may come back.
        let mut trials = Trials::new(&hosts, 2, 2, &policy, 0);
        trials.after(&unstarted("killed"), 0);
        assert!(matches!(trials.after(&unstarted(refused), 0), Next::Restart(_)));
    }
}
