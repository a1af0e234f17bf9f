//! DREAM: one JSON file per split, a list of dialogues with their questions.

use std::path::Path;

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::data::{Split, TaskData};
use super::example::Kind;
use super::json::{Lines, Name, without_place};
use super::labels::is_missing;
use super::questions::{Article, Question, of_number, of_text, split_of};
use super::request::{Request, first_there, nothing_read};
use super::sieve::Sieve;
use super::table::cell_of;

/// A dialogue: its turns, its questions, what it is called.
type Dialogue<'a> = (Vec<String>, Vec<&'a RawValue>, Name);

#[derive(Deserialize)]
struct DreamQuestion {
    question: String,
    choice: Vec<String>,
    /// The right choice: its text, or its number from 0.
    answer: Option<Value>,
}

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    let mut data = nothing_read(request, Kind::Choice, Vec::new());
    let folder = request.folder();
    let find = |name: &str| first_there(folder, &[name]).ok_or_else(|| request.missing(folder, &[name]));
    if request.splits.train {
        data.train = Some(read(request, "train", &find("train.json")?)?);
    }
    if request.splits.dev {
        data.dev.push(read(request, "dev", &find("dev.json")?)?);
    }
    if let (true, Ok(path)) = (request.splits.test, find("test.json")) {
        data.test.push(read(request, "test", &path)?);
    }
    Ok(data)
}

fn read(request: &Request<'_>, name: &str, path: &Path) -> Result<Split, DataError> {
    let bytes = read_regular(path).map_err(|e| DataError::read(path, e))?;
    let mut sieve = request.sieve_of(name);
    let articles = articles(path, &bytes, &mut sieve)?;
    split_of(request, name, path, &articles, blake3::hash(&bytes).to_hex().to_string(), sieve)
}

fn articles(path: &Path, bytes: &[u8], sieve: &mut Sieve) -> Result<Vec<Article>, DataError> {
    let bytes = without_mark(bytes);
    let dialogues: Vec<&RawValue> = serde_json::from_slice(bytes).map_err(|e| {
        DataError::line(
            path,
            e.line().max(1) as u64,
            format!("it is not a list of dialogues in DREAM's layout: {e}"),
        )
    })?;
    let mut articles = Vec::with_capacity(dialogues.len());
    let mut lines = Lines::of(bytes);
    for dialogue in dialogues {
        let line = lines.next(dialogue);
        let read: Result<Dialogue<'_>, _> = serde_json::from_str(dialogue.get());
        let read = read.map_err(|e| {
            let why = format!("the dialogue is not in DREAM's layout: {}", without_place(&e));
            DataError::line(path, line, why)
        });
        if let Some(dialogue) = sieve.keep(read)? {
            articles.push(article(path, line, dialogue, sieve)?);
        }
    }
    Ok(articles)
}

fn article(
    path: &Path,
    line: u64,
    (turns, asked, id): Dialogue<'_>,
    sieve: &mut Sieve,
) -> Result<Article, DataError> {
    let id = String::from(id);
    let mut questions = Vec::with_capacity(asked.len());
    for (number, asked) in asked.into_iter().enumerate() {
        let index = format!("{id}-{number}");
        let read = serde_json::from_str::<DreamQuestion>(asked.get()).map_err(|e| {
            let why = format!("it is not a question in DREAM's layout: {}", without_place(&e));
            DataError::record(path, format!("line {line}, question {index}"), why)
        });
        let Some(asked) = sieve.keep(read)? else { continue };
        let answer = asked.answer.as_ref().map_or(Ok(None), |answer| told(answer, &asked.choice));
        let DreamQuestion { question: text, choice: options, answer: written } = asked;
        let written = cell_of(written);
        questions.push(Question { index, text, options, answer, written, group: None });
    }
    Ok(Article { path: path.into(), line, passage: turns.join(" "), questions })
}

