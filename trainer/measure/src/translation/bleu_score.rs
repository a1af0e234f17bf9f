use std::fmt::{self, Display};

use serde::Serialize;

use super::bleu_counts::{BleuCounts, Smoothing};
use super::signature::score_line;

/// sacrebleu's logarithm of zero: the exponential of any mean with it is zero.
const LOG_OF_ZERO: f64 = -9_999_999_999.0;

/// BLEU of a corpus or a sentence. It is displayed as sacrebleu prints it, with two decimals or those asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BleuScore {
    /// In percent.
    pub score: f64,
    /// Smoothed precisions by order from 1, in percent.
    pub precisions: Vec<f64>,
    /// Factor in [0, 1], below 1 where the hypotheses are shorter than the references.
    pub brevity_penalty: f64,
    /// Length of the hypotheses divided by that of the references; 0 where these are empty.
    pub ratio: f64,
    /// Counts before smoothing.
    #[serde(flatten)]
    pub counts: BleuCounts,
}

impl BleuScore {
    /// Papineni et al. 2002, §2.3, with sacrebleu's treatment of zeros.
    pub(super) fn of(
        counts: &BleuCounts,
        smoothing: Smoothing,
        max_order: usize,
        effective_order: bool,
    ) -> Self {
        let (hypothesis, reference) = (counts.hypothesis_length, counts.reference_length);
        let brevity_penalty = brevity_penalty(hypothesis, reference);
        let (precisions, known) = precisions(counts, smoothing, max_order);
        let order = if effective_order { known } else { max_order };
        // Without any match sacrebleu returns before it smoothes.
        let mean = if known == 0 { 0.0 } else { geometric_mean(&precisions[..order]) };
        Self {
            score: brevity_penalty * mean,
            precisions,
            brevity_penalty,
            ratio: if reference == 0 { 0.0 } else { hypothesis as f64 / reference as f64 },
            counts: counts.clone(),
        }
    }

    /// Line of sacrebleu with two decimals: name, signature, score, precisions, penalty and lengths.
    pub fn line(&self, signature: &str) -> String {
        self.line_with(signature, 2)
    }

    fn line_with(&self, signature: &str, decimals: usize) -> String {
        let precisions: Vec<_> = self.precisions.iter().map(|value| format!("{value:.1}")).collect();
        format!(
            "{} {} (BP = {:.3} ratio = {:.3} hyp_len = {} ref_len = {})",
            score_line("BLEU", signature, self.score, decimals),
            precisions.join("/"),
            self.brevity_penalty,
            self.ratio,
            self.counts.hypothesis_length,
            self.counts.reference_length
        )
    }
}

impl Display for BleuScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line_with("", f.precision().unwrap_or(2)))
    }
}

/// Papineni et al. 2002, eq. 2: 1, or exp(1 - r/c) for c tokens against r > c; 0 for none.
pub(super) fn brevity_penalty(hypothesis: u64, reference: u64) -> f64 {
    match (hypothesis, reference) {
        (hypothesis, reference) if hypothesis >= reference => 1.0,
        (0, _) => 0.0,
        (hypothesis, reference) => (1.0 - reference as f64 / hypothesis as f64).exp(),
    }
}

/// Smoothed precisions by order, in percent, and the number of orders before the first without n-grams.
fn precisions(counts: &BleuCounts, smoothing: Smoothing, max_order: usize) -> (Vec<f64>, usize) {
    let mut precisions = vec![0.0; max_order];
    let (mut known, mut without_match) = (0, 0);
    if counts.correct.iter().all(|correct| *correct == 0) {
        return (precisions, known);
    }
    for (precision, (correct, total)) in precisions.iter_mut().zip(counts.correct.iter().zip(&counts.total)) {
        let added = if known == 0 { 0.0 } else { smoothing.added() };
        let (mut correct, total) = (*correct as f64 + added, *total as f64 + added);
        if total == 0.0 {
            break;
        }
        if correct == 0.0 {
            without_match += 1;
            correct = smoothing.in_place_of_none(without_match);
        }
        *precision = 100.0 * correct / total;
        known += 1;
    }
    (precisions, known)
}

impl Smoothing {
    /// Number added to matches and n-grams of every order but the first.
    fn added(self) -> f64 {
        if let Self::AddK(k) = self { k } else { 0.0 }
    }

    /// Number of matches assumed for the `nth` order without a match.
    fn in_place_of_none(self, nth: i32) -> f64 {
        match self {
            Self::None | Self::AddK(_) => 0.0,
            Self::Floor(value) => value,
            Self::Exponential => 0.5_f64.powi(nth),
        }
    }
}

