use std::collections::HashSet;
use std::path::Path;

use segue_data_error::{DataError, without_mark};
use serde_json::value::RawValue;

use super::raw::{File, NEARBY, RawParagraph, RawQuestion, locate};
use super::records::GoldAnswer;
use crate::json::{Lines, without_place};
use crate::labels::unscored;
use crate::sieve::{Role, Sieve};
use crate::table::cell_of;

const EMPTY: &str = "its context is empty";

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
    /// Whether an answer stands in the context, where there is one.
    pub(super) found: bool,
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
    /// Whether a question without answers is one that cannot be answered, as in the second version.
    pub(super) has_unanswerable: bool,
    pub(super) sieve: Sieve,
    pub(super) moved: u64,
}

impl FileReader<'_> {
    /// The paragraphs of a file that have questions that can be used.
    ///
    /// Whether a question has an answer is told by `is_impossible` or by its answers. Where neither is there, the others
    /// of the file decide: if none of them has an answer either, nothing is told.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Vec<ReadParagraph>, DataError> {
        let bytes = without_mark(bytes);
        let file: File = serde_json::from_slice(bytes).map_err(|e| {
            DataError::foreign(
                self.path,
                format!("it is not a SQuAD file: {e}\nhint: the book (formats/tasks) describes the layout"),
            )
        })?;
        let mut seen = Seen { lines: Lines::of(bytes), ids: HashSet::new() };
        let mut read = Vec::new();
        for (article, entry) in file.data.into_iter().enumerate() {
            let title = cell_of(Some(entry.title));
            for (number, raw) in entry.paragraphs.into_iter().enumerate() {
                let name = format!("article {} (`{title}`), paragraph {}", article + 1, number + 1);
                let line = seen.lines.next(raw);
                let mut paragraph =
                    ReadParagraph { context: String::new(), questions: Vec::new(), line, name };
                match RawParagraph::read(raw) {
                    Ok(raw)
                        if raw.context.trim().is_empty() && !self.spare(&paragraph.place(line), EMPTY)? => {}
                    Ok(raw) => {
                        paragraph.context = raw.context;
                        self.read_questions(&mut paragraph, raw.qas, &mut seen)?;
                    }
                    Err(why) => self.refuse(&paragraph.place(line), &why)?,
                }
                read.push(paragraph);
            }
        }
        self.settle(&mut read)?;
        read.retain(|paragraph| !paragraph.questions.is_empty());
        Ok(read)
    }

    /// Says of the questions that do not tell whether they have an answer what the others say of them.
    fn settle(&mut self, paragraphs: &mut [ReadParagraph]) -> Result<(), DataError> {
        let all = || paragraphs.iter().flat_map(|paragraph| &paragraph.questions);
        let untold = all().all(|question| question.impossible.is_none());
        let count = all().count();
        let mut unscored_lines = Vec::new();
        for paragraph in paragraphs {
            for mut question in std::mem::take(&mut paragraph.questions) {
                let (line, answered) = (question.line, self.sieve.role() != Role::Learnt);
                let why = match (question.impossible, untold) {
                    (Some(_), _) => None,
                    (None, true) if answered => None,
                    (None, true) => Some("it has no answers, and no question of the file has any"),
                    (None, false) if self.has_unanswerable => {
                        question.impossible = Some(true);
                        None
                    }
                    (None, false) if !self.labelled => None,
                    (None, false) => {
                        Some("it has no answers\nhint: read files with such questions as squad2")
                    }
                };
                if let Some(why) = why {
                    self.refuse(&format!("{}, question `{}`", paragraph.place(line), question.id), why)?;
                } else if question.impossible.is_none() {
                    unscored_lines.push(line);
                }
                if why.is_none() || self.sieve.role() == Role::Answered {
                    paragraph.questions.push(question);
                }
            }
        }
        // Files of a test split are without answers as they are published.
        let note = unscored("question", "an answer", &unscored_lines, count);
        note.filter(|_| self.labelled || !untold).into_iter().for_each(|note| self.sieve.note(note));
        Ok(())
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
                Ok(raw) if seen.ids.insert(raw.id.clone().into()) => {
                    let name = format!("`{}`", String::from(raw.id.clone()));
                    (name, self.question(&paragraph.context, &starts, line, raw))
                }
                Ok(raw) => {
                    let name = format!("`{}`", String::from(raw.id));
                    (name, Err("another question has the same id".into()))
                }
                Err(e) => {
                    let why = format!("it is not a SQuAD question: {}", without_place(&e));
                    ((number + 1).to_string(), Err(why))
                }
            };
            let place = format!("{}, question {name}", paragraph.place(line));
            match question {
                Ok((question, None)) => paragraph.questions.push(question),
                Ok((question, Some(why))) if self.spare(&place, &why)? => paragraph.questions.push(question),
                Ok(_) => {}
                Err(why) => self.refuse(&place, &why)?,
            }
        }
        Ok(())
    }

    /// A question, and what is wrong with it where it can be answered all the same; or why it cannot be used.
    fn question(
        &mut self,
        context: &str,
        starts: &[usize],
        line: u64,
        raw: RawQuestion,
    ) -> Result<(ReadQuestion, Option<String>), String> {
        let (mut answers, mut moved) = (Vec::new(), 0);
        for answer in raw.answers()? {
            let found = locate(context, starts, &answer);
            moved += u64::from(found.as_ref().is_some_and(|(_, moved)| *moved));
            answers.push(GoldAnswer { text: answer.text().into(), bytes: found.map(|(bytes, _)| bytes) });
        }
        let found = answers.is_empty() || answers.iter().any(|answer| answer.bytes.is_some());
        let wrong = match raw.is_impossible {
            _ if raw.question.trim().is_empty() => Some("its text is empty".to_string()),
            Some(true) if !answers.is_empty() => Some("it has answers, and is_impossible is true".into()),
            Some(false) if answers.is_empty() && self.labelled => {
                Some("it has no answers, and is_impossible is false".into())
            }
            // That the context is empty is told.
            _ if !found && !context.trim().is_empty() => Some(format!(
                "no answer stands in the context where answer_start says or within {NEARBY} characters of there"
            )),
            _ => None,
        };
        if wrong.is_none() {
            self.moved += moved;
        }
        // As the official scorer has it, which looks at the answers alone.
        let impossible = match raw.is_impossible {
            _ if !answers.is_empty() => Some(false),
            Some(true) => Some(true),
            Some(false) if self.labelled => Some(true),
            _ => None,
        };
        let (id, text) = (raw.id.into(), raw.question);
        Ok((ReadQuestion { line, id, text, answers, impossible, found }, wrong))
    }

    /// Counts what cannot be used, or fails.
    pub(super) fn refuse(&mut self, place: &str, why: &str) -> Result<(), DataError> {
        self.sieve.refuse(DataError::record(self.path, place, why))
    }

    /// Says whether what is wrong in a part can stay, or fails.
    pub(super) fn spare(&mut self, place: &str, why: &str) -> Result<bool, DataError> {
        self.sieve.spare(DataError::record(self.path, place, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Skipped;

    type Read = (Result<Vec<ReadParagraph>, DataError>, Skipped, u64);

    fn read_split(json: &str, split: &str, has_unanswerable: bool, skip_bad: bool) -> Read {
        let (sieve, labelled) = (Sieve::of_split(skip_bad, split), split != "test");
        let mut reader = FileReader { path: "f.json".as_ref(), labelled, has_unanswerable, sieve, moved: 0 };
        let read = reader.read(json.as_bytes());
        (read, reader.sieve.done(), reader.moved)
    }

    fn read(json: &str, skip_bad: bool) -> Read {
        read_split(json, "train", true, skip_bad)
    }

    /// Whether each question has no answer.
    fn impossible(read: &Read) -> Vec<Option<bool>> {
        let questions = read.0.as_ref().unwrap().iter().flat_map(|paragraph| &paragraph.questions);
        questions.map(|question| question.impossible).collect()
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

    /// A question with these answers, and whatever else.
    fn with_answers(id: usize, answers: &str) -> String {
        format!(r#"{{"id": "e{id}", "question": "What?", "answers": {answers}}}"#)
    }

    const EMPTY_ANSWERS: [&str; 7] = [
        "[]",
        "null",
        r#"{"text": [], "answer_start": []}"#,
        r#"{"text": [""], "answer_start": [-1]}"#,
        r#"[{"text": "", "answer_start": -1}]"#,
        r#"[{"text": " ", "answer_start": 0}]"#,
        r#"[{"text": null, "answer_start": null}]"#,
    ];

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
    fn answers_may_stand_in_columns() {
        let columns = r#"{"text": ["new", "old"], "answer_start": [0, 5]}"#;
        let (read, ..) = read(&file("new, old", &with_answers(1, columns)), false);
        let bytes: Vec<_> = read.unwrap()[0].questions[0].answers.iter().map(|a| a.bytes.clone()).collect();
        assert_eq!(bytes, [Some(0..3), Some(5..8)]);
    }

    #[test]
    fn places_of_answers_may_have_an_empty_fraction_or_be_texts() {
        for start in ["5", "5.0", "\"5\"", "\"5.0\""] {
            let list = format!(r#"[{{"text": "old", "answer_start": {start}}}]"#);
            let columns = format!(r#"{{"text": ["old"], "answer_start": [{start}]}}"#);
            for answers in [list, columns] {
                let (read, _, moved) = read(&file("new, old", &with_answers(1, &answers)), false);
                assert_eq!(read.unwrap()[0].questions[0].answers[0].bytes, Some(5..8), "{answers}");
                assert_eq!(moved, 0);
            }
        }
        for start in ["5.5", "-5", "\"x\"", "null"] {
            let answers = format!(r#"[{{"text": "old", "answer_start": {start}}}]"#);
            let error = read(&file("new, old", &with_answers(1, &answers)), false).0.err().unwrap();
            assert!(error.to_string().contains("no answer stands"), "{error}");
        }
    }

    #[test]
    fn a_question_exported_with_an_empty_answer_has_none() {
        let empty = EMPTY_ANSWERS.iter().enumerate().map(|(id, answers)| with_answers(id, answers));
        let questions: Vec<String> = empty.chain([question("q", "a", 0)]).collect();
        let json = file("a", &questions.join(","));
        for split in ["train", "dev", "test"] {
            let of_split = read_split(&json, split, true, false);
            let expected = [vec![Some(true); EMPTY_ANSWERS.len()], vec![Some(false)]].concat();
            assert_eq!(impossible(&of_split), expected, "{split}");
            assert_eq!(of_split.1, Skipped::default());
        }
        // The first version has no such questions.
        for split in ["train", "dev"] {
            let error = read_split(&json, split, false, false).0.err().unwrap();
            assert!(error.hint().unwrap().contains("squad2"), "{error}");
        }
        assert_eq!(impossible(&read_split(&json, "train", false, true)), [Some(false)]);
        assert_eq!(impossible(&read_split(&json, "test", false, false))[0], None);
    }

    #[test]
    fn a_file_without_any_answer_is_answered_and_not_scored() {
        let json = file(
            "a",
            &EMPTY_ANSWERS
                .iter()
                .enumerate()
                .map(|(id, a)| with_answers(id, a))
                .collect::<Vec<_>>()
                .join(","),
        );
        for (split, notes) in [("dev", 1), ("test", 0)] {
            let of_split = read_split(&json, split, true, false);
            assert_eq!(impossible(&of_split), vec![None; EMPTY_ANSWERS.len()], "{split}");
            assert_eq!(of_split.1.notes.len(), notes, "{split}");
        }
        let error = read(&json, false).0.err().unwrap().to_string();
        assert!(error.contains("no question of the file has any"), "{error}");
        let told = json.replacen("\"e0\"", "\"e0\", \"is_impossible\": true", 1);
        assert_eq!(impossible(&read(&told, false)), vec![Some(true); EMPTY_ANSWERS.len()]);
    }

    #[test]
    fn names_that_are_whole_numbers_are_their_digits() {
        let ids = ["100", "9007199254740993", "123456789012345678901234567890"];
        let questions = ids.map(|id| question("q", "a", 0).replace("\"q\"", id)).join(",");
        let read_all = read(&file("a", &questions), false).0.unwrap();
        let found: Vec<&str> = read_all[0].questions.iter().map(|question| question.id.as_str()).collect();
        assert_eq!(found, ids);
        let twice = [question("100", "a", 0), question("q", "a", 0).replace("\"q\"", "100")].join(",");
        assert!(read(&file("a", &twice), false).0.err().unwrap().to_string().contains("the same id"));
        let half = question("q", "a", 0).replace("\"q\"", "1.5");
        let error = read(&file("a", &half), false).0.err().unwrap().to_string();
        assert!(error.contains("a name is a text or a whole number"), "{error}");
    }

    #[test]
    fn what_cannot_be_used_is_named_or_counted() {
        let far = format!("a{}b", " x".repeat(40));
        let said = |said: bool| {
            question("q", "a", 0).replace("\"id\"", &format!("\"is_impossible\": {said}, \"id\""))
        };
        for (json, why, stays) in [
            (
                file("  ", &question("q", "a", 0)),
                "line 2, article 1 (`T`), paragraph 1: its context is empty",
                true,
            ),
            (
                file("a", &question("q7", "b", 0)),
                "line 2, article 1 (`T`), paragraph 1, question `q7`: no answer stands",
                true,
            ),
            (
                file("a", &["\n".into(), question("q", "a", 0), ",\n{}".into()].concat()),
                "line 4, article 1 (`T`), paragraph 1, question 2: it is not a SQuAD question: missing field `id`",
                false,
            ),
            (
                file("a", &question("q", "a", 0)).replace("\"qas\"", "\"q\""),
                "line 2, article 1 (`T`), paragraph 1: it is not a SQuAD paragraph: missing field `qas`",
                false,
            ),
            (file("a", &question("q", "a", -1)), "no answer stands", true),
            (
                file("a", &question("q", "a", 0)).replace("\"answer_start\"", "\"start\""),
                "no answer stands",
                true,
            ),
            (file(&far, &question("q", "b", 0)), "no answer stands", true),
            (file("a", &[question("q", "a", 0), question("q", "a", 0)].join(",")), "the same id", false),
            (file("a", r#"{"id": "q", "question": " ", "answers": []}"#), "its text is empty", true),
            (file("a", &with_answers(1, "[{}]")), "no question of the file has any", true),
            (file("a", &with_answers(1, "7")), "its answers are not SQuAD's", false),
            (file("a", &said(true)), "is_impossible is true", true),
            (file("a", &said(false).replace("\"a\"", "\"\"")), "is_impossible is false", true),
        ] {
            let error = read(&json, false).0.err().unwrap();
            assert!(error.to_string().contains(why) && error.to_string().contains("f.json"), "{error}");
            assert!(error.hint().unwrap().contains("task.skip_bad"));
            assert_eq!(error.exit_code(), 65);
            let (read, skipped, _) = read(&json, true);
            assert!(read.is_ok() && skipped.count == 1 && skipped.first.len() == 1, "{why}");
            // What is scored is answered all the same where there is a question, as the official scorer counts it.
            let (read, skipped, _) = read_split(&json, "dev", true, true);
            let questions: usize = read.unwrap().iter().map(|paragraph| paragraph.questions.len()).sum();
            assert_eq!(
                (questions > 0, skipped.count > 0),
                (stays || why == "the same id" || why.contains("question 2"), !stays),
                "{why}"
            );
        }
    }

    #[test]
    fn a_contradiction_is_scored_as_the_official_scorer_has_it() {
        for (said, answer, expected) in [(true, "a", Some(false)), (false, "", Some(true))] {
            let question =
                question("q", answer, 0).replace("\"id\"", &format!("\"is_impossible\": {said}, \"id\""));
            assert_eq!(impossible(&read_split(&file("a", &question), "dev", true, true)), [expected]);
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
