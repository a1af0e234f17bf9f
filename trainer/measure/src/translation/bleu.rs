use super::bleu_counts::{BleuCounts, Smoothing};
use super::bleu_score::BleuScore;
use super::metric::TranslationMetric;
use super::ngrams::{NgramTable, TokenIds, ngram_totals};
use super::rules::words;
use super::signature::{ReferenceCount, Signature};
use super::tokenize::{Tokenizer, split_compounds};

/// BLEU (Papineni et al. 2002), with the settings and values of sacrebleu 2.6.0 (Post 2018).
///
/// The default is WMT's. Tokenised BLEU as `multi-bleu.perl` prints it has [`Tokenizer::None`] and [`Smoothing::None`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bleu {
    /// Tokeniser of hypotheses and references.
    pub tokenizer: Tokenizer,
    /// Whether lines are lower-cased first.
    pub lower_case: bool,
    /// Whether compounds are split at their hyphens after tokenisation, as in tensor2tensor's `get_ende_bleu.sh`
    /// (Vaswani et al. 2017, English to German). sacrebleu has no such setting: the signature adds `+compounds` to
    /// the tokeniser's name.
    pub split_compounds: bool,
    /// Treatment of orders without a match.
    pub smoothing: Smoothing,
    /// Largest order of the n-grams. As in sacrebleu, the signature does not name it.
    pub max_order: usize,
    /// Whether the mean covers only the orders that the hypotheses have n-grams of; for scores of sentences.
    pub effective_order: bool,
}

impl Default for Bleu {
    fn default() -> Self {
        Self {
            tokenizer: Tokenizer::Mteval13a,
            lower_case: false,
            split_compounds: false,
            smoothing: Smoothing::Exponential,
            max_order: 4,
            effective_order: false,
        }
    }
}

impl Bleu {
    fn tokenized(&self, line: &str) -> String {
        let line = match self.lower_case {
            true => self.tokenizer.tokenize(&line.to_lowercase()),
            false => self.tokenizer.tokenize(line),
        };
        if self.split_compounds { split_compounds(&line) } else { line }
    }
}

impl TranslationMetric for Bleu {
    type Counts = BleuCounts;
    type Score = BleuScore;

    fn counts(&self, hypothesis: &str, references: &[&str]) -> BleuCounts {
        let hypothesis = self.tokenized(hypothesis);
        let references: Vec<String> = references.iter().map(|line| self.tokenized(line)).collect();
        let mut ids = TokenIds::default();
        let references: Vec<Vec<u32>> = references.iter().map(|line| ids.intern(words(line))).collect();
        let hypothesis = ids.intern(words(&hypothesis));
        let table = NgramTable::of(self.max_order, &references);
        let lengths = references.iter().map(Vec::len);
        BleuCounts {
            correct: table.matcher().matches(&hypothesis, None),
            total: ngram_totals(hypothesis.len(), self.max_order),
            hypothesis_length: hypothesis.len() as u64,
            reference_length: closest_length(hypothesis.len(), lengths).unwrap_or(0) as u64,
        }
    }

    fn score(&self, counts: &BleuCounts) -> BleuScore {
        BleuScore::of(counts, self.smoothing, self.max_order, self.effective_order)
    }

    fn settings(&self, references: ReferenceCount) -> Signature {
        let compounds = if self.split_compounds { "+compounds" } else { "" };
        Signature::new(references)
            .with_case(self.lower_case)
            .with_switch("eff", "e", self.effective_order)
            .with("tok", "tok", format!("{}{compounds}", self.tokenizer.name()))
            .with("smooth", "s", self.smoothing.signature())
    }
}

