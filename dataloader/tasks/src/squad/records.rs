use std::ops::Range;

use super::windows::{Window, window_with_most_context};

/// The questions of a file, and what their answers are found with.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// The paragraphs that are asked about.
    pub paragraphs: Vec<Paragraph>,
    /// In the order of the file.
    pub questions: Vec<Question>,
    /// Window `i` is what example `i` was made of. Those of a question follow one another.
    pub windows: Vec<Window>,
    /// Questions that were cut to `task.max_question` tokens.
    pub shortened: u64,
    /// Answers that do not stand where the file says, but close by.
    pub moved: u64,
}

/// A paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paragraph {
    /// Its text as it stands in the file.
    pub context: String,
    /// The bytes of the text that each token stands for.
    pub spans: Vec<Range<u32>>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What files of predictions call it.
    pub id: String,
    /// Number of its paragraph.
    pub paragraph: u32,
    /// The answers that people gave.
    pub answers: Vec<GoldAnswer>,
    /// Whether it has no answer; none where that is not told, as in published test files.
    pub impossible: Option<bool>,
    /// Its windows.
    pub windows: Range<u32>,
}

/// An answer that people gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoldAnswer {
    /// Its text.
    pub text: String,
    /// Its bytes in the paragraph, without white space at the ends; none where it is not found there.
    pub bytes: Option<Range<u32>>,
}

impl Paragraph {
    /// First and last token of a stretch of the text; none where no token stands for any of it.
    pub fn tokens(&self, bytes: &Range<u32>) -> Option<(u32, u32)> {
        let within = |span: &Range<u32>| !span.is_empty() && span.start < bytes.end && span.end > bytes.start;
        let first = self.spans.iter().position(within)?;
        let last = self.spans.iter().rposition(within)?;
        Some((first as u32, last as u32))
    }

    /// The text that tokens `first` to `last` stand for, as it stands in the file; empty where they are none.
    pub fn text(&self, first: u32, last: u32) -> &str {
        let span = |token: u32| self.spans.get(token as usize);
        let bytes = span(first).zip(span(last)).map(|(first, last)| first.start as usize..last.end as usize);
        bytes.and_then(|bytes| self.context.get(bytes)).unwrap_or_default().trim()
    }
}

impl Questions {
    /// The text at positions `start` to `end` of a window; none where one of them is outside the paragraph, or `end`
    /// comes before `start`.
    pub fn text(&self, window: usize, start: u32, end: u32) -> Option<&str> {
        let window = self.windows.get(window)?;
        if start > end || end >= window.length {
            return None;
        }
        let question = self.questions.get(window.question as usize)?;
        let paragraph = self.paragraphs.get(question.paragraph as usize)?;
        Some(paragraph.text(window.first + start, window.first + end))
    }

    /// Whether `window` is the one of its question's that has the most context around its `position`.
    pub fn has_most_context(&self, window: usize, position: u32) -> bool {
        let Some(of) = self.windows.get(window) else { return false };
        let own = self.questions[of.question as usize].windows.clone();
        let windows = &self.windows[own.start as usize..own.end as usize];
        position < of.length
            && window_with_most_context(windows, of.first + position)
                .is_some_and(|best| own.start as usize + best == window)
    }
}
