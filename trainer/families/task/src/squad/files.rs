use std::collections::HashMap;
use std::path::Path;

use segue_kernels::TrainError;
use segue_measure::squad::{Report, Rules, Solution, score, summarize};
use segue_publish::make_own_folder;
use segue_tasks::squad::Questions;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::decode::DecodedQuestion;

/// Writes `predictions.json`, `nbest_predictions.json` and `null_odds.json` into `folder`, which is made where it is
/// not there and may be no link; each file is there whole or not at all. A question whose null odds are above `threshold` gets the empty
/// prediction; none does where that is infinite, as the reference has it.
pub fn write_answers(folder: &Path, decoded: &[DecodedQuestion], threshold: f64) -> Result<(), TrainError> {
    make_own_folder(folder).map_err(|source| TrainError::Write { path: folder.into(), source })?;
    write(folder, "predictions.json", decoded, |question| prediction(question, threshold))?;
    write(folder, "nbest_predictions.json", decoded, |question| &question.candidates)?;
    write(folder, "null_odds.json", decoded, |question| question.null_odds)
}

/// The scores of the answers to the questions that it is told of what is right, with those taken back whose null odds
/// are above `threshold`; none where there are none.
pub fn report(
    questions: &Questions,
    decoded: &[DecodedQuestion],
    rules: Rules,
    threshold: f64,
) -> Option<Report> {
    let told = questions.questions.iter().filter(|question| question.impossible.is_some());
    let solutions: Vec<Solution> = told
        .map(|question| Solution {
            id: &question.id,
            answers: question.answers.iter().map(|answer| answer.text.as_str()).collect(),
        })
        .collect();
    let by_id =
        |question: &DecodedQuestion| (question.id.clone(), prediction(question, f64::INFINITY).into());
    let predictions: HashMap<String, String> = decoded.iter().map(by_id).collect();
    let null_odds = decoded.iter().map(|question| (question.id.clone(), question.null_odds)).collect();
    summarize(&score(&solutions, &predictions, &null_odds, rules), threshold)
}

/// The best answer, or none where the null odds are above the threshold.
fn prediction(question: &DecodedQuestion, threshold: f64) -> &str {
    match question.candidates.first() {
        Some(best) if question.null_odds <= threshold || threshold.is_infinite() => &best.text,
        _ => "",
    }
}

fn write<'d, T: Serialize>(
    folder: &Path,
    name: &str,
    decoded: &'d [DecodedQuestion],
    value: impl Fn(&'d DecodedQuestion) -> T,
) -> Result<(), TrainError> {
    let by_id = InOrder(decoded.iter().map(|question| (question.id.as_str(), value(question))).collect());
    let text = serde_json::to_string_pretty(&by_id).unwrap_or_default() + "\n";
    Ok(segue_publish::write_file(&folder.join(name), text.as_bytes())?)
}

/// A JSON object with its keys in this order, which is the file's.
struct InOrder<'d, T>(Vec<(&'d str, T)>);

impl<T: Serialize> Serialize for InOrder<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::decode::Candidate;
    use super::*;

    fn decoded(id: &str, text: &str, null_odds: f64) -> DecodedQuestion {
        let candidate =
            Candidate { text: text.into(), probability: 1.0, start_log_prob: -0.5, end_log_prob: -0.25 };
        DecodedQuestion { id: id.into(), candidates: vec![candidate], null_odds }
    }

    #[test]
    fn files_hold_the_questions_in_order_and_answers_up_to_the_threshold() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("answers");
        write_answers(&folder, &[decoded("z", "one", -1.0), decoded("a", "two", 3.0)], 0.5).unwrap();
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(text("predictions.json"), "{\n  \"z\": \"one\",\n  \"a\": \"\"\n}\n");
        assert_eq!(text("null_odds.json"), "{\n  \"z\": -1.0,\n  \"a\": 3.0\n}\n");
        let nbest: serde_json::Value = serde_json::from_str(&text("nbest_predictions.json")).unwrap();
        assert_eq!(nbest["a"][0]["text"], "two");
        assert_eq!(nbest["a"][0]["end_log_prob"], -0.25);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        write_answers(&folder, &[decoded("a", "two", 3.0)], f64::INFINITY).unwrap();
        assert_eq!(text("predictions.json"), "{\n  \"a\": \"two\"\n}\n");
    }

    #[test]
    fn answers_are_written_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (other, link) = (dir.path().join("other"), dir.path().join("squad2-dev"));
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let error = write_answers(&link, &[decoded("a", "two", 3.0)], 0.5).unwrap_err();
        assert!(error.to_string().ends_with("squad2-dev: it is a symbolic link"), "{error}");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }
}
