use segue_data_error::DataError;
use segue_random::{Permutation, Purpose};

use crate::pairs::SentencePairs;

/// How large a batch may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchBudget {
    /// Most tokens of a side once it is padded: rows times the longest source or target of the batch.
    pub tokens: usize,
    /// Most rows; 0: any number.
    pub sentences: usize,
}

impl BatchBudget {
    /// Whether a batch of so many rows, of which the longest side has so many tokens, is within the budget.
    fn allows(&self, rows: usize, longest: usize) -> bool {
        rows.saturating_mul(longest) <= self.tokens && (self.sentences == 0 || rows <= self.sentences)
    }
}

/// The batches of training: pairs of like length together, so that little is padding (Vaswani et al. 2017, §5.1). What
/// stands in a batch is a function of the seed, the corpus and the budget, never of ranks; every epoch takes each batch
/// once, in an order of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBatches {
    /// Numbers of pairs, batch after batch.
    numbers: Vec<u32>,
    /// Where each batch ends in them.
    ends: Vec<usize>,
    seed: u64,
}

impl TokenBatches {
    /// Batches of all pairs of a split.
    ///
    /// # Errors
    ///
    /// A pair that is longer than the budget by itself. It is refused, and not dropped: what is trained on is decided
    /// when the corpus is built.
    pub fn new(pairs: &SentencePairs, budget: BatchBudget, seed: u64) -> Result<TokenBatches, DataError> {
        if budget.tokens == 0 {
            return Err(DataError::Usage("a batch needs room for at least one token".into()));
        }
        let mut too_long = (0..pairs.len() as u32).filter(|n| pairs.longest(*n) > budget.tokens);
        if let Some(first) = too_long.next() {
            let all = match 1 + too_long.count() {
                1 => String::new(),
                all => format!("; {all} such pairs in all"),
            };
            let why = format!(
                "it has {} tokens, more than the {} of a batch{all}\nhint: allow more tokens a batch, or build the corpus with \
                 --max-length {}",
                pairs.longest(first),
                budget.tokens,
                // The end is not counted there.
                (budget.tokens - 1).max(1)
            );
            return Err(DataError::record(pairs.dir(), format!("pair {first}"), why));
        }
        Ok(TokenBatches::group(|n| pairs.lengths(n), pairs.len(), budget, seed))
    }

    /// Groups pairs of these lengths, source and target, none of which is beyond the budget.
    fn group(
        lengths: impl Fn(u32) -> (usize, usize),
        pairs: usize,
        budget: BatchBudget,
        seed: u64,
    ) -> TokenBatches {
        let shuffled = Permutation::new(pairs as u64, seed, Purpose::PairOrder, &[]);
        let mut numbers: Vec<u32> = (0..pairs as u64).map(|place| shuffled.at(place) as u32).collect();
        // Stable: equal lengths stay in random order.
        numbers.sort_by_key(|n| {
            let (source, target) = lengths(*n);
            (target, source)
        });
        let mut ends = Vec::new();
        let (mut begin, mut longest) = (0, 0);
        for (place, n) in numbers.iter().enumerate() {
            let (source, target) = lengths(*n);
            let grown = longest.max(source).max(target);
            if place > begin && !budget.allows(place + 1 - begin, grown) {
                ends.push(place);
                (begin, longest) = (place, source.max(target));
            } else {
                longest = grown;
            }
        }
        ends.extend((!numbers.is_empty()).then_some(numbers.len()));
        TokenBatches { numbers, ends, seed }
    }

    /// Batches of an epoch.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none; never so after [`TokenBatches::new`].
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Numbers of the pairs in the batch at a place, counted from 0 over all epochs.
    pub fn at(&self, place: u64) -> &[u32] {
        let all = self.len() as u64;
        if all == 0 {
            return &[];
        }
        let order = Permutation::new(all, self.seed, Purpose::PairBatches, &[place / all]);
        let batch = order.at(place % all) as usize;
        let begin = if batch == 0 { 0 } else { self.ends[batch - 1] };
        &self.numbers[begin..self.ends[batch]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sides of one to fifty tokens.
    fn lengths() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((1usize..50, 1usize..50), 1..300)
    }

    proptest! {
        /// Row S28.
        #[test]
        fn every_pair_comes_once_an_epoch_within_the_budget(
            lengths in lengths(), tokens in 50usize..400, sentences in 0usize..20, seed: u64,
        ) {
            let budget = BatchBudget { tokens, sentences };
            let batches = TokenBatches::group(|n| lengths[n as usize], lengths.len(), budget, seed);
            let all = batches.len() as u64;
            for epoch in 0..3 {
                let mut taken = Vec::new();
                for place in epoch * all..(epoch + 1) * all {
                    let batch = batches.at(place);
                    let longest = batch.iter().map(|n| lengths[*n as usize].0.max(lengths[*n as usize].1)).max();
                    prop_assert!(batch.len() * longest.unwrap() <= tokens);
                    prop_assert!(sentences == 0 || batch.len() <= sentences);
                    taken.extend_from_slice(batch);
                }
                taken.sort_unstable();
                prop_assert_eq!(taken, (0..lengths.len() as u32).collect::<Vec<_>>());
            }
        }

        /// No batch could have taken the first pair of the one that follows it in order of length.
        #[test]
        fn batches_are_as_large_as_the_budget_lets_them(lengths in lengths(), tokens in 50usize..400, seed: u64) {
            let budget = BatchBudget { tokens, sentences: 0 };
            let batches = TokenBatches::group(|n| lengths[n as usize], lengths.len(), budget, seed);
            let mut begin = 0;
            for end in &batches.ends[..batches.len() - 1] {
                let with_next = &batches.numbers[begin..end + 1];
                let longest = with_next.iter().map(|n| lengths[*n as usize].0.max(lengths[*n as usize].1)).max();
                prop_assert!(with_next.len() * longest.unwrap() > tokens);
                begin = *end;
            }
            let keys = batches.numbers.iter().map(|n| (lengths[*n as usize].1, lengths[*n as usize].0));
            prop_assert!(keys.is_sorted());
        }
    }

    #[test]
    fn equal_lengths_are_in_random_order_and_epochs_differ() {
        let budget = BatchBudget { tokens: 40, sentences: 0 };
        let group = |seed| TokenBatches::group(|_| (4, 5), 400, budget, seed);
        let (one, two) = (group(1), group(2));
        assert_eq!((one.len(), &one), (50, &group(1)));
        assert_ne!(one.numbers, two.numbers);
        assert!(!one.numbers.is_sorted());
        let epoch =
            |epoch: u64| -> Vec<u32> { (0..50).flat_map(|i| one.at(epoch * 50 + i).to_vec()).collect() };
        assert_ne!(epoch(0), epoch(1));
        assert_ne!(epoch(1), epoch(2));
    }
}
