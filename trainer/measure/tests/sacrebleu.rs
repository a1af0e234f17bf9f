//! BLEU, chrF and TER against sacrebleu itself: scores of corpora and sentences, lines and signatures.

mod sacrebleu_text;

use std::path::PathBuf;
use std::process::Command;

use sacrebleu_text::{
    Corpus, long_pairs, multi30k, random_pairs, repetitive_pairs, rotated_pairs, with_varying_references,
};
use segue_measure::translation::{
    Bleu, Chrf, ReferenceCount, SACREBLEU_VERSION, Smoothing, Ter, Tokenizer, TranslationMetric,
};
use segue_skip::{Need, peer_python, skip};
use serde::Deserialize;
use serde_json::{Value, json};

const TOLERANCE: f64 = 1e-9;
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Exit code of the script without sacrebleu.
const NOT_INSTALLED: i32 = 2;

/// A metric on our side; its name and settings on sacrebleu's.
struct Setting {
    ours: Ours,
    metric: &'static str,
    settings: Value,
}

enum Ours {
    Bleu(Bleu),
    Chrf(Chrf),
    Ter(Ter),
}

#[derive(Deserialize)]
struct Answer {
    version: String,
    outcomes: Vec<Outcome>,
    tokenizers: Vec<Vec<String>>,
}

#[derive(Deserialize, Debug)]
struct Outcome {
    score: f64,
    line: String,
    short: String,
    /// Scores of the first sentences.
    sentences: Vec<f64>,
}

