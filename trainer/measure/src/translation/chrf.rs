use std::fmt::{self, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use super::metric::TranslationMetric;
use super::ngrams::{NgramTable, TokenIds, add_by_order, ngram_totals};
use super::rules::{is_space, words};
use super::signature::{ReferenceCount, Signature, score_line};

/// Precision or recall of an order without n-grams, as in Popović's `chrF++.py`.
const EPSILON: f64 = 1e-16;

/// chrF (Popović 2015) and chrF++ (Popović 2017), with the settings and values of sacrebleu 2.6.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chrf {
    /// Largest order of the character n-grams.
    pub char_order: usize,
    /// Largest order of the word n-grams: 0 for chrF, 2 for chrF++.
    pub word_order: usize,
    /// Weight of recall relative to precision.
    pub beta: u32,
    /// Whether character n-grams include white space.
    pub whitespace: bool,
    /// Whether lines are lower-cased first.
    pub lower_case: bool,
    /// Whether the score is the mean of the orders' F scores with an epsilon for those without n-grams, as in
    /// `chrF++.py`, Moses and NLTK. By default such orders are skipped, and precision and recall are averaged first.
    pub eps_smoothing: bool,
}

impl Default for Chrf {
    fn default() -> Self {
        Self {
            char_order: 6,
            word_order: 0,
            beta: 2,
            whitespace: false,
            lower_case: false,
            eps_smoothing: false,
        }
    }
}

/// Counts that chrF is computed from, by order: characters from 1, then words from 1. They add up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChrfCounts {
    /// N-grams of the hypotheses; a sentence whose reference has none of this order adds 0.
    pub hypothesis: Vec<u64>,
    /// N-grams of the references; of several, of the one with the best score.
    pub reference: Vec<u64>,
    /// N-grams in common.
    pub matching: Vec<u64>,
}

impl AddAssign for ChrfCounts {
    fn add_assign(&mut self, other: Self) {
        add_by_order(&mut self.hypothesis, &other.hypothesis);
        add_by_order(&mut self.reference, &other.reference);
        add_by_order(&mut self.matching, &other.matching);
    }
}

impl Add for ChrfCounts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for ChrfCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

/// chrF of a corpus or a sentence. It is displayed as sacrebleu prints it, with two decimals or those asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChrfScore {
    /// `chrF2`, `chrF2++`: with beta, and a plus for each order of words.
    pub name: String,
    /// In percent.
    pub score: f64,
}

impl ChrfScore {
    /// Line of sacrebleu with two decimals: name, signature, score.
    pub fn line(&self, signature: &str) -> String {
        score_line(&self.name, signature, self.score, 2)
    }
}

impl Display for ChrfScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&score_line(&self.name, "", self.score, f.precision().unwrap_or(2)))
    }
}

/// A sentence as ids, for both kinds of n-grams.
struct Sentence {
    /// Unicode code points.
    chars: Vec<u32>,
    /// Ids of words; empty for chrF.
    words: Vec<u32>,
}

impl Chrf {
    /// chrF++: word n-grams up to order 2.
    pub fn plus_plus() -> Self {
        Self { word_order: 2, ..Self::default() }
    }

    fn in_case(&self, line: &str) -> String {
        if self.lower_case { line.to_lowercase() } else { line.to_string() }
    }

