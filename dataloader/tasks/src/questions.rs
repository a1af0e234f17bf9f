//! Multiple-choice questions about a passage (Yang 2019, §2.2.3).

use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_tokenizer::Encoder;
use serde_json::Value;

use super::data::{Records, Row, Split};
use super::example::{Example, Sequence, Target};
use super::gold::{Gold, Told};
use super::json::whole_number;
use super::request::Request;
use super::rows::{encode_all, ids_or_none};
use super::sieve::{Role, Sieve};
use super::table::cell_of;

/// A passage and what is asked about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Article {
    pub(super) path: PathBuf,
    /// The line of the file that it begins on, counted from 1.
    pub(super) line: u64,
    pub(super) passage: String,
    pub(super) questions: Vec<Question>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    /// What a file of predictions calls it.
    pub(super) index: String,
    pub(super) text: String,
    pub(super) options: Vec<String>,
    /// Index of the right option, `None` without a label; the error says what is wrong with it.
    pub(super) answer: Result<Option<u32>, String>,
    /// What the file has in the place of the answer.
    pub(super) written: String,
    pub(super) group: Option<String>,
}

impl Question {
    /// What stands for its answer: nothing where none is told.
    fn told(&self) -> &str {
        match self.answer {
            Ok(None) => "",
            Ok(Some(_)) => "told",
            Err(_) => &self.written,
        }
    }

    /// What stands for its answer where that names no option.
    fn unknown(&self) -> Option<&str> {
        self.answer.is_err().then_some(&self.written)
    }

    /// What is right, or what is wrong with its answer.
    fn target(&self) -> Result<Target, String> {
        self.answer.clone().map(|answer| answer.map_or(Target::Unknown, Target::Option))
    }
}

/// The split of some articles that were read from `from`.
pub(super) fn split_of(
    request: &Request<'_>,
    name: &str,
    from: &Path,
    articles: &[Article],
    fingerprint: String,
    mut sieve: Sieve,
) -> Result<Split, DataError> {
    let encoded = encode_all(request, articles, |encoder, article| encode(request, encoder, article));
    let (mut examples, mut rows) = (Vec::new(), Vec::new());
    let asked = articles.iter().flat_map(|article| article.questions.iter().map(move |q| (article, q)));
    let all = articles.iter().flat_map(|article| &article.questions);
    let mut told = Gold::new(Told::Answers, all.clone().map(Question::told));
    if sieve.role() == Role::Answered {
        told = told.with_mark(all.map(Question::unknown));
    }
    for ((article, question), (sequences, wrong)) in asked.zip(encoded.into_iter().flatten()) {
        let bad = |why: String| {
            let place = format!("line {}, question {}", article.line, question.index);
            DataError::record(&article.path, place, why)
        };
        if sequences.len() < 2 {
            let count = question.options.len();
            sieve.refuse(bad(format!("it has {count} options, and needs two or more")))?;
            continue;
        }
        if let Some(why) = wrong
            && !sieve.spare(bad(why))?
        {
            continue;
        }
        let target = told.of(question.told(), article.line, |_| question.target(), bad, &mut sieve)?;
        let Some(target) = target else { continue };
        rows.push(Row {
            index: question.index.clone(),
            example: examples.len() as u32,
            sequence: 0,
            gold: target.clone(),
            group: question.group.clone(),
        });
        examples.push(Example { sequences, target });
    }
    if examples.is_empty() {
        return Err(sieve.nothing(from, "no question can be used"));
    }
    told.note(&mut sieve);
    let (records, skipped) = (Records::Rows(rows), sieve.done());
    Ok(Split { name: name.into(), examples, records, skipped, fingerprint, submission: None })
}

/// The sequences of each of an article's questions, with nothing in the place of a text that cannot be read, and what is
/// wrong with it.
fn encode(
    request: &Request<'_>,
    encoder: &mut Encoder<'_>,
    article: &Article,
) -> Vec<(Vec<Sequence>, Option<String>)> {
    let mut of_passage = None;
    let passage = ids_or_none(encoder, &article.passage, &mut of_passage);
    let of_passage = of_passage.map(|why| format!("the passage: {why}"));
    let mut encoded = |question: &Question| {
        let mut wrong = of_passage.clone();
        let sequence = |option: &String| {
            let asked = ids_or_none(encoder, &with_option(&question.text, option), &mut wrong);
            request.template.option(&passage, &asked, request.task.max_option)
        };
        let sequences = question.options.iter().map(sequence).collect();
        (sequences, wrong)
    };
    article.questions.iter().map(&mut encoded).collect()
}

/// A question with an option in each of its blanks (`_`, however long), or else after it.
fn with_option(question: &str, option: &str) -> String {
    if !question.contains('_') {
        return format!("{question} {option}");
    }
    let mut text = String::with_capacity(question.len() + option.len());
    let mut in_blank = false;
    for letter in question.chars() {
        match letter {
            '_' if in_blank => {}
            '_' => text.push_str(option),
            letter => text.push(letter),
        }
        in_blank = letter == '_';
    }
    text
}

/// The number of the option that a letter from `A` on names.
pub(super) fn of_letter(letter: &str, options: usize) -> Option<u32> {
    match letter.trim().as_bytes() {
        [letter @ b'A'..=b'Z'] => {
            Some(u32::from(letter - b'A')).filter(|number| (*number as usize) < options)
        }
        _ => None,
    }
}

/// The number of the option that a whole number names, counted from 0.
pub(super) fn of_number(answer: &Value, options: usize) -> Option<u32> {
    whole_number(answer).filter(|number| *number < options as u64).map(|number| number as u32)
}

/// The number of the first option that reads like the answer.
pub(super) fn of_text(answer: &Value, options: &[String]) -> Option<u32> {
    let text = cell_of(Some(answer.clone()));
    options.iter().position(|option| *option == text).map(|place| place as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row X24.
    #[test]
    fn an_option_takes_the_place_of_the_blank() {
        assert_eq!(with_option("The sky is _ .", "blue"), "The sky is blue .");
        assert_eq!(with_option("What is blue?", "The sky"), "What is blue? The sky");
        assert_eq!(with_option("____ and ___", "x"), "x and x");
        assert_eq!(with_option("é_", ""), "é");
    }

    #[test]
    fn letters_name_options() {
        assert_eq!((of_letter("A", 4), of_letter("D", 4)), (Some(0), Some(3)));
        assert_eq!((of_letter("E", 4), of_letter("a", 4), of_letter("AB", 4)), (None, None, None));
    }

    #[test]
    fn numbers_and_texts_name_options() {
        let of = |answer: Value| of_number(&answer, 2);
        assert_eq!((of(1.into()), of(1.0.into()), of("0".into())), (Some(1), Some(1), Some(0)));
        assert_eq!((of(2.into()), of(0.5.into()), of((-1).into())), (None, None, None));
        let options = ["10".to_string(), "20".into()];
        let of = |answer: Value| of_text(&answer, &options);
        assert_eq!((of("20".into()), of(20.into()), of(1.into())), (Some(1), Some(1), None));
    }
}
