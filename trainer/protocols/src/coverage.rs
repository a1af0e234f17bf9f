//! Which dependencies between tokens a model is trained on (Yang 2019, §2.2.2, "Discussion and Analysis").
//!
//! A sequence has tokens that are predicted, the targets, and tokens that are not. A target x depends on a set U of
//! other tokens. Training covers the pair (x, U)
//! - with BERT's objective where no token of U is a target: targets are predicted all at once;
//! - with XLNet's where the tokens of U are no targets, or targets that come earlier in the order;
//! - with a left-to-right model where no token of U stands right of x.

use serde::Serialize;

/// A sequence whose targets are drawn, with some orders to predict them in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factorised {
    /// Part of each position: tokens of different parts are no pairs.
    pub parts: Vec<usize>,
    /// Positions that hold text; the others belong to no pair.
    pub text: Vec<bool>,
    /// Positions that are predicted.
    pub targets: Vec<bool>,
    /// For each order the rank of each position: a target sees the positions of a lower rank.
    pub orders: Vec<Vec<i64>>,
}

/// How many pairs of a target and a set of other tokens are covered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Covered {
    /// Tokens in a set.
    pub context: usize,
    /// Pairs that there are.
    pub pairs: u64,
    /// Of them with BERT's objective.
    pub bert: u64,
    /// With XLNet's, summed over the orders.
    pub xlnet: u64,
    /// With XLNet's, in one of the orders at least.
    pub xlnet_ever: u64,
    /// With a left-to-right model.
    pub left_to_right: u64,
}

/// Pairs of targets with one other token each, and with two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Targets looked at.
    pub targets: u64,
    /// Orders of each sequence.
    pub orders: usize,
    /// Sets of one token, of two tokens.
    pub sizes: [Covered; 2],
}

impl Coverage {
    /// Nothing counted yet, of sequences with so many orders.
    pub fn new(orders: usize) -> Self {
        let sizes = [1, 2].map(|context| Covered { context, ..Covered::default() });
        Self { targets: 0, orders, sizes }
    }

    /// Counts the pairs of a sequence whose tokens are at most `window` positions from the target.
    ///
    /// ```
    /// use segue_protocols::{Coverage, Factorised};
    ///
    /// // New York is a city: the two first are targets, and New comes before York.
    /// let sentence = Factorised {
    ///     parts: vec![0; 5],
    ///     text: vec![true; 5],
    ///     targets: vec![true, true, false, false, false],
    ///     orders: vec![vec![1, 2, 0, 0, 0]],
    /// };
    /// let mut coverage = Coverage::new(1);
    /// coverage.add(&sentence, 5);
    /// let single = &coverage.sizes[0];
    /// assert_eq!((single.pairs, single.bert, single.xlnet, single.left_to_right), (8, 6, 7, 1));
    /// ```
    pub fn add(&mut self, sequence: &Factorised, window: usize) {
        for target in (0..sequence.parts.len()).filter(|place| sequence.targets[*place]) {
            self.targets += 1;
            let seen = sequence.seen(target, window);
            for (i, first) in seen.iter().enumerate() {
                self.sizes[0].count(first.clone());
                for second in &seen[i + 1..] {
                    self.sizes[1].count(first.both(second));
                }
            }
        }
    }
}

impl Covered {
    fn count(&mut self, seen: Seen) {
        self.pairs += 1;
        self.bert += u64::from(seen.bert);
        self.xlnet += u64::from(seen.xlnet.count_ones());
        self.xlnet_ever += u64::from(seen.xlnet > 0);
        self.left_to_right += u64::from(seen.left_to_right);
    }

    /// Shares of the pairs, in the order BERT, XLNet with one order, XLNet with all, left to right.
    pub fn shares(&self, orders: usize) -> [f64; 4] {
        let of = |count: u64, all: u64| if all == 0 { f64::NAN } else { count as f64 / all as f64 };
        [
            of(self.bert, self.pairs),
            of(self.xlnet, self.pairs * orders as u64),
            of(self.xlnet_ever, self.pairs),
            of(self.left_to_right, self.pairs),
        ]
    }
}

/// Most orders of a sequence.
pub const MAX_ORDERS: usize = u64::BITS as usize;

/// By whom a token, or a set of them, is seen when a target is predicted.
#[derive(Clone)]
struct Seen {
    bert: bool,
    /// One bit for each order.
    xlnet: u64,
    left_to_right: bool,
}

impl Seen {
    fn both(&self, other: &Seen) -> Seen {
        Seen {
            bert: self.bert && other.bert,
            xlnet: self.xlnet & other.xlnet,
            left_to_right: self.left_to_right && other.left_to_right,
        }
    }
}

