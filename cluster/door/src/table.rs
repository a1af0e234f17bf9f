//! Who is behind a door: strangers in the order in which they came, and those who are known.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// How many connections there may be at once.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Those that have not shown the token.
    pub strangers: usize,
    /// Those of them that come from one network: an address, or 2⁶⁴ addresses of IPv6, as a subscriber is given.
    pub of_network: usize,
    /// Those that have shown it.
    pub known: usize,
}

/// Where a stranger comes from; how it is ended, once it is served.
struct Stranger<T> {
    network: IpAddr,
    task: Option<T>,
}

/// Connections by number, each with what it is ended by.
pub(crate) struct Table<T> {
    limits: Limits,
    next: u64,
    strangers: BTreeMap<u64, Stranger<T>>,
    known: HashMap<u64, Option<T>>,
}

impl<T> Table<T> {
    /// With nobody in it.
    pub fn new(limits: Limits) -> Self {
        Self { limits, next: 0, strangers: BTreeMap::new(), known: HashMap::new() }
    }

    /// Takes one more in.
    pub fn enter(&mut self, from: IpAddr) -> u64 {
        let number = self.next;
        self.next += 1;
        self.strangers.insert(number, Stranger { network: network(from), task: None });
        number
    }

    /// Takes note of what the newest one is ended by; who has to go for it.
    pub fn serve(&mut self, number: u64, task: T) -> Option<T> {
        // It may have shown the token by now, or have ended.
        if let Some(kept) = self.known.get_mut(&number) {
            *kept = Some(task);
            return None;
        }
        let stranger = self.strangers.get_mut(&number)?;
        stranger.task = Some(task);
        let network = stranger.network;
        let oldest = self.one_too_many(network)?;
        self.strangers.remove(&oldest)?.task
    }

    /// The oldest stranger of the network of the newest, where that has too many; of the network that has most, where there are too many in
    /// all.
    fn one_too_many(&self, newest: IpAddr) -> Option<u64> {
        let of = |network| self.strangers.iter().filter(move |(_, stranger)| stranger.network == network);
        if of(newest).count() > self.limits.of_network {
            return of(newest).map(|(number, _)| *number).next();
        }
        if self.strangers.len() <= self.limits.strangers {
            return None;
        }
        let mut networks: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (number, stranger) in self.strangers.iter().rev() {
            let (count, oldest) = networks.entry(stranger.network).or_default();
            (*count, *oldest) = (*count + 1, *number);
        }
        // Of networks that have the same number, that of the oldest.
        let most = networks.into_values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)));
        most.map(|(_, oldest)| oldest)
    }

    /// Makes a stranger one of those who are known; whether it is one.
    pub fn keep(&mut self, number: u64) -> bool {
        if self.known.len() < self.limits.known
            && let Some(stranger) = self.strangers.remove(&number)
        {
            self.known.insert(number, stranger.task);
        }
        self.known.contains_key(&number)
    }

    /// Forgets a connection.
    pub fn leave(&mut self, number: u64) {
        self.strangers.remove(&number);
        self.known.remove(&number);
    }

    /// Forgets all, and what they are ended by.
    pub fn close(&mut self) -> Vec<T> {
        let strangers =
            std::mem::take(&mut self.strangers).into_values().filter_map(|stranger| stranger.task);
        strangers.chain(std::mem::take(&mut self.known).into_values().flatten()).collect()
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.strangers.len() + self.known.len()
    }
}

/// What an address is counted as.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { strangers: 6, of_network: 4, known: 3 };

    fn address(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    /// One more of this host; who goes for it.
    fn come(table: &mut Table<u64>, host: u8) -> Option<u64> {
        let number = table.enter(address(host));
        table.serve(number, number)
    }

    #[test]
    fn whoever_has_most_connections_loses_the_oldest() {
        let mut table = Table::new(LIMITS);
        assert_eq!([1, 1, 1, 1, 1].map(|host| come(&mut table, host)), [None, None, None, None, Some(0)]);
        // Others have their places until there are too many in all, and then it is the same one's that are taken.
        assert_eq!([2, 3, 4].map(|host| come(&mut table, host)), [None, None, Some(1)]);
        assert_eq!([5, 6].map(|host| come(&mut table, host)), [Some(2), Some(3)]);
        // One each: the oldest.
        assert_eq!(come(&mut table, 7), Some(4));
    }

    #[test]
    fn addresses_of_one_subscriber_are_one_network() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::7"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::7"), of("2001:db8:1:3::7"));
        assert_eq!(of("::ffff:10.0.0.1"), address(1));
    }

    #[derive(Debug, Clone)]
    enum Act {
        Come(u8),
        Show(usize),
        Leave(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => (0u8..5).prop_map(Act::Come),
            1 => (0usize..40).prop_map(Act::Show),
            1 => (0usize..40).prop_map(Act::Leave),
        ];
        proptest::collection::vec(act, 1..120)
    }

    proptest! {
        /// Whatever comes: the limits hold, the newest is never refused, whoever is known stays, and who has gone is forgotten.
        #[test]
        fn limits_hold_and_the_newest_and_the_known_stay(acts in acts()) {
            let mut table = Table::new(LIMITS);
            let (mut there, mut known): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            for act in acts {
                match act {
                    Act::Come(host) => {
                        let number = table.enter(address(host));
                        there.push(number);
                        if let Some(gone) = table.serve(number, number) {
                            prop_assert!(gone != number && !known.contains(&gone));
                            there.retain(|other| *other != gone);
                        }
                    }
                    Act::Show(which) => if let Some(number) = there.get(which % there.len().max(1)) {
                        let room = known.contains(number) || known.len() < LIMITS.known;
                        prop_assert_eq!(table.keep(*number), room);
                        if room && !known.contains(number) {
                            known.push(*number);
                        }
                    },
                    Act::Leave(which) => if !there.is_empty() {
                        let number = there.remove(which % there.len());
                        known.retain(|other| *other != number);
                        table.leave(number);
                    },
                }
                prop_assert_eq!(table.count(), there.len());
                prop_assert!(there.len() - known.len() <= LIMITS.strangers);
            }
            let mut ended = table.close();
            ended.sort_unstable();
            prop_assert_eq!(ended, there);
        }
    }
}
