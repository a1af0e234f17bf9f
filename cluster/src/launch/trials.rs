//! What a job has tried so far: where its next attempt runs, and whether there is one.

use super::hosts::{Host, take};
use super::outcome::Attempt;
use super::policy::{Ended, History, Next, Policy};

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
        let (hung, stopping, begun) = (end.hung.is_some(), end.stopping, end.begun);
        let ended = Ended { code: end.code, hung, stopping, begun, step, host };
        self.history.after(&ended, self.policy)
    }
}
