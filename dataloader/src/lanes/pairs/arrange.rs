use segue_data_error::DataError;
use segue_random::{Draws, Purpose};

use super::options::{Layout, Task};
use super::symbols::Symbols;
use crate::lanes::{Batch, PADDING_ID, Pairs};

/// A sequence with the tokens that are chosen for prediction, before an order is drawn: what the reference freezes in
/// a record.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// Token ids, `[segment]`.
    pub(crate) tokens: Vec<i64>,
    /// Segment of each token, `[segment]`.
    pub(crate) segments: Vec<i64>,
    /// Whether each token is chosen, `[segment]`.
    pub(crate) chosen: Vec<bool>,
    /// B continues A.
    pub(crate) follows: bool,
    /// The text is read backwards.
    pub(crate) reversed: bool,
}

impl Sequence {
    pub(crate) fn empty(segment: usize) -> Self {
        Self {
            tokens: vec![PADDING_ID; segment],
            segments: vec![0; segment],
            chosen: vec![false; segment],
            follows: false,
            reversed: false,
        }
    }
}

/// Counters that the draws of a sequence hang on: stream, direction, pass and offset.
pub(crate) type DrawKey = [u64; 4];

/// Turns sequences into rows of a batch: targets, and which position sees which.
#[derive(Clone, Debug)]
pub(crate) struct Arrangement {
    pub(crate) layout: Layout,
    pub(crate) task: Task,
    pub(crate) symbols: Symbols,
    pub(crate) seed: u64,
}

impl Arrangement {
    /// A batch without rows.
    pub(crate) fn batch(&self, rows: usize) -> Batch {
        let (inputs, targets) = (rows * self.layout.segment, rows * self.layout.targets);
        Batch {
            segment: self.layout.segment,
            context: 0,
            overlap: 0,
            inputs: Vec::with_capacity(inputs),
            targets: Vec::with_capacity(targets),
            pairs: Some(Pairs {
                segments: Vec::with_capacity(inputs),
                ranks: Vec::with_capacity(inputs),
                positions: Vec::with_capacity(targets),
                weights: Vec::with_capacity(targets),
                follows: Vec::with_capacity(rows),
                reversed: Vec::with_capacity(rows),
            }),
            documents: None,
            counts: None,
            restarts: Vec::with_capacity(rows),
            cursors_after: Vec::with_capacity(rows),
        }
    }

    /// Appends a sequence to a batch; its order is drawn with `order`, what becomes of corrupted tokens with
    /// `corruption`. More chosen tokens than a row has places for are an error.
    pub(crate) fn add(
        &self,
        sequence: &Sequence,
        order: DrawKey,
        corruption: DrawKey,
        batch: &mut Batch,
    ) -> Result<(), DataError> {
        let Batch { inputs, targets, pairs: Some(pairs), .. } = batch else {
            return Err(DataError::Usage("a batch of plain lanes takes no pairs".into()));
        };
        let row = inputs.len();
        inputs.extend_from_slice(&sequence.tokens);
        pairs.segments.extend_from_slice(&sequence.segments);
        pairs.follows.push(sequence.follows);
        pairs.reversed.push(sequence.reversed);
        self.add_targets(sequence, targets, pairs)?;
        match self.task {
            Task::Permutation => self.add_ranks(sequence, order, &mut pairs.ranks),
            Task::Denoising { mask_share, random_share } => {
                // The halves stay apart: memory holds the first, which must not have seen the tokens of the second
                // that the next step predicts.
                let (reused, segment) = (self.layout.reuse_len, self.layout.segment);
                pairs.ranks.extend((0..segment).map(|place| i64::from(place >= reused)));
                let draws = Draws::new(self.seed, Purpose::Corruption, &corruption);
                self.corrupt(sequence, mask_share, random_share, draws, &mut inputs[row..]);
            }
        }
        Ok(())
    }

    /// The chosen tokens that belong to the text, and padding up to the places of a row.
    fn add_targets(
        &self,
        sequence: &Sequence,
        targets: &mut Vec<i64>,
        pairs: &mut Pairs,
    ) -> Result<(), DataError> {
        let end = targets.len() + self.layout.targets;
        for (place, token) in self.targets_of(sequence) {
            pairs.positions.push(place as i64);
            targets.push(token);
        }
        if targets.len() > end {
            let (found, room) = (targets.len() + self.layout.targets - end, self.layout.targets);
            return Err(DataError::Usage(format!(
                "a sequence has {found} targets, but the configuration has room for {room}\nhint: set \
                 pairs.num_predict={found}"
            )));
        }
        let padding = end - targets.len();
        pairs.weights.resize(end - padding, 1.0);
        pairs.weights.resize(end, 0.0);
        pairs.positions.resize(end, 0);
        targets.resize(end, PADDING_ID);
        Ok(())
    }

