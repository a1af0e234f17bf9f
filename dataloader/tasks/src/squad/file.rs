use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use segue_data_error::DataError;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::records::GoldAnswer;
use crate::json::{Lines, without_place};
use crate::sieve::Sieve;
use crate::table::without_bom;

/// How many characters an answer may stand away from where the file says.
const NEARBY: usize = 32;

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    data: Vec<Article<'a>>,
}

#[derive(Deserialize)]
struct Article<'a> {
    #[serde(default)]
    title: String,
    #[serde(borrow)]
    paragraphs: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawParagraph<'a> {
    context: String,
    #[serde(borrow)]
    qas: Vec<&'a RawValue>,
}

impl<'a> RawParagraph<'a> {
    /// A paragraph, or why it cannot be used.
    fn read(raw: &'a RawValue) -> Result<Self, String> {
        let read: Self = serde_json::from_str(raw.get())
            .map_err(|e| format!("it is not a SQuAD paragraph: {}", without_place(&e)))?;
        if read.context.trim().is_empty() { Err("its context is empty".into()) } else { Ok(read) }
    }
}

#[derive(Deserialize)]
struct RawQuestion {
    id: String,
    question: String,
    #[serde(default)]
    answers: Vec<RawAnswer>,
    is_impossible: Option<bool>,
}

#[derive(Deserialize)]
struct RawAnswer {
    text: String,
    /// In characters.
    answer_start: i64,
}

/// A paragraph of a file with the questions that can be used.
pub(super) struct ReadParagraph {
    pub(super) context: String,
    pub(super) questions: Vec<ReadQuestion>,
    /// The line it begins on.
    pub(super) line: u64,
    /// What errors call it beside that.
    name: String,
}

impl ReadParagraph {
    /// What errors call a part of it that begins on `line`.
    pub(super) fn place(&self, line: u64) -> String {
        format!("line {line}, {}", self.name)
    }
}

/// A question of a file.
pub(super) struct ReadQuestion {
    /// The line it begins on.
    pub(super) line: u64,
    pub(super) id: String,
    pub(super) text: String,
    pub(super) answers: Vec<GoldAnswer>,
    pub(super) impossible: Option<bool>,
}

/// How far a file has been read.
struct Seen<'a> {
    lines: Lines<'a>,
    ids: HashSet<String>,
}

/// What was read, and what was left out on the way.
pub(super) struct FileReader<'a> {
    pub(super) path: &'a Path,
    /// Whether it must be told of every question what is right.
    pub(super) labelled: bool,
    pub(super) sieve: Sieve,
    pub(super) moved: u64,
}

