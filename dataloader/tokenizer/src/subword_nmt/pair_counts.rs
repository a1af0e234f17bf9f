//! Counts of neighbouring symbols, as `learn_bpe` keeps them.
//!
//! Rare pairs are set aside, so that the most frequent one is looked for among few. That is exact: the count of a pair only falls once the merge that
//! makes its symbols is done, so none that was set aside comes above the threshold again.

use ahash::AHashMap;
use compact_str::CompactString;

/// Two neighbouring symbols, by their numbers.
pub(super) type Pair = (u32, u32);

/// The part of the highest count below which pairs are set aside at first.
const FIRST_PART: f64 = 10.0;
/// Merges after which pairs of half the highest count are set aside.
const HALF_AFTER: f64 = 10_000.0;

/// Counts of pairs: those that may be the most frequent, and all, where those of the former are out of date.
pub(super) struct PairCounts {
    frequent: AHashMap<Pair, i64>,
    all: AHashMap<Pair, i64>,
    /// Pairs with a lower count are set aside.
    threshold: f64,
}

impl PairCounts {
    pub(super) fn new(counts: AHashMap<Pair, i64>) -> PairCounts {
        let highest = counts.values().max().copied().unwrap_or(0);
        PairCounts { all: counts.clone(), frequent: counts, threshold: highest as f64 / FIRST_PART }
    }

    /// Adds to the count of a pair.
    pub(super) fn add(&mut self, pair: Pair, count: i64) {
        *self.frequent.entry(pair).or_default() += count;
    }

    /// Sets the count of a pair that was merged to nothing.
    pub(super) fn clear(&mut self, pair: Pair) {
        self.frequent.insert(pair, 0);
    }

    /// The most frequent pair and its count, of equal ones the last in the order of their characters. `merged`: number of merges so far.
    pub(super) fn most_frequent(&mut self, merged: usize, symbols: &[CompactString]) -> Option<(Pair, i64)> {
        let found = highest(&self.frequent, symbols);
        // Below the threshold one that was set aside may have a higher count.
        let is_unsure = |(_, count): (Pair, i64)| merged > 0 && (count as f64) < self.threshold;
        if found.is_some_and(|found| !is_unsure(found)) {
            return found;
        }
        self.set_rare_aside();
        self.frequent = self.all.clone();
        let (pair, count) = highest(&self.frequent, symbols)?;
        self.threshold = (count * merged as i64) as f64 / (merged as f64 + HALF_AFTER);
        self.set_rare_aside();
        Some((pair, count))
    }

    /// Sets pairs below the threshold aside. A negative count is what a pair lost since it was set aside before.
    pub(super) fn set_rare_aside(&mut self) {
        let PairCounts { frequent, all, threshold } = self;
        frequent.retain(|pair, count| {
            let is_rare = (*count as f64) < *threshold;
            if is_rare {
                let aside = all.entry(*pair).or_default();
                *aside = if *count < 0 { *aside + *count } else { *count };
            }
            !is_rare
        });
    }
}

fn highest(counts: &AHashMap<Pair, i64>, symbols: &[CompactString]) -> Option<(Pair, i64)> {
    let texts = |(left, right): Pair| (&symbols[left as usize], &symbols[right as usize]);
    let by_count_and_text = |(pair, count): &(Pair, i64), (other, than): &(Pair, i64)| {
        count.cmp(than).then_with(|| texts(*pair).cmp(&texts(*other)))
    };
    counts.iter().map(|(pair, count)| (*pair, *count)).max_by(by_count_and_text)
}
