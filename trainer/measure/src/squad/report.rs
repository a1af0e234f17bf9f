use serde::Serialize;

use super::scored::Scored;
use super::threshold::best_threshold;

/// The official scorers' report, in percent, under their names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Exact match.
    pub exact: f64,
    /// Mean F1.
    pub f1: f64,
    /// Number of questions.
    pub total: usize,
    /// Questions without a prediction, which count as wrong.
    pub missing: usize,
    /// The same of questions that have an answer.
    #[serde(rename = "HasAns_exact")]
    pub has_answer_exact: Option<f64>,
    /// See `has_answer_exact`.
    #[serde(rename = "HasAns_f1")]
    pub has_answer_f1: Option<f64>,
    /// See `has_answer_exact`.
    #[serde(rename = "HasAns_total")]
    pub has_answer_total: usize,
    /// The same of questions that have none.
    #[serde(rename = "NoAns_exact")]
    pub no_answer_exact: Option<f64>,
    /// See `no_answer_exact`.
    #[serde(rename = "NoAns_f1")]
    pub no_answer_f1: Option<f64>,
    /// See `no_answer_exact`.
    #[serde(rename = "NoAns_total")]
    pub no_answer_total: usize,
    /// Exact match at the best threshold on the null odds.
    pub best_exact: f64,
    /// That threshold.
    pub best_exact_thresh: f64,
    /// F1 at the best threshold on the null odds.
    pub best_f1: f64,
    /// That threshold.
    pub best_f1_thresh: f64,
}

/// The report over scored questions, with the answer taken back where the null odds are above `threshold` (infinity:
/// nowhere); none where there are no questions.
pub fn summarize(scored: &[Scored], threshold: f64) -> Option<Report> {
    let best_exact = best_threshold(scored, |question| question.exact)?;
    let best_f1 = best_threshold(scored, |question| question.f1)?;
    let decided: Vec<Scored> = scored.iter().map(|question| decide(*question, threshold)).collect();
    let (with, without): (Vec<Scored>, Vec<Scored>) =
        decided.iter().partition(|question| question.answerable);
    let exact = |questions: &[Scored]| percent(questions, |question| question.exact);
    let f1 = |questions: &[Scored]| percent(questions, |question| question.f1);
    Some(Report {
        exact: exact(&decided)?,
        f1: f1(&decided)?,
        total: decided.len(),
        missing: scored.iter().filter(|question| !question.predicted).count(),
        has_answer_exact: exact(&with),
        has_answer_f1: f1(&with),
        has_answer_total: with.len(),
        no_answer_exact: exact(&without),
        no_answer_f1: f1(&without),
        no_answer_total: without.len(),
        best_exact: best_exact.score,
        best_exact_thresh: best_exact.threshold,
        best_f1: best_f1.score,
        best_f1_thresh: best_f1.threshold,
    })
}

fn decide(question: Scored, threshold: f64) -> Scored {
    match question.null_odds > threshold {
        true => {
            let right = f64::from(u8::from(!question.answerable));
            Scored { exact: right, f1: right, ..question }
        }
        false => question,
    }
}

fn percent(questions: &[Scored], score: impl Fn(&Scored) -> f64) -> Option<f64> {
    let sum: f64 = questions.iter().map(score).sum();
    (!questions.is_empty()).then(|| 100.0 * sum / questions.len() as f64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::answer::Rules;
    use super::super::scored::{Solution, score};
    use super::*;

    fn scored(solutions: &[Solution], predictions: &[(&str, &str)], rules: Rules) -> Vec<Scored> {
        let predictions = predictions.iter().map(|(id, text)| (id.to_string(), text.to_string())).collect();
        score(solutions, &predictions, &HashMap::new(), rules)
    }

    /// Row X25.
    #[test]
    fn the_best_gold_answer_counts_and_silence_is_wrong() {
        let solutions = [
            Solution { id: "q1", answers: vec!["Denver Broncos", "the Broncos"] },
            Solution { id: "q2", answers: vec![] },
            Solution { id: "q3", answers: vec![] },
        ];
        let scored = scored(&solutions, &[("q1", "Broncos"), ("q2", "")], Rules::V2);
        assert_eq!(scored.iter().map(|question| question.exact).collect::<Vec<_>>(), [1.0, 1.0, 0.0]);
        let report = summarize(&scored, f64::INFINITY).unwrap();
        assert_eq!((report.total, report.missing), (3, 1));
        assert_eq!((report.has_answer_f1, report.no_answer_f1), (Some(100.0), Some(50.0)));
        assert_eq!(summarize(&[], 0.0), None);
    }
}