    /// Places and tokens of the targets.
    fn targets_of<'a>(&'a self, sequence: &'a Sequence) -> impl Iterator<Item = (usize, i64)> + 'a {
        let tokens = sequence.tokens.iter().copied().enumerate();
        tokens.filter(|(place, token)| sequence.chosen[*place] && !self.symbols.is_functional(*token))
    }

    /// Draws an order of each part and ranks its tokens: first those that all of the part may see, then one after the
    /// other the chosen and the functional ones; the second part behind the first.
    ///
    /// The reference keeps -1 for the visible tokens and blocks with a second comparison; see [`Pairs`] for why one
    /// number does.
    fn add_ranks(&self, sequence: &Sequence, key: DrawKey, ranks: &mut Vec<i64>) {
        let mut draws = Draws::new(self.seed, Purpose::Order, &key);
        let (reused, segment) = (self.layout.reuse_len, self.layout.segment);
        let mut base = 0;
        for part in [0..reused, reused..segment] {
            let window = if self.layout.perm_size == 0 { part.len() } else { self.layout.perm_size };
            // The same order in all windows of a part; the windows keep theirs.
            let mut order: Vec<usize> = (0..window).collect();
            draws.shuffle(&mut order);
            for (index, place) in part.clone().enumerate() {
                let visible = !sequence.chosen[place] && !self.symbols.is_functional(sequence.tokens[place]);
                let number = index / window * window + order[index % window];
                ranks.push(if visible { base } else { base + 1 + number as i64 });
            }
            base += 1 + part.len() as i64;
        }
    }

