//! How long ranks take to add up what they hold.

use segue_configs::Machine;

/// How a sum over ranks goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// In the order of the tree, neighbours first, as [`segue_collectives::tree::tree_all_reduce`] does: reduce-scatter by
    /// recursive halving, all-gather by recursive doubling, in blocks of a power of two. Across these each rank sends its slices to its
    /// counterparts in all other blocks.
    Tree,
    /// As a library does that may choose: rings through all ranks, or trees where rings have too many rounds.
    Any,
}

/// Ranks and what joins them, after what long sums reach of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Links {
    /// Ranks of a node.
    pub inside: usize,
    /// Nodes.
    pub nodes: usize,
    /// Bytes a second from a rank to the others of its node.
    pub inside_bandwidth: f64,
    /// Bytes a second from a node to the others.
    pub between_bandwidth: f64,
    /// Seconds of a message inside a node.
    pub inside_latency: f64,
    /// Seconds of a message between nodes.
    pub between_latency: f64,
}

impl Links {
    /// Of `ranks` ranks, which fill one node after the other.
    pub fn new(machine: &Machine, ranks: usize) -> Self {
        let nodes = ranks.div_ceil(machine.ranks).max(1);
        let inside = ranks.div_ceil(nodes);
        let of_few = machine.bandwidth.inside_of.iter().find(|(most, _)| inside <= *most);
        let bandwidth = of_few.map_or(machine.bandwidth.inside, |(_, bandwidth)| *bandwidth);
        let latency = machine.latency;
        Self {
            inside,
            nodes,
            inside_bandwidth: machine.achieved.links * bandwidth,
            between_bandwidth: machine.achieved.links * machine.bandwidth.between,
            inside_latency: latency.inside,
            between_latency: latency.between,
        }
    }

    /// Ranks.
    pub fn ranks(&self) -> usize {
        self.inside * self.nodes
    }

    /// Seconds in which `bytes` of every rank are added up on all of them.
    pub fn all_reduce(&self, bytes: f64, algorithm: Algorithm) -> f64 {
        match algorithm {
            Algorithm::Tree => self.tree(bytes),
            Algorithm::Any => self.tree(bytes).min(self.ring(bytes)),
        }
    }

    /// Seconds in which each rank gets its part of the sum, or all ranks all parts: half of an all-reduce.
    pub fn scatter(&self, bytes: f64, algorithm: Algorithm) -> f64 {
        self.all_reduce(bytes, algorithm) / 2.0
    }

    /// Inside a node first, so that between nodes each rank sends its own slice of what its node has added up: a node sends
    /// (nodes − 1)/nodes of the bytes, not of each of its ranks'.
    fn tree(&self, bytes: f64) -> f64 {
        let level = |members: usize, bandwidth: f64, latency: f64| {
            let levels = members.trailing_zeros() as usize;
            let rounds = levels + (members >> levels) - 1;
            2.0 * (away(members) * bytes / bandwidth + rounds as f64 * latency)
        };
        level(self.inside, self.inside_bandwidth, self.inside_latency)
            + level(self.nodes, self.between_bandwidth, self.between_latency)
    }

    /// All links of a ring carry the same bytes at once: the slowest sets the pace.
    fn ring(&self, bytes: f64) -> f64 {
        let (ranks, nodes) = (self.ranks(), self.nodes);
        let slowest = match nodes {
            1 => self.inside_bandwidth,
            _ => self.inside_bandwidth.min(self.between_bandwidth),
        };
        let crossings = if nodes > 1 { nodes } else { 0 };
        let inside = ranks.saturating_sub(crossings).saturating_sub(usize::from(nodes == 1));
        let round = inside as f64 * self.inside_latency + crossings as f64 * self.between_latency;
        2.0 * (away(ranks) * bytes / slowest + round)
    }
}

/// Fraction of its bytes that each of `members` gives away in a reduce-scatter.
fn away(members: usize) -> f64 {
    (members - 1) as f64 / members as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn links(inside: usize, nodes: usize) -> Links {
        Links {
            inside,
            nodes,
            inside_bandwidth: 100.0,
            between_bandwidth: 50.0,
            inside_latency: 0.001,
            between_latency: 0.01,
        }
    }

    #[test]
    fn one_rank_has_nobody_to_add_to() {
        for algorithm in [Algorithm::Tree, Algorithm::Any] {
            assert_eq!(links(1, 1).all_reduce(1e9, algorithm), 0.0);
        }
    }

    /// By hand: 8 ranks of one node send 2·7/8 of 800 bytes at 100 a second, in 2·3 rounds.
    #[test]
    fn sums_take_what_they_take_by_hand() {
        let eight = links(8, 1).all_reduce(800.0, Algorithm::Tree);
        assert!((eight - (14.0 + 6.0 * 0.001)).abs() < 1e-12, "{eight}");
        // Two nodes of four: 2·3/4 of 800 inside, 2·1/2 of 800 between.
        let both = links(4, 2).all_reduce(800.0, Algorithm::Tree);
        assert!((both - (12.0 + 16.0 + 4.0 * 0.001 + 2.0 * 0.01)).abs() < 1e-12, "{both}");
        // A ring of the same eight: 2·7/8 of 800 at the slower links' 50.
        let ring = links(4, 2).ring(800.0);
        assert!((ring - (28.0 + 2.0 * (6.0 * 0.001 + 2.0 * 0.01))).abs() < 1e-12, "{ring}");
    }

    #[test]
    fn neighbours_in_a_mesh_have_fewer_links() {
        let machine = Machine::load("dgx-1").unwrap();
        let of = |ranks| Links::new(&machine, ranks).inside_bandwidth / machine.achieved.links / 1e9;
        assert_eq!([1, 2, 3, 4, 5, 8, 16].map(of), [25.0, 25.0, 100.0, 100.0, 150.0, 150.0, 150.0]);
        let two = Links::new(&machine, 16);
        assert_eq!((two.inside, two.nodes, two.ranks()), (8, 2, 16));
    }

    proptest! {
        #[test]
        fn more_bandwidth_is_never_slower_and_more_bytes_never_faster(
            inside in 1usize..17, nodes in 1usize..9, bytes in 0.0..1e9, factor in 1.0..10.0f64
        ) {
            let slow = links(inside, nodes);
            for algorithm in [Algorithm::Tree, Algorithm::Any] {
                let time = slow.all_reduce(bytes, algorithm);
                let wider = Links { inside_bandwidth: slow.inside_bandwidth * factor, ..slow };
                let between = Links { between_bandwidth: slow.between_bandwidth * factor, ..slow };
                prop_assert!(wider.all_reduce(bytes, algorithm) <= time);
                prop_assert!(between.all_reduce(bytes, algorithm) <= time);
                prop_assert!(slow.all_reduce(bytes * factor, algorithm) >= time);
            }
        }
    }
}