impl FileReader<'_> {
    /// The paragraphs of a file that have questions that can be used.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Vec<ReadParagraph>, DataError> {
        let bytes = without_bom(bytes);
        let file: File = serde_json::from_slice(bytes).map_err(|e| {
            DataError::foreign(
                self.path,
                format!("it is not a SQuAD file: {e}\nhint: docs/formats.md describes the layout"),
            )
        })?;
        let mut seen = Seen { lines: Lines::of(bytes), ids: HashSet::new() };
        let mut read = Vec::new();
        for (article, entry) in file.data.into_iter().enumerate() {
            for (number, raw) in entry.paragraphs.into_iter().enumerate() {
                let name = format!("article {} (`{}`), paragraph {}", article + 1, entry.title, number + 1);
                let line = seen.lines.next(raw);
                let mut paragraph =
                    ReadParagraph { context: String::new(), questions: Vec::new(), line, name };
                match RawParagraph::read(raw) {
                    Ok(raw) => {
                        paragraph.context = raw.context;
                        self.read_questions(&mut paragraph, raw.qas, &mut seen)?;
                    }
                    Err(why) => self.refuse(&paragraph.place(line), &why)?,
                }
                if !paragraph.questions.is_empty() {
                    read.push(paragraph);
                }
            }
        }
        Ok(read)
    }

    fn read_questions<'a>(
        &mut self,
        paragraph: &mut ReadParagraph,
        questions: Vec<&'a RawValue>,
        seen: &mut Seen<'a>,
    ) -> Result<(), DataError> {
        let starts: Vec<usize> = paragraph.context.char_indices().map(|(at, _)| at).collect();
        for (number, raw) in questions.into_iter().enumerate() {
            let line = seen.lines.next(raw);
            let (name, question) = match serde_json::from_str::<RawQuestion>(raw.get()) {
                Ok(raw) if seen.ids.insert(raw.id.clone()) => {
                    (format!("`{}`", raw.id), self.check(&paragraph.context, &starts, line, raw))
                }
                Ok(raw) => (format!("`{}`", raw.id), Err("another question has the same id".into())),
                Err(e) => {
                    let why = format!("it is not a SQuAD question: {}", without_place(&e));
                    ((number + 1).to_string(), Err(why))
                }
            };
            match question {
                Ok(question) => paragraph.questions.push(question),
                Err(why) => self.refuse(&format!("{}, question {name}", paragraph.place(line)), &why)?,
            }
        }
        Ok(())
    }

    /// A question, or why it cannot be used.
    fn check(
        &mut self,
        context: &str,
        starts: &[usize],
        line: u64,
        raw: RawQuestion,
    ) -> Result<ReadQuestion, String> {
        if raw.question.trim().is_empty() {
            return Err("its text is empty".into());
        }
        let (mut answers, mut moved) = (Vec::new(), 0);
        for answer in raw.answers {
            let found = locate(context, starts, &answer);
            moved += u64::from(found.as_ref().is_some_and(|(_, moved)| *moved));
            answers.push(GoldAnswer { text: answer.text, bytes: found.map(|(bytes, _)| bytes) });
        }
        let impossible = match raw.is_impossible {
            Some(true) if !answers.is_empty() => {
                return Err("it has answers, and is_impossible is true".into());
            }
            Some(true) => Some(true),
            _ if !answers.is_empty() => Some(false),
            _ if self.labelled => return Err("it has no answers, and is_impossible is not true".into()),
            _ => None,
        };
        if impossible == Some(false) && answers.iter().all(|answer| answer.bytes.is_none()) {
            return Err(format!(
                "no answer stands in the context where answer_start says or within {NEARBY} \
                                characters of there"
            ));
        }
        self.moved += moved;
        Ok(ReadQuestion { line, id: raw.id, text: raw.question, answers, impossible })
    }

    /// Counts what cannot be used, or fails.
    pub(super) fn refuse(&mut self, place: &str, why: &str) -> Result<(), DataError> {
        self.sieve.refuse(DataError::record(self.path, place, why))
    }
}

