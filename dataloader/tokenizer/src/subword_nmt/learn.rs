//! Learning merges, as `learn_bpe` does it.

use ahash::AHashMap;
use compact_str::{CompactString, ToCompactString};

use super::codes::{END, Merge, Version};
use super::pair_counts::{Pair, PairCounts};

/// Merges between two rounds in which rare pairs are set aside.
const PRUNE_EVERY: usize = 100;

/// Learns merges of words with their counts: always the most frequent pair of neighbouring symbols, until there are `most` or none is as frequent
/// as `min_frequency`.
pub(super) fn learn(
    words: &[(CompactString, u64)],
    most: usize,
    min_frequency: u64,
    version: Version,
) -> Vec<Merge> {
    let mut learner = Learner::new(words, version);
    let least = i64::try_from(min_frequency.max(1)).unwrap_or(i64::MAX);
    let mut merges = Vec::new();
    while merges.len() < most
        && let Some((pair, count)) = learner.counts.most_frequent(merges.len(), &learner.symbols)
        && count >= least
    {
        merges.push(learner.texts(pair));
        learner.merge(pair);
        if (merges.len() - 1).is_multiple_of(PRUNE_EVERY) {
            learner.counts.set_rare_aside();
        }
    }
    merges
}

/// A word as symbols.
struct Word {
    symbols: Vec<u32>,
    count: i64,
}

/// Words, and the pairs of neighbouring symbols in them.
struct Learner {
    symbols: Vec<CompactString>,
    numbers: AHashMap<CompactString, u32>,
    words: Vec<Word>,
    counts: PairCounts,
    places: Places,
}

/// How often each pair stands in which words.
#[derive(Default)]
struct Places(AHashMap<Pair, AHashMap<u32, i64>>);

impl Places {
    fn add(&mut self, pair: Pair, word: u32, times: i64) {
        let places = self.0.entry(pair).or_default();
        let found = places.entry(word).or_default();
        *found += times;
        if *found == 0 {
            places.remove(&word);
        }
    }

    /// Takes the words that a pair stands in.
    fn take(&mut self, pair: Pair) -> impl Iterator<Item = u32> + use<> {
        let places = self.0.remove(&pair).unwrap_or_default();
        places.into_iter().filter(|(_, times)| *times > 0).map(|(word, _)| word)
    }
}

impl Learner {
    fn new(words: &[(CompactString, u64)], version: Version) -> Learner {
        let mut learner = Learner {
            symbols: Vec::new(),
            numbers: AHashMap::new(),
            words: Vec::with_capacity(words.len()),
            counts: PairCounts::new(AHashMap::new()),
            places: Places::default(),
        };
        let mut counts: AHashMap<Pair, i64> = AHashMap::new();
        for ((word, count), number) in words.iter().zip(0..) {
            let symbols = learner.symbols_of(word, version);
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            for pair in symbols.windows(2).map(|pair| (pair[0], pair[1])) {
                *counts.entry(pair).or_default() += count;
                learner.places.add(pair, number, 1);
            }
            learner.words.push(Word { symbols, count });
        }
        learner.counts = PairCounts::new(counts);
        learner
    }

    fn symbols_of(&mut self, word: &str, version: Version) -> Vec<u32> {
        let mut symbols: Vec<CompactString> = word.chars().map(|c| c.to_compact_string()).collect();
        match (version, symbols.last_mut()) {
            (Version::EndGlued, Some(last)) => last.push_str(END),
            _ => symbols.push(END.into()),
        }
        symbols.into_iter().map(|symbol| self.number(symbol)).collect()
    }

    fn number(&mut self, symbol: CompactString) -> u32 {
        if let Some(number) = self.numbers.get(&symbol) {
            return *number;
        }
        let number = self.symbols.len() as u32;
        self.numbers.insert(symbol.clone(), number);
        self.symbols.push(symbol);
        number
    }

    fn texts(&self, (left, right): Pair) -> Merge {
        (self.symbols[left as usize].clone(), self.symbols[right as usize].clone())
    }

    /// Merges a pair in all words.
    fn merge(&mut self, pair: Pair) {
        let (mut text, right) = self.texts(pair);
        text.push_str(&right);
        let merged = self.number(text);
        self.counts.clear(pair);
        for number in self.places.take(pair) {
            let word = &mut self.words[number as usize];
            let new = merge_in(&word.symbols, pair, merged);
            let old = std::mem::replace(&mut word.symbols, new);
            let mut change =
                Change { counts: &mut self.counts, places: &mut self.places, number, count: word.count };
            change.subtract(&old, pair);
            change.add(&word.symbols, merged);
        }
        self.counts.clear(pair);
    }
}

