use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use super::metric::TranslationMetric;
use super::ngrams::TokenIds;
use super::rules::words;
use super::shifts::count_edits;
use super::signature::{ReferenceCount, Signature, score_line};
use super::tercom::Ter;

/// Counts that TER is computed from. They add up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerCounts {
    /// Edits, shifts included; of several references, those of the one that needs the fewest.
    pub edits: u64,
    /// Words of all references, by the number of references of their sentence. TER divides by the mean length of a
    /// sentence's references; a sum of such quotients would depend on its order.
    pub reference_words: BTreeMap<usize, u64>,
}

impl AddAssign for TerCounts {
    fn add_assign(&mut self, other: Self) {
        self.edits += other.edits;
        for (references, words) in other.reference_words {
            *self.reference_words.entry(references).or_default() += words;
        }
    }
}

impl Add for TerCounts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for TerCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

/// TER of a corpus or a sentence. It is displayed as sacrebleu prints it, with two decimals or those asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TerScore {
    /// Edits per word of the references, in percent: 0 is best, and it can exceed 100. 100 where the references are
    /// empty and the hypotheses are not.
    pub score: f64,
    /// Number of edits.
    pub edits: u64,
    /// Number of words of the references; of several, their mean.
    pub reference_length: f64,
}

impl TerScore {
    /// Line of sacrebleu with two decimals: name, signature, score.
    pub fn line(&self, signature: &str) -> String {
        score_line("TER", signature, self.score, 2)
    }
}

impl Display for TerScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&score_line("TER", "", self.score, f.precision().unwrap_or(2)))
    }
}

impl TranslationMetric for Ter {
    type Counts = TerCounts;
    type Score = TerScore;

    fn counts(&self, hypothesis: &str, references: &[&str]) -> TerCounts {
        let hypothesis = self.prepare(hypothesis);
        let references = if references.is_empty() { &[""] } else { references };
        let references: Vec<String> = references.iter().map(|line| self.prepare(line)).collect();
        let mut ids = TokenIds::default();
        let hypothesis = ids.intern(words(&hypothesis));
        let references: Vec<_> = references.iter().map(|line| ids.intern(words(line))).collect();
        let edits = references.iter().map(|reference| count_edits(&hypothesis, reference));
        let lengths = references.iter().map(|reference| reference.len() as u64);
        TerCounts {
            edits: edits.min().unwrap_or(0),
            reference_words: BTreeMap::from([(references.len(), lengths.sum())]),
        }
    }

    fn score(&self, counts: &TerCounts) -> TerScore {
        let mean = |(references, words): (&usize, &u64)| *words as f64 / *references as f64;
        let reference_length: f64 = counts.reference_words.iter().map(mean).sum();
        let rate = match counts.edits {
            edits if reference_length > 0.0 => edits as f64 / reference_length,
            0 => 0.0,
            _ => 1.0,
        };
        TerScore { score: 100.0 * rate, edits: counts.edits, reference_length }
    }

    fn settings(&self, references: ReferenceCount) -> Signature {
        Signature::new(references)
            .with_case(!self.case_sensitive)
            .with("tok", "t", "tercom")
            .with_switch("norm", "nr", self.normalized)
            .with_switch("punct", "pn", !self.no_punct)
            .with_switch("asian", "as", self.asian_support)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const HYPOTHESIS: &str = "The dog ran, fast.";
    const REFERENCES: [&str; 2] = ["The dog ran quickly away.", "A dog runs, fast and far."];

    /// sacrebleu 2.6.0: `TER(…).sentence_score(HYPOTHESIS, REFERENCES)`.
    #[test]
    fn scores_of_a_sentence_with_two_references() {
        let normalized = Ter { normalized: true, ..Ter::default() };
        let all = Ter { normalized: true, no_punct: true, asian_support: true, case_sensitive: true };
        for (ter, expected, edits, length, settings) in [
            (Ter::default(), 54.54545454545454, 3, 5.5, "case:lc|tok:tercom|norm:no|punct:yes|asian:no"),
            (normalized, 28.57142857142857, 2, 7.0, "case:lc|tok:tercom|norm:yes|punct:yes|asian:no"),
            (all, 36.36363636363637, 2, 5.5, "case:mixed|tok:tercom|norm:yes|punct:no|asian:yes"),
        ] {
            let score = ter.sentence_score(HYPOTHESIS, &REFERENCES);
            assert!((score.score - expected).abs() < 1e-9, "{score}");
            assert_eq!((score.edits, score.reference_length), (edits, length));
            let signature = ter.signature(ReferenceCount::Fixed(2));
            assert_eq!(signature, format!("nrefs:2|{settings}|version:2.6.0"));
            assert_eq!(score.line("s"), format!("TER|s = {expected:.2}"));
        }
        let short = Ter::default().short_signature(ReferenceCount::Fixed(2));
        assert_eq!(short, "#:2|c:lc|t:tercom|nr:no|pn:yes|as:no|v:2.6.0");
    }

    /// The example of Snover et al. 2006, §3: a shift, an insertion and two substitutions for 13 words.
    #[test]
    fn the_example_of_the_paper_has_four_edits() {
        let hypothesis = "THIS WEEK THE SAUDIS denied information published in the new york times";
        let reference = "SAUDI ARABIA denied THIS WEEK information published in the AMERICAN new york times";
        let score = Ter::default().sentence_score(hypothesis, &[reference]);
        assert_eq!((score.edits, score.reference_length), (4, 13.0));
    }

    /// sacrebleu 2.6.0: `TER().sentence_score(hypothesis, [reference])`.
    #[test]
    fn words_without_a_reference_are_all_wrong() {
        for (hypothesis, references, expected) in
            [("a b", &[""][..], 100.0), ("", &[""], 0.0), ("", &["a b"], 100.0), ("a b", &[], 100.0)]
        {
            assert_eq!(Ter::default().sentence_score(hypothesis, references).score, expected);
        }
    }

    proptest! {
        #[test]
        fn counts_add_up_in_any_order_and_rates_are_not_negative(
            pairs in vec(("[ab .,é]{0,20}", vec("[ab .,é]{0,20}", 1..4)), 0..8),
            normalized: bool,
        ) {
            let ter = Ter { normalized, ..Ter::default() };
            let counts = |(hypothesis, references): &(String, Vec<String>)| {
                let references: Vec<&str> = references.iter().map(String::as_str).collect();
                ter.counts(hypothesis, &references)
            };
            let mut counts: Vec<_> = pairs.iter().map(counts).collect();
            let sum: TerCounts = counts.iter().cloned().sum();
            counts.reverse();
            prop_assert_eq!(&sum, &counts.iter().cloned().sum());
            prop_assert!(counts.iter().chain([&sum]).all(|counts| ter.score(counts).score >= 0.0));
        }
    }
}
