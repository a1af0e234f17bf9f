use std::ops::Range;

use segue_random::Draws;

use super::options::LabelPairs;

/// Labelled nodes by class.
#[derive(Clone, Debug)]
pub(super) struct Labelled {
    /// All of them, those of a class together.
    nodes: Vec<u32>,
    /// Where each class that has a node begins in `nodes`, and the end.
    starts: Vec<usize>,
}

/// Two labelled nodes.
pub(super) struct LabelPair {
    pub node: u32,
    pub context: u32,
    /// Place of the first node's class among those that have a node.
    pub class: usize,
}

impl Labelled {
    /// Of `(node, class)`; nodes of a class keep their order.
    pub fn new(labelled: &[(u32, u32)]) -> Labelled {
        let mut sorted = labelled.to_vec();
        sorted.sort_by_key(|(_, class)| *class);
        let begins = |place: &usize| *place == 0 || sorted[*place].1 != sorted[*place - 1].1;
        let mut starts: Vec<usize> = (0..sorted.len()).filter(begins).collect();
        starts.push(sorted.len());
        Labelled { nodes: sorted.into_iter().map(|(node, _)| node).collect(), starts }
    }

    /// Draws an ordered pair of equal or different labels. `None` where there is none: no labelled node, or of different labels a
    /// single class.
    pub fn pair(&self, how: LabelPairs, equal: bool, draws: &mut Draws) -> Option<LabelPair> {
        let class = match how {
            LabelPairs::AnchorFirst => self.class_at(draws.below(self.nodes.len() as u64) as usize)?,
            LabelPairs::UniformPairs => self.class_by_pairs(equal, draws)?,
        };
        let own = self.members(class)?;
        let node = self.nodes[own.start + draws.below(own.len() as u64) as usize];
        match equal {
            true => {
                let context = self.nodes[own.start + draws.below(own.len() as u64) as usize];
                Some(LabelPair { node, context, class })
            }
            false => Some(LabelPair { node, context: self.outside(class, draws)?, class }),
        }
    }

    /// A labelled node of another class than that of `class`, uniformly; `None` where there is none.
    pub fn outside(&self, class: usize, draws: &mut Draws) -> Option<u32> {
        let own = self.members(class)?;
        let others = self.nodes.len() - own.len();
        let place = draws.below(others as u64) as usize;
        let place = if place < own.start { place } else { place + own.len() };
        if others == 0 { None } else { self.nodes.get(place).copied() }
    }

    /// The class of the node at a place of the list.
    fn class_at(&self, place: usize) -> Option<usize> {
        self.starts.partition_point(|start| *start <= place).checked_sub(1)
    }

    fn members(&self, class: usize) -> Option<Range<usize>> {
        let range = *self.starts.get(class)?..*self.starts.get(class + 1)?;
        if range.is_empty() { None } else { Some(range) }
    }

    /// A class with the probability that the first node of a uniform pair is of it.
    fn class_by_pairs(&self, equal: bool, draws: &mut Draws) -> Option<usize> {
        let pairs = |size: usize| (size * if equal { size } else { self.nodes.len() - size }) as u64;
        let sizes = || self.starts.windows(2).map(|ends| ends[1] - ends[0]);
        let mut left = draws.below(sizes().map(pairs).sum());
        sizes().position(|size| {
            let own = pairs(size);
            let found = left < own;
            left = left.wrapping_sub(own);
            found
        })
    }

    /// Probability of each ordered pair of equal or different labels; the naive list.
    pub fn law(&self, how: LabelPairs, equal: bool) -> Vec<(u32, u32, f64)> {
        let class_of = |place: usize| self.class_at(place);
        let places = 0..self.nodes.len();
        let fits = |first: usize, second: usize| (class_of(first) == class_of(second)) == equal;
        let pairs: Vec<_> = places
            .clone()
            .flat_map(|first| places.clone().map(move |second| (first, second)))
            .filter(|(first, second)| fits(*first, *second))
            .collect();
        let chance = |first: usize| match how {
            LabelPairs::UniformPairs => 1.0 / pairs.len() as f64,
            LabelPairs::AnchorFirst => {
                let partners = pairs.iter().filter(|pair| pair.0 == first).count();
                1.0 / (self.nodes.len() * partners) as f64
            }
        };
        pairs.iter().map(|&(first, second)| (self.nodes[first], self.nodes[second], chance(first))).collect()
    }
}
