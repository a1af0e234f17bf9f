//! The scores of answers, question by question.

use std::collections::HashMap;

use super::answer::{Rules, exact_match, f1, normalized};

/// What is right about a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution<'a> {
    /// The question's id.
    pub id: &'a str,
    /// All answers that people gave; none of a question without an answer.
    pub answers: Vec<&'a str>,
}

/// The scores of the answer to one question, before any threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// 1 where the answer matches a gold answer exactly once both are normalised, else 0.
    pub exact: f64,
    /// The best F1 over the gold answers.
    pub f1: f64,
    /// Whether the question has an answer.
    pub answerable: bool,
    /// How sure the model is that it has none; any scale.
    pub null_odds: f64,
    /// Whether there is a prediction at all.
    pub predicted: bool,
}

/// Scores the answer to each question, in their order; one without a prediction gets 0 whatever the truth is, and null
/// odds that are missing count as 0, as in the official scorer.
pub fn score(
    solutions: &[Solution],
    predictions: &HashMap<String, String>,
    null_odds: &HashMap<String, f64>,
    rules: Rules,
) -> Vec<Scored> {
    let scored = |solution: &Solution| {
        let prediction = predictions.get(solution.id);
        let (exact, f1) = prediction.map_or((0.0, 0.0), |answer| score_one(&solution.answers, answer, rules));
        let null_odds = null_odds.get(solution.id).copied().unwrap_or(0.0);
        Scored {
            exact,
            f1,
            answerable: !solution.answers.is_empty(),
            null_odds,
            predicted: prediction.is_some(),
        }
    };
    solutions.iter().map(scored).collect()
}

/// Exact match and F1, each with the gold answer that it is best with.
fn score_one(answers: &[&str], predicted: &str, rules: Rules) -> (f64, f64) {
    let mut gold: Vec<&str> = answers.to_vec();
    if rules == Rules::V2 {
        gold.retain(|answer| !normalized(answer).is_empty());
        if gold.is_empty() {
            gold.push("");
        }
    }
    let exact = gold.iter().any(|gold| exact_match(gold, predicted));
    let f1 = gold.iter().map(|gold| f1(gold, predicted, rules)).fold(0.0, f64::max);
    (f64::from(u8::from(exact)), f1)
}
