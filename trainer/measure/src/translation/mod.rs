//! Scores of translated text: BLEU, chrF and TER as sacrebleu 2.6.0 computes them, and the BLEU family of generated text.
//!
//! [`Bleu`], [`Chrf`] and [`Ter`] hold the settings of a metric. Each gives the counts of a sentence
//! ([`TranslationMetric::counts`]), which add up over sentences, shards and ranks in any order, and the score of such a
//! sum ([`TranslationMetric::score`]); a signature names the settings in sacrebleu's form. Scores are in percent.
//!
//! ```
//! use segue_measure::translation::{Bleu, ReferenceCount, TranslationMetric};
//! let bleu = Bleu::default();
//! let counts = bleu.counts("The cat sat on the mat.", &["The cat is on the mat."]);
//! let more = bleu.counts("There is a book on the desk.", &["There is a book on the desk."]);
//! let score = bleu.score(&(counts + more));
//! assert_eq!(format!("{:.1}", score.score), "78.7");
//! assert_eq!(
//!     bleu.signature(ReferenceCount::Fixed(1)),
//!     "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
//! );
//! ```
//!
//! [`self_bleu`] and [`corpus_bleu_against_all`] score each sentence against a whole set, with one [`NgramTable`].

mod against_all;
mod bleu;
mod bleu_counts;
mod bleu_score;
mod bootstrap;
mod categories;
mod chrf;
mod edit_distance;
mod metric;
mod ngrams;
mod pcg64;
mod rules;
mod shifts;
mod signature;
mod ter;
mod tercom;
mod tokenize;

pub use against_all::{METHOD1_EPSILON, SetBleu, corpus_bleu_against_all, self_bleu};
pub use bleu::Bleu;
pub use bleu_counts::{BleuCounts, Smoothing, SmoothingMethod};
pub use bleu_score::BleuScore;
pub use bootstrap::{Bootstrap, Interval};
pub use chrf::{Chrf, ChrfCounts, ChrfScore};
pub use metric::TranslationMetric;
pub use ngrams::{Matcher, NgramTable, TokenIds};
pub use signature::{ReferenceCount, SACREBLEU_VERSION, Signature};
pub use ter::{TerCounts, TerScore};
pub use tercom::Ter;
pub use tokenize::Tokenizer;
