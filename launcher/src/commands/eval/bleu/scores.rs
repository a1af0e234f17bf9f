//! Scores of translations, by any measure.

use std::ops::AddAssign;

use segue_measure::translation::{Bleu, Bootstrap, Chrf, Interval, ReferenceCount, Ter, TranslationMetric};
use serde::Serialize;
use serde_json::{Value, json};

/// A measure with its settings.
pub enum Measure {
    /// BLEU.
    Bleu(Bleu),
    /// chrF or chrF++.
    Chrf(Chrf),
    /// TER.
    Ter(Ter),
}

/// A translation with what it should be.
pub struct Translated<'a> {
    /// The translation.
    pub text: &'a str,
    /// Its references, as many as every other has.
    pub references: Vec<&'a str>,
}

/// What a measure gives.
pub struct Scored {
    /// The measure's name, as `chrF2`.
    pub name: String,
    /// Line of sacrebleu.
    pub line: String,
    /// Where resampled scores lie, where that is asked for.
    pub interval: Option<Interval>,
    /// Score of each sentence, where these are asked for.
    pub sentences: Vec<f64>,
    /// Score, signature and more, for programs.
    pub value: Value,
}

/// What is asked for besides the score of the whole.
#[derive(Clone, Copy)]
pub struct Besides {
    /// Scores of sentences.
    pub sentences: bool,
    /// An interval of confidence.
    pub confidence: bool,
}

impl Measure {
    /// Scores translations.
    pub fn score(&self, texts: &[Translated], besides: Besides) -> Scored {
        match self {
            Self::Bleu(bleu) => {
                let of_sentences = Bleu { effective_order: true, ..*bleu };
                scored((bleu, &of_sentences), texts, besides, |score, signature| {
                    ("BLEU".into(), score.score, score.line(signature))
                })
            }
            Self::Chrf(chrf) => scored((chrf, chrf), texts, besides, |score, signature| {
                (score.name.clone(), score.score, score.line(signature))
            }),
            Self::Ter(ter) => scored((ter, ter), texts, besides, |score, signature| {
                ("TER".into(), score.score, score.line(signature))
            }),
        }
    }
}

/// Scores by a metric and, of sentences, by another one with the same counts. `told`: a score's name, its number, and its line with a signature.
fn scored<M>(
    (metric, of_sentences): (&M, &M),
    texts: &[Translated],
    besides: Besides,
    told: impl Fn(&M::Score, &str) -> (String, f64, String),
) -> Scored
where
    M: TranslationMetric,
    M::Counts: Clone + AddAssign,
    M::Score: Serialize,
{
    let counts: Vec<M::Counts> =
        texts.iter().map(|text| metric.counts(text.text, &text.references)).collect();
    let number = |metric: &M, counts: &M::Counts| told(&metric.score(counts), "").1;
    let whole = metric.score(&counts.iter().cloned().sum());
    let references = ReferenceCount::of(texts.iter().map(|text| text.references.len()));
    let (bootstrap, mut settings) = (Bootstrap::default(), metric.settings(references));
    let interval = match besides.confidence {
        true => bootstrap.interval(&counts, |counts| number(metric, counts)),
        false => None,
    };
    if interval.is_some() {
        settings = settings.with_bootstrap(bootstrap.samples, bootstrap.seed);
    }
    let signature = settings.long();
    let (name, _, line) = told(&whole, &signature);
    let sentences = match besides.sentences {
        true => counts.iter().map(|counts| number(of_sentences, counts)).collect(),
        false => Vec::new(),
    };
    let mut value = json!(whole);
    value["name"] = json!(name);
    value["signature"] = json!(signature);
    if let Some(interval) = interval {
        value["confidence"] = json!(interval);
    }
    if besides.sentences {
        value["sentences"] = json!(sentences);
    }
    Scored { name, line, interval, sentences, value }
}

/// A table of the scores of sentences, a line each behind the names of the measures, with tabs between.
pub fn table(scores: &[Scored]) -> String {
    let names = scores.iter().map(|scored| format!("\t{}", scored.name));
    let mut text = format!("line{}\n", names.collect::<String>());
    let sentences = scores.first().map_or(0, |scored| scored.sentences.len());
    for place in 0..sentences {
        let numbers = scores.iter().map(|scored| format!("\t{:.4}", scored.sentences[place]));
        text += &format!("{}{}\n", place + 1, numbers.collect::<String>());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs() -> Vec<Translated<'static>> {
        let pair = |(text, reference): (&'static str, &'static str)| Translated {
            text,
            references: vec![reference],
        };
        [("the cat sat on the mat", "the cat is on the mat"), ("he reads", "he reads the paper every day")]
            .map(pair)
            .into()
    }

    /// sacrebleu 2.6.0: `corpus_score` and, with effective order, `sentence_score`.
    #[test]
    fn a_text_and_its_sentences_are_scored() {
        let both = Besides { sentences: true, confidence: true };
        let measures = [
            (
                Measure::Bleu(Bleu::default()),
                "BLEU",
                23.948545784847063,
                [37.99178428257963, 13.533528323661276],
            ),
            (
                Measure::Chrf(Chrf::default()),
                "chrF2",
                42.71784354889492,
                [64.5779420625287, 25.394859129946727],
            ),
            (Measure::Ter(Ter::default()), "TER", 41.66666666666667, [16.666666666666664, 66.66666666666666]),
        ];
        for (measure, name, expected, of_sentences) in measures {
            let found = measure.score(&pairs(), both);
            let score = found.value["score"].as_f64().unwrap();
            assert!((score - expected).abs() < 1e-9, "{name}: {score}");
            assert_eq!(found.name, name);
            for (found, expected) in found.sentences.iter().zip(of_sentences) {
                assert!((found - expected).abs() < 1e-9, "{name}: {found}");
            }
            assert!(
                found.interval.is_some() && found.line.contains("|bs:1000|seed:12345|"),
                "{}",
                found.line
            );
            let plain = measure.score(&pairs(), Besides { sentences: false, confidence: false });
            assert!(plain.value.get("sentences").is_none() && !plain.line.contains("seed"));
        }
    }

    #[test]
    fn a_table_has_a_column_for_each_measure() {
        let sentences = Besides { sentences: true, confidence: false };
        let scores = [Measure::Ter(Ter::default()), Measure::Chrf(Chrf::default())]
            .map(|measure| measure.score(&pairs()[..1], sentences));
        let [head, row]: [&str; 2] = table(&scores).leak().lines().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(head, "line\tTER\tchrF2");
        assert!(row.starts_with("1\t16.6667\t"), "{row}");
    }
}
