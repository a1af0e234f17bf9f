//! Every measure on a thousand random cases, against what public programs say: `tests/peers/make_metric_cases.py` made
//! the file.

use std::collections::HashMap;
use std::path::Path;

use segue_measure::squad::{self, Rules, Scored, Solution};
use segue_measure::{
    accuracy, binary_scores, entity_scores, err_at, macro_f1, matthews_correlation, ndcg_at, pearson,
    spearman,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

const TOLERANCE: f64 = 1e-9;
const CASES: usize = 1000;

fn cases<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/metrics/cases.json.zst");
    let text = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    let mut kinds: HashMap<String, serde_json::Value> = serde_json::from_slice(&text).unwrap();
    let cases: Vec<T> = serde_json::from_value(kinds.remove(kind).unwrap()).unwrap();
    assert_eq!(cases.len(), CASES);
    cases
}

#[track_caller]
fn agree(ours: f64, theirs: f64, what: &str) {
    assert!((ours - theirs).abs() <= TOLERANCE, "{what}: {ours}, where {theirs} is right");
}

/// JSON has null where the package says NaN.
#[track_caller]
fn agree_or_nan(ours: f64, theirs: Option<f64>, what: &str) {
    match theirs {
        Some(theirs) => agree(ours, theirs, what),
        None => assert!(ours.is_nan(), "{what}: {ours}, where NaN is right"),
    }
}

#[derive(Deserialize)]
struct Classes {
    gold: Vec<u32>,
    predicted: Vec<u32>,
    accuracy: f64,
    precision: f64,
    recall: f64,
    f1: f64,
    macro_f1: f64,
    matthews: f64,
}

/// Row X22.
#[test]
fn scores_of_classes_are_those_of_scikit_learn() {
    for case in cases::<Classes>("classes") {
        let scores = binary_scores(&case.gold, &case.predicted, 1);
        agree(accuracy(&case.gold, &case.predicted), case.accuracy, "accuracy");
        agree(scores.precision, case.precision, "precision");
        agree(scores.recall, case.recall, "recall");
        agree(scores.f1, case.f1, "F1");
        agree(macro_f1(&case.gold, &case.predicted), case.macro_f1, "macro F1");
        agree(matthews_correlation(&case.gold, &case.predicted), case.matthews, "Matthews' correlation");
    }
}

#[derive(Deserialize)]
struct Correlation {
    gold: Vec<f64>,
    predicted: Vec<f64>,
    pearson: Option<f64>,
    spearman: Option<f64>,
}

/// Row X23.
#[test]
fn correlations_are_those_of_scipy() {
    for case in cases::<Correlation>("correlation") {
        agree_or_nan(pearson(&case.gold, &case.predicted), case.pearson, "Pearson");
        agree_or_nan(spearman(&case.gold, &case.predicted), case.spearman, "Spearman");
    }
}

#[derive(Deserialize)]
struct Ranking {
    ranked: Vec<u32>,
    highest: u32,
    k: usize,
    ndcg: f64,
    err: f64,
}

/// Row X29.
#[test]
fn ranking_scores_are_those_of_the_oracles() {
    for case in cases::<Ranking>("ranking") {
        agree(ndcg_at(case.k, &case.ranked, &case.ranked), case.ndcg, "NDCG");
        agree(err_at(case.k, &case.ranked, case.highest), case.err, "ERR");
    }
}

#[derive(Deserialize)]
struct Tagging {
    gold: Vec<String>,
    predicted: Vec<String>,
    precision: f64,
    recall: f64,
    f1: f64,
}

#[test]
fn entity_scores_are_those_of_seqeval() {
    fn split(sentences: &[String]) -> Vec<Vec<&str>> {
        sentences.iter().map(|tags| tags.split(' ').collect()).collect()
    }
    for case in cases::<Tagging>("tagging") {
        let found = entity_scores(&split(&case.gold), &split(&case.predicted)).unwrap();
        agree(found.scores.precision, case.precision, "precision");
        agree(found.scores.recall, case.recall, "recall");
        agree(found.scores.f1, case.f1, "F1");
    }
}

#[derive(Deserialize)]
struct Squad {
    answers: Vec<Vec<String>>,
    predictions: Vec<String>,
    odds: Vec<f64>,
    threshold: f64,
    v1: Option<FirstReport>,
    v2: HashMap<String, f64>,
}

#[derive(Deserialize)]
struct FirstReport {
    exact_match: f64,
    f1: f64,
}

impl Squad {
    fn scored(&self, rules: Rules) -> Vec<Scored> {
        let ids: Vec<String> = (0..self.answers.len()).map(|place| format!("q{place}")).collect();
        let solutions: Vec<Solution> = ids
            .iter()
            .zip(&self.answers)
            .map(|(id, answers)| Solution { id, answers: answers.iter().map(String::as_str).collect() })
            .filter(|solution| rules == Rules::V2 || !solution.answers.is_empty())
            .collect();
        let predictions = ids.iter().cloned().zip(self.predictions.iter().cloned()).collect();
        let odds = ids.iter().cloned().zip(self.odds.iter().copied()).collect();
        squad::score(&solutions, &predictions, &odds, rules)
    }
}

/// Row X25.
#[test]
fn answers_get_the_scores_of_the_official_programs() {
    for case in cases::<Squad>("squad") {
        if let Some(theirs) = &case.v1 {
            let ours = squad::summarize(&case.scored(Rules::V1), f64::INFINITY).unwrap();
            agree(ours.exact, theirs.exact_match, "exact match of 1.1");
            agree(ours.f1, theirs.f1, "F1 of 1.1");
        }
        let ours = squad::summarize(&case.scored(Rules::V2), case.threshold).unwrap();
        let ours: HashMap<String, Option<f64>> =
            serde_json::from_value(serde_json::to_value(ours).unwrap()).unwrap();
        for (name, theirs) in &case.v2 {
            // Where it is best to answer nothing, the program's threshold of 0 says so of probabilities alone.
            let nothing = name.ends_with("_thresh") && *theirs == 0.0;
            match nothing {
                true => assert!(case.odds.iter().all(|odds| *odds > ours[name].unwrap())),
                false => agree(ours[name].unwrap(), *theirs, name),
            }
        }
    }
}
