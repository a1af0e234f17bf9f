use std::iter::Sum;

use super::signature::{ReferenceCount, Signature};

/// A metric with its settings: counts of sentences, which add up, and the score of a sum.
pub trait TranslationMetric {
    /// Sufficient statistics of any number of sentences. They are integers, so a sum is the same in any order.
    type Counts: Sum;
    /// Score of a corpus or a sentence, in percent.
    type Score;

    /// Counts of one hypothesis against its references. No reference counts as an empty one.
    fn counts(&self, hypothesis: &str, references: &[&str]) -> Self::Counts;

    /// Score of the sentences whose counts were added up.
    fn score(&self, counts: &Self::Counts) -> Self::Score;

    /// The settings as the items of a signature.
    fn settings(&self, references: ReferenceCount) -> Signature;

    /// Counts of a corpus: pairs of a hypothesis and its references.
    fn corpus_counts<'a>(&self, pairs: impl IntoIterator<Item = (&'a str, &'a [&'a str])>) -> Self::Counts {
        pairs.into_iter().map(|(hypothesis, references)| self.counts(hypothesis, references)).sum()
    }

    /// Score of a corpus, which is not the mean of its sentences' scores.
    fn corpus_score<'a>(&self, pairs: impl IntoIterator<Item = (&'a str, &'a [&'a str])>) -> Self::Score {
        self.score(&self.corpus_counts(pairs))
    }

    /// Score of one sentence. For BLEU, `effective_order` is advisable.
    fn sentence_score(&self, hypothesis: &str, references: &[&str]) -> Self::Score {
        self.score(&self.counts(hypothesis, references))
    }

    /// Signature in sacrebleu's form: `nrefs:1|case:mixed|…|version:2.6.0`.
    fn signature(&self, references: ReferenceCount) -> String {
        self.settings(references).long()
    }

    /// Signature in sacrebleu's short form: `#:1|c:mixed|…|v:2.6.0`.
    fn short_signature(&self, references: ReferenceCount) -> String {
        self.settings(references).short()
    }
}
