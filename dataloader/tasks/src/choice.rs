//! User-supplied multiple-choice questions: JSON lines of `context`, `question`, `options` and `answer`.

use std::path::Path;

use segue_data_error::{DataError, without_mark};
use serde::Deserialize;
use serde_json::Value;

use super::data::{Split, TaskData};
use super::example::Kind;
use super::json::Name;
use super::labels::is_missing;
use super::packed::read_unpacked;
use super::questions::{Article, Question, of_letter, of_number, of_text, split_of};
use super::request::{Request, first_there, named, nothing_read};
use super::table::{cell_of, lines};

const TRAIN: &[&str] = &["train"];
const DEV: &[&str] = &["dev", "valid", "validation"];
const TEST: &[&str] = &["test"];
const EXTENSIONS: &[&str] = &["jsonl", "json", "jsonl.gz", "jsonl.zst", "parquet", "arrow"];

#[derive(Deserialize)]
struct ChoiceLine {
    #[serde(alias = "passage", alias = "article")]
    context: String,
    #[serde(default)]
    question: String,
    #[serde(alias = "choices")]
    options: Vec<String>,
    /// Number of the right option from 0, its text or its letter.
    #[serde(alias = "label")]
    answer: Option<Value>,
    id: Option<Name>,
    group: Option<Name>,
}

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    let mut data = nothing_read(request, Kind::Choice, Vec::new());
    let folder = request.folder();
    let find = |stems: &[&str]| {
        let names = named(stems, EXTENSIONS);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        first_there(folder, &names).ok_or_else(|| request.missing(folder, &names))
    };
    if request.splits.train {
        data.train = Some(read(request, "train", &find(TRAIN)?)?);
    }
    if request.splits.dev {
        data.dev.push(read(request, "dev", &find(DEV)?)?);
    }
    if let (true, Ok(path)) = (request.splits.test, find(TEST)) {
        data.test.push(read(request, "test", &path)?);
    }
    Ok(data)
}

fn read(request: &Request<'_>, name: &str, path: &Path) -> Result<Split, DataError> {
    let bytes = read_unpacked(path)?;
    let mut sieve = request.sieve_of(name);
    let mut articles = Vec::new();
    for (line, text) in lines(path, without_mark(&bytes), &mut sieve)? {
        let article =
            article(path, line, articles.len(), text).map_err(|why| DataError::line(path, line, why));
        articles.extend(sieve.keep(article)?);
    }
    split_of(request, name, path, &articles, blake3::hash(&bytes).to_hex().to_string(), sieve)
}

fn article(path: &Path, at: u64, number: usize, text: &str) -> Result<Article, String> {
    let line: ChoiceLine = serde_json::from_str(text).map_err(|e| {
        format!("it is not a JSON object with `context`, `question`, `options` and `answer`: {e}")
    })?;
    let question = Question {
        index: line.id.map_or_else(|| number.to_string(), String::from),
        text: line.question,
        answer: line.answer.as_ref().map_or(Ok(None), |answer| told(answer, &line.options)),
        written: cell_of(line.answer),
        options: line.options,
        group: line.group.map(String::from),
    };
    Ok(Article { path: path.into(), line: at, passage: line.context, questions: vec![question] })
}

/// The place of the right option; none where a mark for no answer stands.
fn told(answer: &Value, options: &[String]) -> Result<Option<u32>, String> {
    match place(answer, options) {
        None if is_missing(&cell_of(Some(answer.clone()))) => Ok(None),
        None => Err(format!("answer {answer} is not one of its {} options", options.len())),
        place => Ok(place),
    }
}

fn place(answer: &Value, options: &[String]) -> Option<u32> {
    let number = || of_number(answer, options.len());
    match answer {
        // A number that marks what has no answer is none of the options.
        Value::Number(_) => {
            let text = || of_text(answer, options).filter(|_| !is_missing(&answer.to_string()));
            number().or_else(text)
        }
        Value::String(text) => {
            of_text(answer, options).or_else(|| of_letter(text, options.len())).or_else(number)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_numbers_texts_or_letters() {
        let options = ["B".to_string(), "x".into(), "y".into()];
        let of = |answer: Value| place(&answer, &options);
        assert_eq!((of(2.into()), of("x".into()), of("C".into())), (Some(2), Some(1), Some(2)));
        // A text that is an option comes before a letter.
        assert_eq!((of("B".into()), of(3.into()), of("D".into())), (Some(0), None, None));
        // As tables with gaps have numbers, and as texts.
        assert_eq!((of(2.0.into()), of("1".into()), of("3".into())), (Some(2), Some(1), None));
        assert_eq!(place(&20.into(), &["10".into(), "20".into()]), Some(1));
        let why = told(&serde_json::json!(1.5), &options[..1]).unwrap_err();
        assert_eq!(why, "answer 1.5 is not one of its 1 options");
    }

    #[test]
    fn marks_for_no_answer_are_none_where_they_are_no_option() {
        let options = ["x".to_string(), "-1".into()];
        for mark in [Value::Null, "".into(), (-1).into(), (-1.0).into(), (-100).into()] {
            assert_eq!(told(&mark, &options), Ok(None), "{mark}");
        }
        assert_eq!(
            (told(&"-1".into(), &options), told(&"-1".into(), &options[..1])),
            (Ok(Some(1)), Ok(None))
        );
        assert!(told(&2.into(), &options).is_err());
    }

    #[test]
    fn names_and_groups_may_be_whole_numbers() {
        let line = r#"{"context": "c", "options": ["x", "y"], "id": 9007199254740993, "group": 7}"#;
        let question = &article("a".as_ref(), 1, 0, line).unwrap().questions[0];
        assert_eq!((question.index.as_str(), question.group.as_deref()), ("9007199254740993", Some("7")));
    }
}
