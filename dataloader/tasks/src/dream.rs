//! DREAM: one JSON file per split, a list of dialogues with their questions.

use std::path::Path;

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::data::{Split, TaskData};
use super::example::Kind;
use super::json::{Lines, Name, without_place};
use super::labels::is_missing;
use super::open::{Request, first_there, nothing_read};
use super::questions::{Article, Question, split_of};
use super::sieve::Sieve;

/// A dialogue: its turns, its questions, what it is called.
type Dialogue<'a> = (Vec<String>, Vec<&'a RawValue>, Name);

#[derive(Deserialize)]
struct DreamQuestion {
    question: String,
    choice: Vec<String>,
    /// The right choice, in words.
    answer: Option<String>,
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
        let place = |answer: &String| match asked.choice.iter().position(|choice| choice == answer) {
            None if is_missing(answer) => Ok(None),
            None => Err(format!("the answer `{answer}` is not one of its choices")),
            place => Ok(place.map(|place| place as u32)),
        };
        let answer = asked.answer.as_ref().map_or(Ok(None), place);
        questions.push(Question { index, text: asked.question, options: asked.choice, answer, group: None });
    }
    Ok(Article { path: path.into(), line, passage: turns.join(" "), questions })
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
}
