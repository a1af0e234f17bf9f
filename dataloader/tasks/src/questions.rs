//! Multiple-choice questions about a passage (Yang 2019, §2.2.3).

use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_tokenizer::Encoder;

use super::data::{Records, Row, Split};
use super::example::{Example, Target};
use super::open::Request;
use super::rows::{encode_all, ids};
use super::sieve::Sieve;

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
    /// Number of the right option.
    pub(super) answer: Option<u32>,
    pub(super) group: Option<String>,
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
    let asked = articles.iter().flat_map(|article| &article.questions);
    for (question, example) in asked.zip(encoded.into_iter().flatten()) {
        let Some(example) = sieve.keep(example)? else { continue };
        rows.push(Row {
            index: question.index.clone(),
            example: examples.len() as u32,
            sequence: 0,
            gold: example.target.clone(),
            group: question.group.clone(),
        });
        examples.push(example);
    }
    if examples.is_empty() {
        let why = "no question can be used\nhint: run without task.skip_bad to see why";
        return Err(DataError::line(from, 1, why));
    }
    let (records, skipped) = (Records::Rows(rows), sieve.done());
    Ok(Split { name: name.into(), examples, records, skipped, fingerprint, submission: None })
}

/// The examples of an article's questions.
fn encode(
    request: &Request<'_>,
    encoder: &mut Encoder<'_>,
    article: &Article,
) -> Vec<Result<Example, DataError>> {
    let passage = ids(encoder, &article.passage).map_err(|why| format!("the passage: {why}"));
    let mut example = |question: &Question| {
        let passage = passage.as_ref().map_err(String::clone)?;
        if question.options.len() < 2 {
            return Err(format!("it has {} options, and needs two or more", question.options.len()));
        }
        let mut sequences = Vec::with_capacity(question.options.len());
        for option in &question.options {
            let asked = ids(encoder, &with_option(&question.text, option))?;
            sequences.push(request.template.option(passage, &asked, request.task.max_option));
        }
        Ok(Example { sequences, target: question.answer.map_or(Target::Unknown, Target::Option) })
    };
    let named = |question: &Question, why| {
        let place = format!("line {}, question {}", article.line, question.index);
        DataError::record(&article.path, place, why)
    };
    article.questions.iter().map(|q| example(q).map_err(|why| named(q, why))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x24_an_option_takes_the_place_of_the_blank() {
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
}
