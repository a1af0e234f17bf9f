//! Text of several lines, encoded as a whole.

use std::borrow::Cow;
use std::ops::Range;

use super::model::SentencePiece;
use super::origins::Trace;
use super::xlnet::{XlnetNormalization, is_space};

impl SentencePiece {
    /// Appends the ids of a text, and the place in `out` of the first token of each line that is not blank: that which
    /// holds the line's first character, or the space symbol in front of it. Lines that begin in one token count once.
    pub(crate) fn encode_lines(&self, text: &str, out: &mut Vec<u32>, line_starts: &mut Vec<u32>) {
        let mut firsts = Vec::new();
        let prepared = match self.xlnet() {
            None => {
                each_line(text, |place, line| {
                    firsts.extend(first_character(line).map(|first| place + first))
                });
                Cow::Borrowed(text)
            }
            Some(normalization) => Cow::Owned(normalization.prepare_lines(text, &mut firsts)),
        };
        let mut places = Places::of(firsts);
        let normalized = self.normalizer.normalize_traced(&prepared, &mut places);
        let mut places = places.found.into_iter().map(|place| self.with_space(&normalized, place)).peekable();
        self.for_each_token(&normalized, &mut |id, place| {
            if places.next_if(|first| *first < place.end).is_some() {
                line_starts.push(out.len() as u32);
                while places.next_if(|first| *first < place.end).is_some() {}
            }
            out.push(id);
        });
    }

    /// A place in normalised text, or that of the space symbol in front of it, where words have it there.
    fn with_space(&self, normalized: &[u8], place: usize) -> usize {
        let space = self.normalizer.space();
        let before = normalized.get(..place).unwrap_or_default();
        match before.ends_with(space) && !self.normalizer.treat_whitespace_as_suffix {
            true => place - space.len(),
            false => place,
        }
    }
}

/// Calls `each` with every line and its place.
fn each_line<'t>(text: &'t str, mut each: impl FnMut(usize, &'t str)) {
    let mut place = 0;
    for line in text.split_inclusive('\n') {
        each(place, line);
        place += line.len();
    }
}

/// Where in a line its first character is that is not white space.
fn first_character(line: &str) -> Option<usize> {
    line.find(|c: char| !c.is_whitespace())
}

/// Finds places of a text in its normalised form.
struct Places {
    /// The places, ascending.
    wanted: std::vec::IntoIter<usize>,
    next: usize,
    found: Vec<usize>,
    /// Bytes of normalised text so far.
    length: usize,
}

impl Places {
    /// Behind the last place.
    const NONE: usize = usize::MAX;

    fn of(wanted: Vec<usize>) -> Places {
        let mut wanted = wanted.into_iter();
        Places { next: wanted.next().unwrap_or(Places::NONE), wanted, found: Vec::new(), length: 0 }
    }
}

impl Trace for Places {
    fn push(&mut self, bytes: usize, source: Range<usize>) {
        while self.next < source.end {
            self.found.push(self.length);
            self.next = self.wanted.next().unwrap_or(Places::NONE);
        }
        self.length += bytes;
    }

    fn truncate(&mut self, bytes: usize) {
        self.length = bytes;
    }
}

impl XlnetNormalization {
    /// [`XlnetNormalization::prepare`], with `firsts` told where in it each line begins that is not blank. No step looks
    /// over a line break but the first, which makes spaces of line breaks.
    fn prepare_lines(&self, text: &str, firsts: &mut Vec<usize>) -> String {
        let mut prepared = String::with_capacity(text.len());
        let mut begun = false;
        each_line(text, |_, line| {
            if !self.keep_spaces && line.contains(|c| !is_space(c)) {
                if begun {
                    prepared.push(' ');
                }
                begun = true;
            }
            let of_line = self.prepare(line);
            if first_character(line).is_some() {
                firsts.push(prepared.len() + first_character(&of_line).unwrap_or(0));
            }
            prepared.push_str(&of_line);
        });
        prepared
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_prepared_as_the_whole_text_is(
            text in "([ \t\r\n\u{85}\u{A0}\u{1C}`'aΣİ\u{301}ﬁ中]|\\PC){0,30}",
            lower_case: bool, keep_accents: bool, keep_spaces: bool,
        ) {
            let normalization = XlnetNormalization { lower_case, keep_accents, keep_spaces };
            let mut firsts = Vec::new();
            let prepared = normalization.prepare_lines(&text, &mut firsts);
            prop_assert_eq!(&prepared, &normalization.prepare(&text));
            prop_assert_eq!(firsts.len(), text.lines().filter(|line| !line.trim().is_empty()).count());
            prop_assert!(firsts.is_sorted());
        }
    }
}
