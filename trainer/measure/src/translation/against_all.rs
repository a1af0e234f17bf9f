use std::collections::BTreeMap;

use serde::Serialize;

use super::bleu::closest_length;
use super::bleu_counts::BleuCounts;
use super::bleu_score::brevity_penalty;
use super::ngrams::{NgramTable, ngram_totals};

/// Number of matches assumed instead of 0 by NLTK's `SmoothingFunction().method1` (Chen and Cherry 2014, method 1).
pub const METHOD1_EPSILON: f64 = 0.1;

/// BLEU of each sentence of a set against all sentences of a set, in percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetBleu {
    /// For each sentence, BLEU-1, BLEU-2, ... up to the largest order.
    pub sentences: Vec<Vec<f64>>,
    /// Counts of all sentences, for the score of the corpus ([`super::Bleu`]).
    pub counts: BleuCounts,
}

impl SetBleu {
    /// Mean BLEU of the sentences, up to this order: the figure reported for generated text (Zhu et al. 2018, Texygen).
    /// NaN where there are no sentences.
    ///
    /// # Panics
    /// Where the order is 0 or above `max_order`.
    pub fn mean(&self, order: usize) -> f64 {
        let sum: f64 = self.sentences.iter().map(|scores| scores[order - 1]).sum();
        sum / self.sentences.len() as f64
    }
}

/// Self-BLEU (Zhu et al. 2018): each sentence against all others of its set, for all orders from 1 to `max_order` at once.
/// It is low where the text is diverse. The time is linear in the number of sentences.
///
/// A sentence is its token ids, without special tokens such as padding. The convention is that of
/// [`corpus_bleu_against_all`]; a sentence without others has 0.
///
/// ```
/// use segue_measure::translation::{METHOD1_EPSILON, TokenIds, self_bleu};
/// let mut ids = TokenIds::default();
/// let set = ["a man rides a horse", "a man rides a bike"].map(|line| ids.intern(line.split(' ')));
/// assert!((self_bleu(&set, 4, METHOD1_EPSILON).mean(1) - 80.0).abs() < 1e-9);
/// ```
pub fn self_bleu<S: AsRef<[u32]>>(sentences: &[S], max_order: usize, epsilon: f64) -> SetBleu {
    score_all(sentences, sentences, true, max_order, epsilon)
}

/// BLEU of each hypothesis against all references, for all orders from 1 to `max_order` at once. It is the inverse BLEU
/// where the hypotheses are test sentences and the references are generated.
///
/// The convention is that of NLTK's `sentence_bleu` with uniform weights and `SmoothingFunction(epsilon).method1`: counts
/// clipped by the reference that has most, a brevity penalty by the closest length (the shorter of two as close), `epsilon`
/// matches instead of 0, denominators of at least 1, and a score of 0 where no token matches.
pub fn corpus_bleu_against_all<S: AsRef<[u32]>, R: AsRef<[u32]>>(
    hypotheses: &[S],
    references: &[R],
    max_order: usize,
    epsilon: f64,
) -> SetBleu {
    score_all(hypotheses, references, false, max_order, epsilon)
}

/// With `leaves_one_out` the two sets are the same.
fn score_all<S: AsRef<[u32]>, R: AsRef<[u32]>>(
    hypotheses: &[S],
    references: &[R],
    leaves_one_out: bool,
    max_order: usize,
    epsilon: f64,
) -> SetBleu {
    let table = NgramTable::of(max_order, references);
    let lengths = Lengths::of(references.iter().map(|tokens| tokens.as_ref().len()));
    let mut matcher = table.matcher();
    let mut set = SetBleu { sentences: Vec::with_capacity(hypotheses.len()), counts: BleuCounts::default() };
    for (number, tokens) in (0..).zip(hypotheses) {
        let tokens = tokens.as_ref();
        let closest = lengths.closest(tokens.len(), leaves_one_out);
        let counts = BleuCounts {
            correct: matcher.matches(tokens, leaves_one_out.then_some(number)),
            total: ngram_totals(tokens.len(), max_order),
            hypothesis_length: tokens.len() as u64,
            reference_length: closest.unwrap_or(0) as u64,
        };
        set.sentences.push(method1_scores(&counts, epsilon));
        set.counts += counts;
    }
    set
}

/// BLEU up to each order.
fn method1_scores(counts: &BleuCounts, epsilon: f64) -> Vec<f64> {
    if counts.correct.first().is_none_or(|correct| *correct == 0) {
        return vec![0.0; counts.correct.len()];
    }
    let penalty = brevity_penalty(counts.hypothesis_length, counts.reference_length);
    let matches = |correct: u64| if correct == 0 { epsilon } else { correct as f64 };
    let mut logs = 0.0;
    let orders = counts.correct.iter().zip(&counts.total).zip(1..);
    let scores = orders.map(|((correct, total), order)| {
        logs += (matches(*correct) / (*total).max(1) as f64).ln();
        100.0 * penalty * (logs / f64::from(order)).exp()
    });
    scores.collect()
}