fn tokenizers() -> [(Tokenizer, &'static str); 4] {
    [Tokenizer::None, Tokenizer::Mteval13a, Tokenizer::International, Tokenizer::Character]
        .map(|tokenizer| (tokenizer, tokenizer.name()))
}

/// All tokenisers with all kinds of smoothing; the other settings alternate.
fn settings_of_bleu() -> Vec<Setting> {
    let smoothings = [
        (Smoothing::None, "none", Value::Null),
        (Smoothing::DEFAULT_FLOOR, "floor", Value::Null),
        (Smoothing::DEFAULT_ADD_K, "add-k", Value::Null),
        (Smoothing::AddK(0.125), "add-k", json!(0.125)),
        (Smoothing::Exponential, "exp", Value::Null),
    ];
    let mut out = Vec::new();
    for (i, (tokenizer, tokenize)) in tokenizers().into_iter().enumerate() {
        for (j, (smoothing, smooth_method, smooth_value)) in smoothings.iter().enumerate() {
            let (lower_case, effective_order) = ((i + j) % 2 == 1, j % 2 == 1);
            let max_order = if (i, j) == (0, 4) { 6 } else { 4 };
            let ours = Bleu {
                tokenizer,
                lower_case,
                split_compounds: false,
                smoothing: *smoothing,
                max_order,
                effective_order,
            };
            let settings = json!({
                "tokenize": tokenize, "lowercase": lower_case, "effective_order": effective_order,
                "smooth_method": smooth_method, "smooth_value": smooth_value, "max_ngram_order": max_order,
            });
            out.push(Setting { ours: Ours::Bleu(ours), metric: "BLEU", settings });
        }
    }
    out
}

fn settings_of_chrf() -> Vec<Setting> {
    let mut out = Vec::new();
    for (word_order, whitespace, lower_case, eps_smoothing) in [
        (0, false, false, false),
        (2, false, false, false),
        (0, true, false, true),
        (2, true, true, false),
        (2, false, true, true),
    ] {
        let ours = Chrf { word_order, whitespace, lower_case, eps_smoothing, ..Chrf::default() };
        let settings = json!({
            "word_order": word_order, "whitespace": whitespace, "lowercase": lower_case,
            "eps_smoothing": eps_smoothing,
        });
        out.push(Setting { ours: Ours::Chrf(ours), metric: "CHRF", settings });
    }
    let ours = Chrf { char_order: 4, word_order: 1, beta: 3, ..Chrf::default() };
    let settings = json!({"char_order": 4, "word_order": 1, "beta": 3});
    out.push(Setting { ours: Ours::Chrf(ours), metric: "CHRF", settings });
    out
}

fn settings_of_ter() -> Vec<Setting> {
    let all = [
        (false, false, false, false),
        (true, false, true, true),
        (true, true, true, false),
        (false, true, false, true),
    ];
    let setting = |(normalized, no_punct, asian_support, case_sensitive)| Setting {
        ours: Ours::Ter(Ter { normalized, no_punct, asian_support, case_sensitive }),
        metric: "TER",
        settings: json!({
            "normalized": normalized, "no_punct": no_punct, "asian_support": asian_support,
            "case_sensitive": case_sensitive,
        }),
    };
    all.map(setting).into()
}

impl Setting {
    /// Our scores of the corpus and of its first sentences, with lines as sacrebleu prints them.
    fn outcome(&self, corpus: &Corpus, sentences: usize) -> Outcome {
        match &self.ours {
            Ours::Bleu(bleu) => {
                outcome(bleu, corpus, sentences, |score, name| (score.score, score.line(name)))
            }
            Ours::Chrf(chrf) => {
                outcome(chrf, corpus, sentences, |score, name| (score.score, score.line(name)))
            }
            Ours::Ter(ter) => outcome(ter, corpus, sentences, |score, name| (score.score, score.line(name))),
        }
    }
}

fn outcome<M: TranslationMetric>(
    metric: &M,
    corpus: &Corpus,
    sentences: usize,
    describe: impl Fn(&M::Score, &str) -> (f64, String),
) -> Outcome {
    let references: Vec<Vec<&str>> = corpus.references.iter().map(|of| as_strs(of)).collect();
    let pairs = || corpus.hypotheses.iter().map(String::as_str).zip(references.iter().map(Vec::as_slice));
    let count = ReferenceCount::of(references.iter().map(Vec::len));
    let (score, line) = describe(&metric.corpus_score(pairs()), &metric.signature(count));
    let of_sentence =
        |(hypothesis, references)| describe(&metric.sentence_score(hypothesis, references), "").0;
    let sentences = pairs().take(sentences).map(of_sentence).collect();
    Outcome { score, line, short: metric.short_signature(count), sentences }
}

fn as_strs(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

/// The answer of `tests/peers/sacrebleu_scores.py`; `None`, said in a line, without the peers.
fn ask(name: &str, cases: &Value) -> Option<Answer> {
    let python = peer_python("base")?;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sacrebleu_{name}.json"));
    std::fs::write(&path, cases.to_string()).unwrap();
    let script = format!("{ROOT}/tests/peers/sacrebleu_scores.py");
    let output = Command::new(python).arg(script).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NOT_INSTALLED) {
        skip(Need::Peers, said);
        return None;
    }
    assert!(output.status.success(), "{said}");
    let answer: Answer = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer.version, SACREBLEU_VERSION);
    Some(answer)
}

/// Compares the scores of every corpus by every metric with sacrebleu's.
fn compare(name: &str, corpora: &[Corpus], settings: &[Setting]) {
    let each =
        || corpora.iter().enumerate().flat_map(|corpus| settings.iter().map(move |each| (corpus, each)));
    let evaluation = |((number, _), setting): ((usize, &Corpus), &Setting)| {
        let (metric, settings) = (setting.metric, &setting.settings);
        json!({"corpus": number, "metric": metric, "settings": settings})
    };
    let evaluations: Vec<_> = each().map(evaluation).collect();
    let cases = json!({"corpora": corpora, "evaluations": evaluations, "lines": [], "tokenizers": []});
    let Some(answer) = ask(name, &cases) else { return };
    let mut largest = 0.0_f64;
    for (((number, corpus), setting), theirs) in each().zip(&answer.outcomes) {
        let ours = setting.outcome(corpus, theirs.sentences.len());
        let what = format!("corpus {number}, {} {}", setting.metric, setting.settings);
        assert_eq!((&ours.line, &ours.short), (&theirs.line, &theirs.short), "{what}");
        let scores =
            std::iter::once((&ours.score, &theirs.score)).chain(ours.sentences.iter().zip(&theirs.sentences));
        for (sentence, (ours, theirs)) in scores.enumerate() {
            let difference = (ours - theirs).abs();
            assert!(difference <= TOLERANCE, "{what}, {sentence}: {ours}, where {theirs} is right");
            largest = largest.max(difference);
        }
    }
    assert_eq!(answer.outcomes.len(), evaluations.len());
    println!("{name}: {} evaluations, largest difference {largest:e}", evaluations.len());
}