impl Factorised {
    /// The tokens that a target may depend on.
    fn seen(&self, target: usize, window: usize) -> Vec<Seen> {
        let last = (target + window).min(self.parts.len() - 1);
        let others = (target.saturating_sub(window)..=last).filter(|other| {
            *other != target && self.text[*other] && self.parts[*other] == self.parts[target]
        });
        let in_orders = |other: usize| {
            let orders = self.orders.iter().take(MAX_ORDERS).enumerate();
            orders.fold(0, |bits, (i, ranks)| bits | u64::from(ranks[other] < ranks[target]) << i)
        };
        others
            .map(|other| Seen {
                bert: !self.targets[other],
                xlnet: in_orders(other),
                left_to_right: other < target,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use segue_random::{Draws, Purpose};

    use super::*;

    /// Ranks of an order: 0 for what is no target.
    fn ranks(targets: &[bool], order: &[usize]) -> Vec<i64> {
        let turn = |place| order.iter().position(|target| *target == place).unwrap() as i64 + 1;
        (0..targets.len()).map(|place| if targets[place] { turn(place) } else { 0 }).collect()
    }

    fn sentence(targets: &[bool], orders: &[Vec<usize>]) -> Factorised {
        Factorised {
            parts: vec![0; targets.len()],
            text: vec![true; targets.len()],
            targets: targets.to_vec(),
            orders: orders.iter().map(|order| ranks(targets, order)).collect(),
        }
    }

    /// Every order of some things.
    fn orders_of(things: &[usize]) -> Vec<Vec<usize>> {
        if things.is_empty() {
            return vec![Vec::new()];
        }
        let first = |thing: &usize| {
            let rest: Vec<usize> = things.iter().copied().filter(|other| other != thing).collect();
            orders_of(&rest).into_iter().map(|order| [vec![*thing], order].concat()).collect::<Vec<_>>()
        };
        things.iter().flat_map(first).collect()
    }

    /// Row X19.
    #[test]
    fn new_york_is_a_city() {
        let targets = [true, true, false, false, false];
        let one = |target: usize, context: usize| {
            let seen = sentence(&targets, &[vec![0, 1]]).seen(target, 5);
            let seen = &seen[context - usize::from(context > target)];
            (seen.bert, seen.xlnet == 1, seen.left_to_right)
        };
        // (BERT, XLNet, left to right): York from New, New from York, New from city.
        assert_eq!(one(1, 0), (false, true, true));
        assert_eq!(one(0, 1), (false, false, false));
        assert_eq!(one(0, 4), (true, true, false));
    }

    /// The definition on sets, pair by pair.
    /// Row X19.
    #[test]
    fn counts_are_those_of_the_definition_on_sets() {
        let mut draws = Draws::new(3, Purpose::Bench, &[]);
        for _ in 0..200 {
            let len = 2 + draws.below(7) as usize;
            let targets: Vec<bool> = (0..len).map(|_| draws.uniform() < 0.5).collect();
            let places: Vec<usize> = (0..len).filter(|place| targets[*place]).collect();
            let mut orders = vec![places.clone(), places.clone()];
            orders.iter_mut().for_each(|order| draws.shuffle(order));
            let window = 1 + draws.below(len as u64) as usize;
            let mut coverage = Coverage::new(2);
            coverage.add(&sentence(&targets, &orders), window);
            let mut expected = [1, 2].map(|context| Covered { context, ..Covered::default() });
            for target in &places {
                for bits in 1u32..1 << len {
                    let set: BTreeSet<usize> = (0..len).filter(|place| bits >> place & 1 == 1).collect();
                    let near = set.iter().all(|place| place != target && place.abs_diff(*target) <= window);
                    if set.len() > 2 || !near {
                        continue;
                    }
                    let earlier = |order: &[usize]| -> BTreeSet<usize> {
                        let end = order.iter().position(|place| place == target).unwrap();
                        let rest = (0..len).filter(|place| !targets[*place]);
                        order[..end].iter().copied().chain(rest).collect()
                    };
                    let in_orders =
                        orders.iter().filter(|order| set.is_subset(&earlier(order))).count() as u64;
                    let covered = &mut expected[set.len() - 1];
                    covered.pairs += 1;
                    covered.bert += u64::from(set.iter().all(|place| !targets[*place]));
                    covered.xlnet += in_orders;
                    covered.xlnet_ever += u64::from(in_orders > 0);
                    covered.left_to_right += u64::from(set.iter().all(|place| place < target));
                }
            }
            assert_eq!(coverage.sizes, expected);
            for covered in &coverage.sizes {
                // What BERT covers, XLNet covers in every order.
                assert!(covered.xlnet >= 2 * covered.bert && covered.xlnet_ever >= covered.bert);
            }
        }
    }

    /// Row X19.
    #[test]
    fn over_all_orders_every_pair_is_covered_and_half_of_those_between_targets_at_a_time() {
        let targets = [true, false, true, true, false, true];
        let orders = orders_of(&[0, 2, 3, 5]);
        let mut coverage = Coverage::new(orders.len());
        coverage.add(&sentence(&targets, &orders), 6);
        let [single, double] = &coverage.sizes;
        assert_eq!((single.pairs, double.pairs), (4 * 5, 4 * 10));
        assert_eq!((single.xlnet_ever, double.xlnet_ever), (single.pairs, double.pairs));
        // Two tokens are no targets; of the three others each comes first in half of the orders.
        assert_eq!((single.bert, single.xlnet), (4 * 2, 24 * 4 * 2 + 24 * 4 * 3 / 2));
        // One set without targets, six with one, three with two: those come first in a third of the orders.
        assert_eq!((double.bert, double.xlnet), (4, 24 * 4 + 24 * 4 * 6 / 2 + 24 * 4 * 3 / 3));
        // A left-to-right model never sees what is right of a target.
        assert_eq!(single.left_to_right, 2 + 3 + 5);
    }

    #[test]
    fn tokens_of_another_part_and_those_that_are_no_text_make_no_pairs() {
        let whole = sentence(&[true, false, false, true], &[vec![0, 3]]);
        let parted = Factorised { parts: vec![0, 0, 1, 1], text: vec![true, false, true, true], ..whole };
        let mut coverage = Coverage::new(1);
        coverage.add(&parted, 4);
        assert_eq!((coverage.targets, coverage.sizes[0].pairs, coverage.sizes[1].pairs), (2, 1, 0));
    }
}