/// Where an answer stands in the context, without white space at its ends, and whether that is not where the file says:
/// then it is the nearest place that is close enough. `starts`: the byte each character of the context begins at.
fn locate(context: &str, starts: &[usize], answer: &RawAnswer) -> Option<(Range<u32>, bool)> {
    let text = answer.text.trim();
    if text.is_empty() {
        return None;
    }
    let blanks = answer.text.chars().take_while(|c| c.is_whitespace()).count();
    let wanted = usize::try_from(answer.answer_start).ok()?.checked_add(blanks)?;
    let stands =
        |character: &usize| starts.get(*character).is_some_and(|at| context[*at..].starts_with(text));
    let nearest = (0..=NEARBY)
        .flat_map(|distance| [wanted.checked_sub(distance), wanted.checked_add(distance)])
        .flatten()
        .find(stands)?;
    let begin = starts[nearest];
    Some((begin as u32..(begin + text.len()) as u32, nearest != wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Skipped;

    fn read(json: &str, skip_bad: bool) -> (Result<Vec<ReadParagraph>, DataError>, Skipped, u64) {
        let sieve = Sieve::new(skip_bad);
        let mut reader = FileReader { path: "f.json".as_ref(), labelled: true, sieve, moved: 0 };
        let read = reader.read(json.as_bytes());
        (read, reader.sieve.done(), reader.moved)
    }

    fn file(context: &str, questions: &str) -> String {
        format!(
            r#"{{"version": "1.1", "data": [{{"title": "T",
            "paragraphs": [{{"context": "{context}", "qas": [{questions}]}}]}}]}}"#
        )
    }

    fn question(id: &str, answer: &str, start: i64) -> String {
        format!(
            r#"{{"id": "{id}", "question": "What?", "answers": [{{"text": "{answer}", "answer_start": {start}}}]}}"#
        )
    }

    #[test]
    fn answers_are_counted_in_characters() {
        let (read, _, moved) = read(&file("Müller né Łódź.", &question("q", "Łódź", 10)), false);
        assert_eq!(read.unwrap()[0].questions[0].answers[0].bytes, Some(12..19));
        assert_eq!(moved, 0);
    }

    #[test]
    fn an_answer_close_by_is_found_and_counted() {
        let questions = [question("q1", "new", 9), question("q2", " old ", 3)].join(",");
        let (read, _, moved) = read(&file("new, old, new", &questions), false);
        let questions = &read.unwrap()[0].questions;
        assert_eq!(questions[0].answers[0].bytes, Some(10..13));
        assert_eq!(questions[1].answers[0].bytes, Some(5..8));
        assert_eq!(moved, 2);
    }

    #[test]
    fn what_cannot_be_used_is_named_or_counted() {
        let far = format!("a{}b", " x".repeat(40));
        for (json, why) in [
            (
                file("  ", &question("q", "a", 0)),
                "line 2, article 1 (`T`), paragraph 1: its context is empty",
            ),
            (
                file("a", &question("q7", "b", 0)),
                "line 2, article 1 (`T`), paragraph 1, question `q7`: no answer stands",
            ),
            (
                file("a", &["\n".into(), question("q", "a", 0), ",\n{}".into()].concat()),
                "line 4, article 1 (`T`), paragraph 1, question 2: it is not a SQuAD question: missing field `id`",
            ),
            (
                file("a", &question("q", "a", 0)).replace("\"qas\"", "\"q\""),
                "line 2, article 1 (`T`), paragraph 1: it is not a SQuAD paragraph: missing field `qas`",
            ),
            (file("a", &question("q", "a", -1)), "no answer stands"),
            (file("a", &question("q", "", 0)), "no answer stands"),
            (file(&far, &question("q", "b", 0)), "no answer stands"),
            (file("a", &[question("q", "a", 0), question("q", "a", 0)].join(",")), "the same id"),
            (file("a", r#"{"id": "q", "question": " ", "answers": []}"#), "its text is empty"),
            (file("a", r#"{"id": "q", "question": "?", "answers": []}"#), "is_impossible is not true"),
            (
                file("a", &question("q", "a", 0).replace("\"id\"", "\"is_impossible\": true, \"id\"")),
                "is_impossible is true",
            ),
        ] {
            let error = read(&json, false).0.err().unwrap();
            assert!(error.to_string().contains(why) && error.to_string().contains("f.json"), "{error}");
            assert!(error.hint().unwrap().contains("task.skip_bad"));
            assert_eq!(error.exit_code(), 65);
            let (read, skipped, _) = read(&json, true);
            assert!(read.is_ok() && skipped.count == 1 && skipped.first.len() == 1);
        }
    }

    #[test]
    fn json_that_is_no_squad_file_is_refused_with_the_line() {
        for (json, line) in
            [("{\"data\":\n[{}]}", "line 2"), ("{\n\n", "line 3"), ("[]", "line 1"), ("", "line 1")]
        {
            let error = read(json, true).0.err().unwrap().to_string();
            assert!(error.contains(line), "{error}");
        }
    }
}