/// The place of the right choice; none where a mark for no answer stands. Answers are texts here: a number counts choices only
/// where it is not the text of another.
fn told(answer: &Value, choices: &[String]) -> Result<Option<u32>, String> {
    let number = answer.is_number().then(|| of_number(answer, choices.len())).flatten();
    let shown = cell_of(Some(answer.clone()));
    match (number, of_text(answer, choices)) {
        (None, _) if answer.is_number() && is_missing(&shown) => Ok(None),
        (Some(number), Some(text)) if number != text => Err(format!(
            "the answer {shown} may be the number of a choice or the text of another\nhint: write the text of the right \
             choice, in quotes"
        )),
        (None, None) if is_missing(&shown) => Ok(None),
        (None, None) => Err(format!("the answer `{shown}` is not one of its choices")),
        (number, text) => Ok(text.or(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, skip: bool) -> Result<(Vec<Article>, u64), DataError> {
        let mut sieve = Sieve::new(skip);
        let articles = articles("dev.json".as_ref(), text.as_bytes(), &mut sieve)?;
        Ok((articles, sieve.done().count))
    }

    #[test]
    fn dialogues_are_read_with_their_questions() {
        let text = r#"[[["M: Hi.", "W: Hello."], [{"question": "Who?", "choice": ["x", "y"], "answer": "y"}], "1-2"],
            [["M: Hi."], [{"question": "Who?", "choice": ["x", "y"], "answer": ""}], 9007199254740993]]"#;
        let (articles, _) = read(text, false).unwrap();
        assert_eq!(articles[0].passage, "M: Hi. W: Hello.");
        assert_eq!(articles[0].questions[0].answer, Ok(Some(1)));
        assert_eq!(articles[0].questions[0].index, "1-2-0");
        assert_eq!(articles[1].questions[0].answer, Ok(None));
        assert_eq!(articles[1].questions[0].index, "9007199254740993-0");
    }

    #[test]
    fn a_bad_question_costs_itself_alone_and_a_bad_dialogue_can_be_left_out() {
        let good = r#"{"question": "Who?", "choice": ["x", "y"], "answer": "y"}"#;
        let text = format!(
            r#"[[["M: Hi."], [{good}, {{"question": 1}}, {}], "1-2"], 3]"#,
            good.replace("\"y\"}", "\"z\"}")
        );
        let error = read(&text, false).unwrap_err().to_string();
        assert!(error.starts_with("dev.json, line 1, question 1-2-1: it is not a question in"), "{error}");
        let (articles, left_out) = read(&text, true).unwrap();
        assert_eq!((articles.len(), left_out), (1, 2));
        let told: Vec<_> =
            articles[0].questions.iter().map(|q| (q.index.as_str(), q.answer.clone())).collect();
        let why = Err("the answer `z` is not one of its choices".to_string());
        assert_eq!(told, [("1-2-0", Ok(Some(1))), ("1-2-2", why)]);
        assert!(read("{}", true).unwrap_err().to_string().contains("not a list of dialogues"));
    }

    #[test]
    fn answers_are_texts_or_numbers_that_can_mean_one_choice_alone() {
        let of = |answer: Value, choices: [&str; 3]| told(&answer, &choices.map(String::from));
        let words = ["x", "y", "z"];
        for answer in [Value::from(2), 2.0.into(), "z".into()] {
            assert_eq!(of(answer.clone(), words), Ok(Some(2)), "{answer}");
        }
        for answer in [Value::from(3), 1.5.into(), "2".into(), true.into()] {
            assert!(of(answer.clone(), words).unwrap_err().contains("is not one of its choices"), "{answer}");
        }
        assert_eq!((of((-1).into(), words), of("".into(), words)), (Ok(None), Ok(None)));
        assert_eq!(of((-1).into(), ["-1", "0", "1"]), Ok(None));
        let digits = ["1", "2", "30"];
        assert_eq!((of("2".into(), digits), of(30.into(), digits)), (Ok(Some(1)), Ok(Some(2))));
        assert_eq!(of(1.into(), ["0", "1", "2"]), Ok(Some(1)));
        assert!(of(1.into(), digits).unwrap_err().contains("may be the number of a choice or the text"));
    }
}