fn geometric_mean(precisions: &[f64]) -> f64 {
    let log = |value: &f64| if *value == 0.0 { LOG_OF_ZERO } else { value.ln() };
    (precisions.iter().map(log).sum::<f64>() / precisions.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{Bleu, ReferenceCount, Tokenizer, TranslationMetric};
    use super::*;

    const HYPOTHESIS: &str = "The dog ran, fast.";
    const REFERENCES: [&str; 2] = ["The dog ran quickly away.", "A dog runs, fast and far."];

    /// sacrebleu 2.6.0: `BLEU(smooth_method=…).sentence_score(HYPOTHESIS, REFERENCES)`.
    #[test]
    fn smoothing_of_a_sentence() {
        for (smoothing, expected, name) in [
            (Smoothing::None, 0.0, "none"),
            (Smoothing::DEFAULT_FLOOR, 26.59147948472494, "floor[0.10]"),
            (Smoothing::DEFAULT_ADD_K, 50.81327481546149, "add-k[1.00]"),
            (Smoothing::Exponential, 39.76353643835254, "exp"),
        ] {
            let bleu = Bleu { smoothing, ..Bleu::default() };
            let found = bleu.sentence_score(HYPOTHESIS, &REFERENCES).score;
            assert!((found - expected).abs() < 1e-9, "{name}: {found}");
            let signature = bleu.signature(ReferenceCount::Fixed(2));
            assert_eq!(signature, format!("nrefs:2|case:mixed|eff:no|tok:13a|smooth:{name}|version:2.6.0"));
            let signature = bleu.short_signature(ReferenceCount::Fixed(2));
            assert_eq!(signature, format!("#:2|c:mixed|e:no|tok:13a|s:{name}|v:2.6.0"));
        }
    }

    /// sacrebleu 2.6.0: `BLEU(lowercase=True, tokenize="intl", effective_order=…).sentence_score("Dog RAN", REFERENCES)`.
    #[test]
    fn effective_order_ends_at_the_longest_ngram_of_a_short_sentence() {
        for (effective_order, expected, line) in [
            (
                true,
                13.533528323661276,
                "BLEU = 13.53 100.0/100.0/0.0/0.0 (BP = 0.135 ratio = 0.333 hyp_len = 2 ref_len = 6)",
            ),
            (
                false,
                0.0,
                "BLEU = 0.00 100.0/100.0/0.0/0.0 (BP = 0.135 ratio = 0.333 hyp_len = 2 ref_len = 6)",
            ),
        ] {
            let bleu = Bleu {
                tokenizer: Tokenizer::International,
                lower_case: true,
                effective_order,
                ..Bleu::default()
            };
            let score = bleu.sentence_score("Dog RAN", &REFERENCES);
            assert!((score.score - expected).abs() < 1e-9, "{score}");
            assert_eq!(score.to_string(), line);
        }
    }

    /// sacrebleu 2.6.0: `BLEU().corpus_score([""], [[reference]])`.
    #[test]
    fn empty_text_has_no_score() {
        let line = |reference| Bleu::default().sentence_score("", &[reference]).line("nrefs:1");
        let none = "BLEU|nrefs:1 = 0.00 0.0/0.0/0.0/0.0";
        assert_eq!(line(""), format!("{none} (BP = 1.000 ratio = 0.000 hyp_len = 0 ref_len = 0)"));
        assert_eq!(line("a"), format!("{none} (BP = 0.000 ratio = 0.000 hyp_len = 0 ref_len = 1)"));
        let nothing = Bleu::default().score(&BleuCounts::default());
        assert_eq!(nothing.line("nrefs:1"), line(""));
    }

    proptest! {
        #[test]
        fn counts_add_up_in_any_order_and_scores_are_percentages(
            pairs in vec(("[ab .,é]{0,12}", "[ab .,é]{0,12}", "[ab .,é]{0,12}"), 0..8),
            smoothing in prop::sample::select(vec![
                Smoothing::None, Smoothing::DEFAULT_FLOOR, Smoothing::DEFAULT_ADD_K, Smoothing::Exponential,
            ]),
            effective_order: bool,
        ) {
            let bleu = Bleu { smoothing, effective_order, ..Bleu::default() };
            let mut counts: Vec<_> = pairs.iter().map(|(h, r, s)| bleu.counts(h, &[r, s])).collect();
            let sum: BleuCounts = counts.iter().cloned().sum();
            counts.reverse();
            prop_assert_eq!(&sum, &counts.iter().cloned().sum());
            for counts in counts.iter().chain([&sum]) {
                let score = bleu.score(counts);
                prop_assert!((0.0..=100.0 + 1e-9).contains(&score.score), "{}", score);
            }
        }
    }
}