    /// BERT's corruption of the targets: `<mask>`, another piece, or nothing.
    fn corrupt(
        &self,
        sequence: &Sequence,
        mask_share: f64,
        random_share: f64,
        mut draws: Draws,
        inputs: &mut [i64],
    ) {
        for (place, _) in self.targets_of(sequence) {
            let kind = draws.uniform();
            let other = draws.below(self.symbols.ordinary.len() as u64) as usize;
            if kind < mask_share {
                inputs[place] = self.symbols.mask;
            } else if kind < mask_share + random_share {
                inputs[place] = self.symbols.ordinary.get(other).copied().unwrap_or(self.symbols.mask);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrangement(reused: usize, segment: usize, perm_size: usize, seed: u64) -> Arrangement {
        let layout = Layout { segment, reuse_len: reused, perm_size, targets: segment };
        Arrangement { layout, task: Task::Permutation, symbols: Symbols::plain(100), seed }
    }

    /// Ranks and places of the targets of one sequence.
    fn arranged(arrangement: &Arrangement, tokens: &[i64], chosen: &[bool]) -> (Vec<i64>, Vec<usize>) {
        let sequence = Sequence {
            tokens: tokens.to_vec(),
            chosen: chosen.to_vec(),
            ..Sequence::empty(arrangement.layout.segment)
        };
        let mut batch = arrangement.batch(1);
        arrangement.add(&sequence, [0; 4], [0; 4], &mut batch).unwrap();
        let pairs = batch.pairs.unwrap();
        let real = pairs.weights.iter().filter(|weight| **weight > 0.0).count();
        (pairs.ranks, pairs.positions[..real].iter().map(|place| *place as usize).collect())
    }

    /// A random sequence: lengths of the parts, tokens among which are SEP (1) and CLS (2), chosen ones.
    fn random_case(draws: &mut Draws, longest: u64) -> (usize, usize, Vec<i64>, Vec<bool>) {
        let (reused, rest) = (draws.below(longest) as usize + 1, draws.below(longest) as usize + 1);
        let tokens = (0..reused + rest)
            .map(|_| if draws.uniform() < 0.2 { 1 + draws.below(2) as i64 } else { 50 })
            .collect();
        let chosen = (0..reused + rest).map(|_| draws.uniform() < 0.4).collect();
        (reused, reused + rest, tokens, chosen)
    }

    /// Row X4.
    #[test]
    fn one_rank_a_position_says_what_the_two_steps_of_the_reference_say() {
        let mut draws = Draws::new(4, Purpose::Bench, &[]);
        for seed in 0..3000 {
            let (reused, segment, tokens, chosen) = random_case(&mut draws, 9);
            let (ranks, targets) = arranged(&arrangement(reused, segment, 0, seed), &tokens, &chosen);
            let functional = |i: usize| tokens[i] <= 2;
            let normal = |i: usize| !chosen[i] && !functional(i);
            // The permutation's index, read back from the ranks of the tokens that have one.
            let base = |i: usize| if i < reused { 0 } else { reused as i64 + 1 };
            let index: Vec<i64> =
                (0..segment).map(|i| if normal(i) { -1 } else { ranks[i] - base(i) - 1 }).collect();
            for (i, j) in (0..segment).flat_map(|i| (0..segment).map(move |j| (i, j))) {
                let is_target = chosen[i] && !functional(i);
                let own = if is_target { index[i] } else { index[i] + 1 };
                let blocked = match (i < reused, j < reused) {
                    (true, false) => true,
                    (false, true) => false,
                    _ => own <= index[j] && !normal(j),
                };
                assert_eq!(is_target, targets.contains(&i));
                assert_eq!(ranks[j] <= ranks[i], !blocked || i == j, "content {i} {j}, case {seed}");
                if is_target {
                    assert_eq!(ranks[j] < ranks[i], !blocked, "prediction {i} {j}, case {seed}");
                }
            }
        }
    }

    /// Row X4.
    #[test]
    fn no_prediction_depends_on_its_own_token_or_a_later_target() {
        let mut draws = Draws::new(5, Purpose::Bench, &[]);
        let mut looked_at = 0;
        for seed in 0..3000 {
            let (reused, segment, tokens, chosen) = random_case(&mut draws, 6);
            let (ranks, targets) = arranged(&arrangement(reused, segment, 0, seed), &tokens, &chosen);
            // Which tokens each state depends on, as bits; content states hold their token, predictions nothing.
            let mut content: Vec<u64> = (0..segment).map(|i| 1 << i).collect();
            let mut predicted = vec![0u64; segment];
            let seen = |content: &[u64], visible: &dyn Fn(usize) -> bool| {
                (0..segment).filter(|j| visible(*j)).fold(0, |seen, j| seen | content[j])
            };
            for _ in 0..6 {
                predicted =
                    (0..segment).map(|i| predicted[i] | seen(&content, &|j| ranks[j] < ranks[i])).collect();
                content =
                    (0..segment).map(|i| content[i] | seen(&content, &|j| ranks[j] <= ranks[i])).collect();
            }
            for (target, later) in targets.iter().flat_map(|t| targets.iter().map(move |l| (*t, *l))) {
                looked_at += 1;
                let leaks = predicted[target] >> later & 1 == 1;
                assert_eq!(leaks, ranks[later] < ranks[target], "{target} and {later}, case {seed}");
            }
        }
        assert!(looked_at > 10_000);
    }

    /// Row X4.
    #[test]
    fn the_order_3_2_4_1_gives_the_golden_masks() {
        // The masks of docs/book/src/contributing/expected-values.md: rows are queries, 1 is blocked. Position 3 comes first, then 2, 4 and 1.
        let query = [[1, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 0, 1]];
        let content = [[0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0]];
        let orders = (0..).map(|seed| arranged(&arrangement(4, 5, 0, seed), &[50; 5], &[true; 5]).0);
        let ranks = orders.into_iter().find(|ranks| ranks[..4] == [4, 2, 1, 3]).unwrap();
        for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
            assert_eq!(ranks[j] >= ranks[i], query[i][j] == 1, "{i} {j}");
            assert_eq!(ranks[j] > ranks[i], content[i][j] == 1, "{i} {j}");
        }
    }

    proptest! {
        /// `_local_perm` of XLNet's `data_utils.py`: windows keep their order and share one permutation.
        /// Row X4.
        #[test]
        fn windows_are_permuted_alike(window in 1usize..6, first in 1usize..5, second in 1usize..5, seed: u64) {
            let (reused, segment) = (first * window, (first + second) * window);
            let (ranks, _) =
                arranged(&arrangement(reused, segment, window, seed), &vec![50; segment], &vec![true; segment]);
            for (part, base) in [(&ranks[..reused], 1), (&ranks[reused..], reused as i64 + 2)] {
                let order: Vec<i64> = part[..window].iter().map(|rank| rank - base).collect();
                let mut sorted = order.clone();
                sorted.sort();
                prop_assert_eq!(sorted, (0..window as i64).collect::<Vec<_>>());
                for (place, rank) in part.iter().enumerate() {
                    prop_assert_eq!(rank - base, (place / window * window) as i64 + order[place % window]);
                }
            }
        }
    }

    #[test]
    fn more_targets_than_places_are_refused() {
        let mut arrangement = arrangement(2, 4, 0, 1);
        arrangement.layout.targets = 3;
        let sequence = Sequence { tokens: vec![50; 4], chosen: vec![true; 4], ..Sequence::empty(4) };
        let mut batch = arrangement.batch(1);
        let error = arrangement.add(&sequence, [0; 4], [0; 4], &mut batch).unwrap_err();
        assert!(error.to_string().contains("4 targets, but the configuration has room for 3"), "{error}");
    }
}
