use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Id of the empty n-gram, the prefix of all others.
const EMPTY: u32 = 0;

/// Ids of tokens, in order of first occurrence.
#[derive(Debug, Default)]
pub struct TokenIds<'a> {
    ids: HashMap<&'a str, u32>,
}

impl<'a> TokenIds<'a> {
    /// Ids of the tokens of a sentence; an unknown token gets the next id.
    ///
    /// # Panics
    /// Where there are more than 2^32 tokens.
    pub fn intern(&mut self, tokens: impl IntoIterator<Item = &'a str>) -> Vec<u32> {
        tokens.into_iter().map(|token| self.id(token)).collect()
    }

    fn id(&mut self, token: &'a str) -> u32 {
        let next = small(self.ids.len());
        *self.ids.entry(token).or_insert(next)
    }
}

fn small(count: usize) -> u32 {
    let Ok(id) = u32::try_from(count) else {
        unreachable!("fewer than 2^32 n-grams and tokens fit into memory")
    };
    id
}

/// The two largest counts of an n-gram in one sentence of a table.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    /// Largest count in one sentence.
    first: u32,
    /// Number of the first sentence with that count.
    owner: u32,
    /// Largest count in any sentence but `owner`.
    second: u32,
}

impl Most {
    fn add(&mut self, sentence: u32, count: u32) {
        if count > self.first {
            *self = Self { first: count, owner: sentence, second: self.first };
        } else {
            self.second = self.second.max(count);
        }
    }

    fn without(self, sentence: Option<u32>) -> u32 {
        if sentence == Some(self.owner) { self.second } else { self.first }
    }
}

/// The n-grams of many reference sentences with the largest count of each in one sentence, which clips the count of a
/// hypothesis (Papineni et al. 2002, §2.1). With the second largest, leaving one
/// sentence out costs no more.
///
/// An n-gram is identified by the id of its first n - 1 tokens and its last token, so that comparison is exact and one
/// pass over a sentence serves all orders. Sentences are token ids, of one [`TokenIds`] or of any vocabulary.
#[derive(Debug)]
pub struct NgramTable {
    max_order: usize,
    sentences: u32,
    /// Id of an n-gram by the id of its prefix and its last token.
    ids: HashMap<(u32, u32), u32, BuildHasherDefault<PairHasher>>,
    /// By id.
    most: Vec<Most>,
    /// By id; zero between two sentences.
    counts: Vec<u32>,
}

impl NgramTable {
    /// An empty table of the orders from 1 to `max_order`.
    pub fn new(max_order: usize) -> Self {
        let (most, counts) = (vec![Most::default()], vec![0]);
        Self { max_order, sentences: 0, ids: HashMap::default(), most, counts }
    }

    /// A table of these sentences, numbered from 0.
    pub fn of<S: AsRef<[u32]>>(max_order: usize, sentences: &[S]) -> Self {
        let mut table = Self::new(max_order);
        sentences.iter().for_each(|sentence| table.add(sentence.as_ref()));
        table
    }

    /// Adds a sentence, numbered in the order of the calls.
    pub fn add(&mut self, tokens: &[u32]) {
        let mut present = Vec::with_capacity(tokens.len() * self.max_order);
        for start in 0..tokens.len() {
            let mut id = EMPTY;
            for token in tokens[start..].iter().take(self.max_order) {
                id = self.id_or_next(id, *token);
                self.counts[id as usize] += 1;
                present.push(id);
            }
        }
        for id in present {
            // An n-gram that occurs twice is listed twice; the second time its count is 0.
            let count = std::mem::take(&mut self.counts[id as usize]);
            self.most[id as usize].add(self.sentences, count);
        }
        self.sentences += 1;
    }

    fn id_or_next(&mut self, prefix: u32, token: u32) -> u32 {
        let next = small(self.most.len());
        let id = *self.ids.entry((prefix, token)).or_insert(next);
        if id == next {
            self.most.push(Most::default());
            self.counts.push(0);
        }
        id
    }

    /// A counter of the matches of hypotheses.
    pub fn matcher(&self) -> Matcher<'_> {
        Matcher { table: self, seen: vec![0; self.most.len()], present: Vec::new() }
    }
}

/// Counts the n-grams that hypotheses have in common with a table. Its buffers serve one hypothesis after another.
#[derive(Debug)]
pub struct Matcher<'a> {
    table: &'a NgramTable,
    /// Count in the hypothesis so far, by id; zero between two hypotheses.
    seen: Vec<u32>,
    /// Ids whose count is not zero.
    present: Vec<u32>,
}