/// The length closest to that of the hypothesis, the shorter of two (Papineni et al. 2002, §2.2.2: best match length).
pub(super) fn closest_length(hypothesis: usize, references: impl Iterator<Item = usize>) -> Option<usize> {
    references.min_by_key(|length| (length.abs_diff(hypothesis), *length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENIZED: Bleu = Bleu {
        tokenizer: Tokenizer::None,
        lower_case: false,
        split_compounds: false,
        smoothing: Smoothing::None,
        max_order: 4,
        effective_order: false,
    };

    const PAIRS: [(&str, &str); 3] = [
        ("the cat sat on the mat", "the cat is on the mat"),
        ("there is a book on the desk today", "there is a book on the desk"),
        ("he reads", "he reads the paper every day"),
    ];

    fn counts_of(pairs: &[(&str, &str)]) -> BleuCounts {
        pairs.iter().map(|(hypothesis, reference)| TOKENIZED.counts(hypothesis, &[reference])).sum()
    }

    /// Row S24. The numbers are those of the specification's G5, by its script and by
    /// `sacrebleu.BLEU(tokenize="none", smooth_method="none").corpus_score(...)` of 2.6.0.
    #[test]
    fn tokenised_bleu_of_three_pairs() {
        let counts = counts_of(&PAIRS);
        assert_eq!((&counts.correct[..], &counts.total[..]), (&[14, 10, 6, 4][..], &[16, 13, 10, 8][..]));
        assert_eq!((counts.hypothesis_length, counts.reference_length), (16, 19));
        let score = TOKENIZED.score(&counts);
        assert!((score.brevity_penalty - 0.829029118).abs() < 1e-9);
        assert!((score.score - 55.573311145).abs() < 1e-9);
        let first_two = TOKENIZED.score(&counts_of(&PAIRS[..2]));
        assert!((first_two.score - 66.268773402).abs() < 1e-9 && first_two.brevity_penalty == 1.0);
        assert_eq!(TOKENIZED.score(&counts_of(&PAIRS[2..])).score, 0.0);
    }

    /// Row S24.
    #[test]
    fn a_corpus_is_not_the_mean_of_its_sentences() {
        let sentences = PAIRS.map(|pair| TOKENIZED.score(&counts_of(&[pair])).score);
        let mean = sentences.iter().sum::<f64>() / 3.0;
        assert!((mean - TOKENIZED.score(&counts_of(&PAIRS)).score).abs() > 10.0, "{mean}");
    }

    /// Row S24.
    #[test]
    fn the_order_of_pairs_is_irrelevant_and_identical_text_has_100() {
        let reversed: Vec<_> = PAIRS.iter().rev().copied().collect();
        assert_eq!(counts_of(&reversed), counts_of(&PAIRS));
        let identical: Vec<_> = PAIRS.iter().map(|(_, reference)| (*reference, *reference)).collect();
        assert!((TOKENIZED.score(&counts_of(&identical)).score - 100.0).abs() < 1e-9);
    }

    /// Row S24. `rich`, the hyphen and `text` match once the hyphen is a token.
    #[test]
    fn split_compounds_match_in_parts() {
        let split = Bleu { split_compounds: true, ..TOKENIZED };
        let (hypothesis, reference) = ("a rich-text format", "a rich-text formatted");
        assert_eq!(TOKENIZED.counts(hypothesis, &[reference]).correct, [2, 1, 0, 0]);
        assert_eq!(split.counts(hypothesis, &[reference]).correct, [4, 3, 2, 1]);
        let signature = split.signature(ReferenceCount::Fixed(1));
        assert_eq!(signature, "nrefs:1|case:mixed|eff:no|tok:none+compounds|smooth:none|version:2.6.0");
    }

    /// `str.lower` of Python and `to_lowercase` of Rust both handle the sigma at the end of a word.
    #[test]
    fn lower_case_comes_before_the_tokeniser() {
        let lower = Bleu { lower_case: true, ..TOKENIZED };
        assert_eq!(lower.counts("ΟΔΟΣ Straße", &["οδος STRASSE"]).correct, [1, 0, 0, 0]);
    }

    #[test]
    fn of_two_references_as_close_the_shorter_counts() {
        assert_eq!(TOKENIZED.counts("a b c", &["a b c d", "a b", "a"]).reference_length, 2);
        assert_eq!(TOKENIZED.counts("a b c", &[]).reference_length, 0);
    }
}
