//! What files of SQuAD hold, part by part.

use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::{Name, whole_number, without_place};

/// How many characters an answer may stand away from where the file says.
pub(super) const NEARBY: usize = 32;

#[derive(Deserialize)]
pub(super) struct File<'a> {
    #[serde(borrow)]
    pub(super) data: Vec<Article<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Article<'a> {
    #[serde(default)]
    pub(super) title: Value,
    #[serde(borrow)]
    pub(super) paragraphs: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct RawParagraph<'a> {
    pub(super) context: String,
    #[serde(borrow)]
    pub(super) qas: Vec<&'a RawValue>,
}

impl<'a> RawParagraph<'a> {
    /// A paragraph, or why it cannot be used.
    pub(super) fn read(raw: &'a RawValue) -> Result<Self, String> {
        serde_json::from_str(raw.get())
            .map_err(|e| format!("it is not a SQuAD paragraph: {}", without_place(&e)))
    }
}

#[derive(Deserialize)]
pub(super) struct RawQuestion<'a> {
    pub(super) id: Name,
    pub(super) question: String,
    #[serde(borrow)]
    pub(super) answers: Option<&'a RawValue>,
    pub(super) is_impossible: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct RawAnswer {
    text: Option<String>,
    /// In characters.
    #[serde(default)]
    answer_start: Value,
}

/// Answers as the packages of Hugging Face write them.
#[derive(Deserialize)]
pub(super) struct AnswerColumns {
    text: Vec<Option<String>>,
    #[serde(default)]
    answer_start: Vec<Value>,
}

impl RawQuestion<'_> {
    /// Its answers that have a text, as a list or as columns. An empty one is how some write that there is none.
    pub(super) fn answers(&self) -> Result<Vec<RawAnswer>, String> {
        let raw = self.answers.map_or("null", RawValue::get);
        let read = match raw.starts_with('{') {
            true => serde_json::from_str(raw).map(|AnswerColumns { text, answer_start }| {
                let starts = answer_start.into_iter().chain(std::iter::repeat(Value::Null));
                text.into_iter()
                    .zip(starts)
                    .map(|(text, answer_start)| RawAnswer { text, answer_start })
                    .collect()
            }),
            false => serde_json::from_str(raw).map(Option::<Vec<RawAnswer>>::unwrap_or_default),
        };
        let mut answers = read.map_err(|e| format!("its answers are not SQuAD's: {}", without_place(&e)))?;
        answers.retain(|answer| !answer.text().trim().is_empty());
        Ok(answers)
    }
}

impl RawAnswer {
    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

/// Where an answer stands in the context, without white space at its ends, and whether that is not where the file says:
/// then it is the nearest place that is close enough. `starts`: the byte each character of the context begins at.
pub(super) fn locate(context: &str, starts: &[usize], answer: &RawAnswer) -> Option<(Range<u32>, bool)> {
    let text = answer.text().trim();
    let blanks = answer.text().chars().take_while(|c| c.is_whitespace()).count();
    let wanted = usize::try_from(whole_number(&answer.answer_start)?).ok()?.checked_add(blanks)?;
    let stands =
        |character: &usize| starts.get(*character).is_some_and(|at| context[*at..].starts_with(text));
    let nearest = (0..=NEARBY)
        .flat_map(|distance| [wanted.checked_sub(distance), wanted.checked_add(distance)])
        .flatten()
        .find(stands)?;
    let begin = starts[nearest];
    Some((begin as u32..(begin + text.len()) as u32, nearest != wanted))
}