impl Matcher<'_> {
    /// Clipped matches, by order from 1: each n-gram of the hypothesis counts at most as often as in the sentence of the
    /// table that has it most often. The sentence numbered `left_out` is ignored.
    pub fn matches(&mut self, tokens: &[u32], left_out: Option<u32>) -> Vec<u64> {
        let mut matches = vec![0; self.table.max_order];
        for start in 0..tokens.len() {
            let mut id = EMPTY;
            for (token, matches) in tokens[start..].iter().zip(&mut matches) {
                // The table has no extension of an n-gram that it lacks.
                let Some(found) = self.table.ids.get(&(id, *token)) else { break };
                id = *found;
                *matches += u64::from(self.is_match(id, left_out));
            }
        }
        self.present.drain(..).for_each(|id| self.seen[id as usize] = 0);
        matches
    }

    /// Whether one more occurrence of the n-gram is within its clip.
    fn is_match(&mut self, id: u32, left_out: Option<u32>) -> bool {
        let seen = &mut self.seen[id as usize];
        *seen += 1;
        self.present.push(id);
        *seen <= self.table.most[id as usize].without(left_out)
    }
}

/// Number of n-grams of a sentence of `length` tokens, for each order from 1.
pub(super) fn ngram_totals(length: usize, max_order: usize) -> Vec<u64> {
    (0..max_order).map(|shorter| length.saturating_sub(shorter) as u64).collect()
}

/// Adds up counts by order; a missing order counts as zero.
pub(super) fn add_by_order(sum: &mut Vec<u64>, counts: &[u64]) {
    sum.resize(sum.len().max(counts.len()), 0);
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

/// Hash of a pair of ids by one multiplication (Fibonacci hashing; Knuth 1973, §6.4). The keys are ids that
/// this program hands out, so no text can be written to make many of them collide.
#[derive(Clone, Copy, Default)]
struct PairHasher(u64);

/// 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        // The map takes the bucket from the low bits, and a product's high bits are mixed best.
        self.0.wrapping_mul(GOLDEN).rotate_left(26)
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = self.0 << 32 | u64::from(id);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn counted(tokens: &[u32], order: usize) -> HashMap<&[u32], u64> {
        let mut counts = HashMap::new();
        tokens.windows(order).for_each(|ngram| *counts.entry(ngram).or_default() += 1);
        counts
    }

    /// Matches as Papineni et al. 2002, §2.1 state them.
    fn naive(hypothesis: &[u32], references: &[&Vec<u32>], order: usize) -> u64 {
        let clip = |ngram: &[u32]| {
            let counts = references.iter().map(|tokens| counted(tokens, order).get(ngram).copied());
            counts.flatten().max().unwrap_or(0)
        };
        counted(hypothesis, order).iter().map(|(ngram, count)| clip(ngram).min(*count)).sum()
    }

    #[test]
    fn matches_are_clipped_by_the_reference_that_has_most() {
        // Papineni et al. 2002, example 2: "the" seven times against references with two and one; no bigram.
        let mut ids = TokenIds::default();
        let hypothesis = ids.intern("the the the the the the the".split(' '));
        let references = ["the cat is on the mat", "there is a cat on the mat"];
        let references = references.map(|line| ids.intern(line.split(' ')));
        let table = NgramTable::of(2, &references);
        assert_eq!(table.matcher().matches(&hypothesis, None), [2, 0]);
        assert_eq!(table.matcher().matches(&hypothesis, Some(0)), [1, 0]);
    }

    proptest! {
        #[test]
        fn a_table_without_a_sentence_is_the_table_of_the_others(sentences in vec(vec(0_u32..4, 0..9), 1..7)) {
            let table = NgramTable::of(5, &sentences);
            let mut matcher = table.matcher();
            for (i, sentence) in sentences.iter().enumerate() {
                let others = |without: Option<usize>| {
                    let kept = sentences.iter().enumerate().filter(|(j, _)| Some(*j) != without);
                    let kept: Vec<_> = kept.map(|(_, tokens)| tokens).collect();
                    (1..=5).map(|order| naive(sentence, &kept, order)).collect::<Vec<_>>()
                };
                prop_assert_eq!(matcher.matches(sentence, Some(i as u32)), others(Some(i)));
                prop_assert_eq!(matcher.matches(sentence, None), others(None));
            }
        }
    }
}