    fn sentence<'a>(&self, line: &'a str, ids: &mut TokenIds<'a>) -> Sentence {
        let chars = line.chars().filter(|c| self.whitespace || !is_space(*c)).map(u32::from).collect();
        let words = if self.word_order == 0 { Vec::new() } else { ids.intern(words_and_punctuation(line)) };
        Sentence { chars, words }
    }

    fn counts_against(&self, hypothesis: &Sentence, reference: &Sentence) -> ChrfCounts {
        let mut counts = counts_of_kind(&hypothesis.chars, &reference.chars, self.char_order);
        let of_words = counts_of_kind(&hypothesis.words, &reference.words, self.word_order);
        counts.hypothesis.extend(of_words.hypothesis);
        counts.reference.extend(of_words.reference);
        counts.matching.extend(of_words.matching);
        counts
    }

    /// Weighted harmonic mean of precision and recall (Popović 2015, eq. 1).
    fn f_beta(&self, precision: f64, recall: f64) -> Option<f64> {
        let factor = f64::from(self.beta).powi(2);
        let weighted = factor * precision + recall;
        (weighted > 0.0).then(|| (1.0 + factor) * precision * recall / weighted)
    }

    /// Score in percent.
    fn f_score(&self, counts: &ChrfCounts) -> f64 {
        let orders = (0..counts.matching.len()).map(|order| precision_and_recall(counts, order));
        if self.eps_smoothing {
            let sum: f64 = orders.map(|(p, r)| self.f_beta(p, r).unwrap_or(EPSILON)).sum();
            return 100.0 * sum / (self.char_order + self.word_order) as f64;
        }
        let is_effective = |order: &usize| counts.hypothesis[*order] > 0 && counts.reference[*order] > 0;
        let effective = (0..counts.matching.len()).filter(is_effective);
        let effective: Vec<_> = effective.map(|order| precision_and_recall(counts, order)).collect();
        let mean = |sum: f64| sum / effective.len().max(1) as f64;
        let precision = mean(effective.iter().map(|(precision, _)| precision).sum());
        let recall = mean(effective.iter().map(|(_, recall)| recall).sum());
        100.0 * self.f_beta(precision, recall).unwrap_or(0.0)
    }
}

impl TranslationMetric for Chrf {
    type Counts = ChrfCounts;
    type Score = ChrfScore;

    fn counts(&self, hypothesis: &str, references: &[&str]) -> ChrfCounts {
        let hypothesis = self.in_case(hypothesis);
        let references = if references.is_empty() { &[""] } else { references };
        let references: Vec<String> = references.iter().map(|line| self.in_case(line)).collect();
        let mut ids = TokenIds::default();
        let hypothesis = self.sentence(&hypothesis, &mut ids);
        let mut best = (f64::NEG_INFINITY, ChrfCounts::default());
        for reference in &references {
            let counts = self.counts_against(&hypothesis, &self.sentence(reference, &mut ids));
            let score = self.f_score(&counts);
            // Of equal ones the first counts.
            if score > best.0 {
                best = (score, counts);
            }
        }
        best.1
    }

    fn score(&self, counts: &ChrfCounts) -> ChrfScore {
        let name = format!("chrF{}{}", self.beta, "+".repeat(self.word_order));
        ChrfScore { name, score: self.f_score(counts) }
    }

    fn settings(&self, references: ReferenceCount) -> Signature {
        Signature::new(references)
            .with_case(self.lower_case)
            .with_switch("eff", "e", !self.eps_smoothing)
            .with("nc", "nc", self.char_order.to_string())
            .with("nw", "nw", self.word_order.to_string())
            .with_switch("space", "s", self.whitespace)
    }
}

fn counts_of_kind(hypothesis: &[u32], reference: &[u32], max_order: usize) -> ChrfCounts {
    let references = ngram_totals(reference.len(), max_order);
    let mut hypotheses = ngram_totals(hypothesis.len(), max_order);
    // As in sacrebleu: an order that the reference lacks does not lower the precision.
    let both = hypotheses.iter_mut().zip(&references);
    both.filter(|(_, reference)| **reference == 0).for_each(|(hypothesis, _)| *hypothesis = 0);
    let table = NgramTable::of(max_order, &[reference]);
    ChrfCounts {
        hypothesis: hypotheses,
        reference: references,
        matching: table.matcher().matches(hypothesis, None),
    }
}

fn precision_and_recall(counts: &ChrfCounts, order: usize) -> (f64, f64) {
    let of = |total: u64| if total == 0 { EPSILON } else { counts.matching[order] as f64 / total as f64 };
    (of(counts.hypothesis[order]), of(counts.reference[order]))
}