/// How many sentences have each length.
struct Lengths(BTreeMap<usize, usize>);

impl Lengths {
    fn of(lengths: impl Iterator<Item = usize>) -> Self {
        let mut counts = BTreeMap::new();
        lengths.for_each(|length| *counts.entry(length).or_default() += 1);
        Self(counts)
    }

    /// The closest length, without one sentence of the same length where one is left out.
    fn closest(&self, length: usize, leaves_one_out: bool) -> Option<usize> {
        let of_same = self.0.get(&length).copied().unwrap_or(0);
        if of_same > usize::from(leaves_one_out) {
            return Some(length);
        }
        let shorter = self.0.range(..length).next_back();
        let longer = self.0.range(length + 1..).next();
        closest_length(length, shorter.into_iter().chain(longer).map(|(length, _)| *length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{Bleu, TokenIds, TranslationMetric};
    use super::*;

    /// Section 6.5 of the specification of InitialGAN; its numbers are NLTK's and those of a second implementation.
    const GENERATED: [&str; 5] = [
        "a man rides a horse on the beach",
        "a man rides a bike on the street",
        "a cat sits on a red chair",
        "the dog runs",
        "a man rides a horse on the beach",
    ];
    const TEST: [&str; 5] = [
        "a man rides a brown horse on the beach",
        "a woman rides a bike down the street",
        "a cat sits on a chair",
        "the dog runs in the park",
        "two people walk on the beach",
    ];

    #[track_caller]
    fn agree(set: &SetBleu, expected: [f64; 4]) {
        for (order, expected) in (2..).zip(expected) {
            assert!((set.mean(order) / 100.0 - expected).abs() < 1e-9, "BLEU-{order}: {}", set.mean(order));
        }
    }

    #[test]
    fn bleu_self_bleu_and_inverse_bleu_are_those_of_nltk() {
        let mut ids = TokenIds::default();
        let [generated, test] = [GENERATED, TEST].map(|set| set.map(|line| ids.intern(line.split(' '))));
        let bleu = corpus_bleu_against_all(&generated, &test, 5, METHOD1_EPSILON);
        agree(&bleu, [0.780253737, 0.696276551, 0.554859621, 0.343011432]);
        let expected = [0.355952781, 0.292549017, 0.564147139, 0.146455443, 0.355952781];
        for (scores, expected) in bleu.sentences.iter().zip(expected) {
            assert!((scores[4] / 100.0 - expected).abs() < 1e-9);
        }
        let of_self = self_bleu(&generated, 5, METHOD1_EPSILON);
        agree(&of_self, [0.552389694, 0.519865517, 0.495753805, 0.459954414]);
        let inverse = corpus_bleu_against_all(&test, &generated, 5, METHOD1_EPSILON);
        agree(&inverse, [0.579535167, 0.487907475, 0.358623794, 0.259332706]);
    }

    #[test]
    fn identical_sentences_have_a_self_bleu_of_100_and_a_single_one_of_0() {
        let sentence = vec![1, 2, 3, 4, 5];
        let scores = self_bleu(&[sentence.clone(), sentence.clone()], 5, METHOD1_EPSILON);
        assert!((1..=5).all(|order| (scores.mean(order) - 100.0).abs() < 1e-9));
        assert_eq!(self_bleu(&[sentence], 5, METHOD1_EPSILON).mean(5), 0.0);
        assert!(self_bleu::<Vec<u32>>(&[], 5, METHOD1_EPSILON).mean(5).is_nan());
    }

    /// Texts of the ids, for [`Bleu`]: a second way to the same counts.
    fn text(tokens: &[u32]) -> String {
        tokens.iter().map(|token| format!("w{token} ")).collect()
    }

    proptest! {
        #[test]
        fn self_bleu_is_that_of_each_sentence_against_a_list_of_the_others(set in vec(vec(0_u32..5, 0..10), 1..9)) {
            let texts: Vec<String> = set.iter().map(|tokens| text(tokens)).collect();
            let fast = self_bleu(&set, 5, METHOD1_EPSILON);
            let bleu = Bleu { tokenizer: super::super::Tokenizer::None, max_order: 5, ..Bleu::default() };
            let mut sum = BleuCounts::default();
            for (i, (hypothesis, found)) in texts.iter().zip(&fast.sentences).enumerate() {
                let others = texts.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, text)| text.as_str());
                let counts = bleu.counts(hypothesis, &others.collect::<Vec<_>>());
                prop_assert_eq!(found, &method1_scores(&counts, METHOD1_EPSILON));
                prop_assert!(found.iter().all(|score| (0.0..=100.0 + 1e-9).contains(score)));
                sum += counts;
            }
            prop_assert_eq!(fast.counts, sum);
        }
    }
}