/// Row S24.
#[test]
fn bleu_of_random_pairs_is_that_of_sacrebleu() {
    let pairs = random_pairs(2000, 1);
    let varying = with_varying_references(&random_pairs(300, 2));
    compare("bleu_random", &[pairs, varying], &settings_of_bleu());
}

#[test]
fn chrf_of_random_pairs_is_that_of_sacrebleu() {
    let pairs = random_pairs(2000, 3);
    let varying = with_varying_references(&random_pairs(300, 4));
    compare("chrf_random", &[pairs, varying], &settings_of_chrf());
}

#[test]
fn ter_of_random_pairs_is_that_of_sacrebleu() {
    let pairs = random_pairs(2000, 5);
    let varying = with_varying_references(&random_pairs(300, 6));
    compare("ter_random", &[pairs, varying], &settings_of_ter());
}

/// The beam of the edit distance, and the limits on length, distance and number of shifts.
#[test]
fn ter_at_its_limits_is_that_of_sacrebleu() {
    let corpora = [long_pairs(24, 7), repetitive_pairs(4, 8), rotated_pairs(4, 9)];
    compare("ter_limits", &corpora, &settings_of_ter()[..1]);
}

#[test]
fn scores_of_multi30k_are_those_of_sacrebleu() {
    let Some(corpora) = multi30k() else { return };
    let settings: Vec<_> = settings_of_bleu().into_iter().chain(settings_of_chrf()).collect();
    compare("multi30k", &corpora, &settings);
    compare("multi30k_ter", &corpora, &settings_of_ter()[..2]);
}

/// Every code point of the planes with letters and marks (0, 1 and the start of 14), between letters and digits.
#[test]
fn every_character_is_tokenised_as_by_sacrebleu() {
    let lines: Vec<String> =
        (0..0x2_0000).chain(0xE_0000..0xE_0200).filter_map(char::from_u32).map(around).collect();
    let settings: Vec<_> =
        tokenizers().iter().map(|(_, name)| metric_of("BLEU", json!({"tokenize": name}))).collect();
    let flags = json!({"normalized": true, "no_punct": true, "asian_support": true, "case_sensitive": true});
    let metrics: Vec<_> = settings.into_iter().chain([metric_of("TER", flags)]).collect();
    let cases = json!({"corpora": [], "evaluations": [], "lines": lines, "tokenizers": metrics});
    let Some(answer) = ask("characters", &cases) else { return };
    for ((tokenizer, name), theirs) in tokenizers().into_iter().zip(&answer.tokenizers) {
        for (line, theirs) in lines.iter().zip(theirs) {
            assert_eq!(&tokenizer.tokenize(line), theirs, "{name}: {line:?}");
        }
    }
    let ter = Ter { normalized: true, no_punct: true, asian_support: true, case_sensitive: true };
    for (line, theirs) in lines.iter().zip(&answer.tokenizers[tokenizers().len()]) {
        assert_eq!(&ter.prepare(line), theirs, "TER: {line:?}");
    }
}

fn around(c: char) -> String {
    format!("a{c}b 1{c}2 x{c}3 4{c}y {c}{c}. 5{c}")
}

fn metric_of(metric: &str, settings: Value) -> Value {
    json!({"metric": metric, "settings": settings})
}