/// Words with one ASCII punctuation mark split off the end or, where there is none, off the start: `(hi)` becomes `(hi`
/// and `)`, as in `chrF++.py`.
fn words_and_punctuation(line: &str) -> impl Iterator<Item = &str> {
    words(line).flat_map(|word| {
        let is_mark = |c: char| c.is_ascii_punctuation();
        let (first, second) = if word.chars().nth(1).is_none() {
            (word, "")
        } else if word.ends_with(is_mark) {
            word.split_at(word.len() - 1)
        } else if word.starts_with(is_mark) {
            word.split_at(1)
        } else {
            (word, "")
        };
        [first, second].into_iter().filter(|part| !part.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const HYPOTHESIS: &str = "The dog ran, fast.";
    const REFERENCES: [&str; 2] = ["The dog ran quickly away.", "A dog runs, fast and far."];

    /// sacrebleu 2.6.0: `CHRF(…).sentence_score(HYPOTHESIS, REFERENCES)`.
    #[test]
    fn scores_of_a_sentence_with_two_references() {
        let spaced = Chrf { whitespace: true, lower_case: true, ..Chrf::default() };
        let smoothed = Chrf { eps_smoothing: true, ..Chrf::plus_plus() };
        for (chrf, expected, name, settings) in [
            (Chrf::default(), 38.646329482250295, "chrF2", "case:mixed|eff:yes|nc:6|nw:0|space:no"),
            (Chrf::plus_plus(), 42.50374781499627, "chrF2++", "case:mixed|eff:yes|nc:6|nw:2|space:no"),
            (spaced, 42.013638860450705, "chrF2", "case:lc|eff:yes|nc:6|nw:0|space:yes"),
            (smoothed, 42.31101734622237, "chrF2++", "case:mixed|eff:no|nc:6|nw:2|space:no"),
        ] {
            let score = chrf.sentence_score(HYPOTHESIS, &REFERENCES);
            assert!((score.score - expected).abs() < 1e-9, "{score}");
            let signature = chrf.signature(ReferenceCount::Fixed(2));
            assert_eq!(signature, format!("nrefs:2|{settings}|version:2.6.0"));
            assert_eq!(score.line("s"), format!("{name}|s = {expected:.2}"));
        }
        let short = Chrf::default().short_signature(ReferenceCount::Fixed(2));
        assert_eq!(short, "#:2|c:mixed|e:yes|nc:6|nw:0|s:no|v:2.6.0");
    }

    #[test]
    fn one_mark_is_taken_off_a_word() {
        let found: Vec<_> = words_and_punctuation("(hi) \"a b... . é! x").collect();
        assert_eq!(found, ["(hi", ")", "\"", "a", "b..", ".", ".", "é", "!", "x"]);
    }

    /// sacrebleu 2.6.0: `CHRF(eps_smoothing=…).sentence_score("", [""])`.
    #[test]
    fn empty_text_has_no_score() {
        for eps_smoothing in [false, true] {
            let chrf = Chrf { eps_smoothing, ..Chrf::default() };
            for (hypothesis, references) in [("", &[""][..]), ("a", &[""]), ("", &["a"]), ("a", &[])] {
                assert!(chrf.sentence_score(hypothesis, references).score < 1e-13);
            }
        }
    }

    proptest! {
        #[test]
        fn counts_add_up_in_any_order_and_scores_are_percentages(
            pairs in vec(("[ab .,é]{0,12}", "[ab .,é]{0,12}", "[ab .,é]{0,12}"), 0..8),
            whitespace: bool,
            eps_smoothing: bool,
        ) {
            let chrf = Chrf { whitespace, eps_smoothing, ..Chrf::plus_plus() };
            let mut counts: Vec<_> = pairs.iter().map(|(h, r, s)| chrf.counts(h, &[r, s])).collect();
            let sum: ChrfCounts = counts.iter().cloned().sum();
            counts.reverse();
            prop_assert_eq!(&sum, &counts.iter().cloned().sum());
            for counts in counts.iter().chain([&sum]) {
                let score = chrf.score(counts);
                prop_assert!((0.0..=100.0 + 1e-9).contains(&score.score), "{}", score);
            }
        }
    }
}
