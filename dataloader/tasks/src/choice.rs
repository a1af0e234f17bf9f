//! User-supplied multiple-choice questions: JSON lines of `context`, `question`, `options` and `answer`.

use std::path::Path;

use segue_data_error::DataError;
use serde::Deserialize;
use serde_json::Value;

use super::data::{Split, TaskData};
use super::example::Kind;
use super::open::{Request, first_there, named, nothing_read};
use super::packed::read_unpacked;
use super::questions::{Article, Question, of_letter, split_of};
use super::table::{lines, without_bom};

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
    id: Option<String>,
    group: Option<String>,
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
    let mut sieve = request.sieve();
    let mut articles = Vec::new();
    for (line, text) in lines(path, without_bom(&bytes), &mut sieve)? {
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
    let answer = line.answer.map(|answer| {
        let place = place(&answer, &line.options);
        place.ok_or_else(|| format!("answer {answer} is not one of its {} options", line.options.len()))
    });
    let question = Question {
        index: line.id.unwrap_or_else(|| number.to_string()),
        text: line.question,
        options: line.options.clone(),
        answer: answer.transpose()?,
        group: line.group,
    };
    Ok(Article { path: path.into(), line: at, passage: line.context, questions: vec![question] })
}

fn place(answer: &Value, options: &[String]) -> Option<u32> {
    match answer {
        Value::Number(number) => number.as_u64().filter(|n| *n < options.len() as u64).map(|n| n as u32),
        Value::String(text) => match options.iter().position(|option| option == text) {
            Some(place) => Some(place as u32),
            None => of_letter(text, options.len()),
        },
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
        let why =
            article("a".as_ref(), 1, 0, r#"{"context": "c", "options": ["x"], "answer": 1.5}"#).unwrap_err();
        assert_eq!(why, "answer 1.5 is not one of its 1 options");
    }
}