/// The symbols of a word after a merge of a pair, from the left.
fn merge_in(symbols: &[u32], pair: Pair, merged: u32) -> Vec<u32> {
    let mut new = Vec::with_capacity(symbols.len());
    let mut rest = symbols;
    while let [first, behind @ ..] = rest {
        match behind {
            [second, behind @ ..] if (*first, *second) == pair => {
                new.push(merged);
                rest = behind;
            }
            _ => {
                new.push(*first);
                rest = behind;
            }
        }
    }
    new
}

/// Counts that change with one word.
struct Change<'a> {
    counts: &'a mut PairCounts,
    places: &'a mut Places,
    number: u32,
    count: i64,
}

impl Change<'_> {
    /// Takes the pairs away that a merge of `pair` ends: those with the symbols before and behind it. Where the merge follows again right behind,
    /// the pair between is taken away there.
    fn subtract(&mut self, old: &[u32], pair: Pair) {
        let is_pair = |at: usize| old.get(at..at + 2).is_some_and(|found| (found[0], found[1]) == pair);
        let mut at = 0;
        while at < old.len() {
            if !is_pair(at) {
                at += 1;
                continue;
            }
            if at > 0 {
                self.count((old[at - 1], old[at]), -1);
            }
            if at + 2 < old.len() && !is_pair(at + 2) {
                self.count((old[at + 1], old[at + 2]), -1);
            }
            at += 2;
        }
    }

    /// Adds the pairs with the symbol of a merge.
    fn add(&mut self, new: &[u32], merged: u32) {
        for at in (0..new.len()).filter(|at| new[*at] == merged) {
            if at > 0 {
                self.count((new[at - 1], merged), 1);
            }
            // The pair with the same symbol behind is that one's pair with what is before it.
            if at + 1 < new.len() && new[at + 1] != merged {
                self.count((merged, new[at + 1]), 1);
            }
        }
    }

    fn count(&mut self, pair: Pair, times: i64) {
        self.counts.add(pair, times * self.count);
        self.places.add(pair, self.number, times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merges::MergeScratch;
    use crate::subword_nmt::codes::Codes;
    use crate::subword_nmt::segment::Segmenter;

    fn words(counts: &[(&str, u64)]) -> Vec<(CompactString, u64)> {
        counts.iter().map(|(word, count)| ((*word).into(), *count)).collect()
    }

    /// The words of Sennrich et al. 2016, algorithm 1, with the merges that a naive count gives, and subword-nmt 0.3.8.
    #[test]
    fn the_words_of_the_paper_give_its_merges_in_both_versions() {
        let words = words(&[("low", 5), ("lower", 2), ("newest", 6), ("widest", 3)]);
        let alone = "t </w>\ns t</w>\ne st</w>\no w\nl ow\nw est</w>\nn e\nne west</w>\n";
        let glued = "#version: 0.2\ns t</w>\ne st</w>\nl o\nw est</w>\nn e\nne west</w>\nlo w</w>\nw i\n";
        let cases =
            [(Version::EndAlone, alone, ["low@@", "est"]), (Version::EndGlued, glued, ["lo@@", "west"])];
        for (version, file, lowest) in cases {
            let codes = Codes::of_merges(version, &learn(&words, 8, 2, version)).unwrap();
            assert_eq!(String::from_utf8_lossy(&codes.file), file);
            assert_eq!(Codes::read(file.into()).unwrap().version, version);
            let mut pieces = Vec::new();
            let each = |piece: &str, _| pieces.push(piece.to_string());
            Segmenter::new(&codes).pieces("lowest", &mut MergeScratch::default(), each);
            assert_eq!(pieces, lowest);
        }
    }

    #[test]
    fn learning_ends_where_no_pair_is_frequent_enough() {
        let learned =
            |counts: &[(&str, u64)], least| learn(&words(counts), 100, least, Version::EndGlued).len();
        assert_eq!(learned(&[("abc", 1)], 2), 0);
        assert_eq!(learned(&[("abc", 1)], 0), 2);
        assert_eq!(learned(&[("abc", 2), ("xy", 3)], 3), 1);
        assert_eq!(learned(&[("a", 9), ("b", 9)], 1), 0);
        assert_eq!(learned(&[], 1), 0);
    }
}
