//! Maps positions in normalised text back to the original text.

use std::ops::Range;

use unicode_normalization::char::{canonical_combining_class, decompose_compatible};

use super::xlnet::{XlnetNormalization, is_space};

/// Is told where text comes from while it is made, in order.
pub(super) trait Trace {
    /// The next `bytes` bytes come from `source`; where they are none, `source` has left nothing.
    fn push(&mut self, bytes: usize, source: Range<usize>);
    /// Only the first `bytes` bytes stay.
    fn truncate(&mut self, bytes: usize);
}

/// For those who do not want to know.
impl Trace for () {
    fn push(&mut self, _: usize, _: Range<usize>) {}
    fn truncate(&mut self, _: usize) {}
}

/// Begin and end, in the source, of what each byte comes from. What has left nothing belongs to the byte before it, so
/// that an accent stays with its letter.
#[derive(Default)]
pub(super) struct Origins(Vec<(u32, u32)>);

impl Trace for Origins {
    fn push(&mut self, bytes: usize, source: Range<usize>) {
        let source = (source.start as u32, source.end as u32);
        if bytes == 0
            && let Some(last) = self.0.last_mut()
        {
            last.1 = last.1.max(source.1);
        }
        self.0.extend(std::iter::repeat_n(source, bytes));
    }

    fn truncate(&mut self, bytes: usize) {
        self.0.truncate(bytes);
    }
}

impl Origins {
    /// Of `bytes` bytes that are as they were.
    pub(super) fn identity(bytes: usize) -> Self {
        Self((0..bytes as u32).map(|at| (at, at + 1)).collect())
    }

    /// The stretch of the source that a stretch of the text comes from.
    pub(super) fn cover(&self, place: Range<usize>) -> Range<usize> {
        let at = |place: usize| self.0.get(place).copied();
        let Some(stretch) = self.0.get(place.clone()).filter(|stretch| !stretch.is_empty()) else {
            // Between two bytes: where the one behind begins, or the last ends.
            let gap = at(place.start).map_or(self.0.last().map_or(0, |last| last.1), |next| next.0) as usize;
            return gap..gap;
        };
        let begin = stretch.iter().map(|origin| origin.0).min().unwrap_or_default();
        let end = stretch.iter().map(|origin| origin.1).max().unwrap_or_default();
        begin as usize..end as usize
    }
}

/// Characters, each with where it comes from.
type Traced = Vec<(char, Range<usize>)>;

impl XlnetNormalization {
    /// [`XlnetNormalization::prepare`], with where each byte comes from.
    pub(super) fn prepare_traced(&self, text: &str) -> (String, Origins) {
        let mut traced: Traced = text.char_indices().map(|(at, c)| (c, at..at + c.len_utf8())).collect();
        if !self.keep_spaces {
            traced = single_spaces(traced);
        }
        for quote in ['`', '\''] {
            traced = joined_quotes(traced, quote);
        }
        if !self.keep_accents {
            traced = without_accents(traced);
        }
        if self.lower_case {
            traced = lower_case(traced);
        }
        let mut origins = Origins::default();
        let mut prepared = String::with_capacity(text.len());
        for (c, source) in traced {
            prepared.push(c);
            origins.push(c.len_utf8(), source);
        }
        (prepared, origins)
    }
}

/// Every run of white space as one space, none at the ends.
fn single_spaces(traced: Traced) -> Traced {
    let mut single: Traced = Vec::with_capacity(traced.len());
    for (c, source) in traced {
        match (single.last_mut(), is_space(c)) {
            (_, false) => single.push((c, source)),
            (Some((' ', run)), true) => run.end = source.end,
            (Some(_), true) => single.push((' ', source)),
            (None, true) => {}
        }
    }
    single.pop_if(|(c, _)| *c == ' ');
    single
}

/// Two of `quote` in a row as `"`.
fn joined_quotes(traced: Traced, quote: char) -> Traced {
    let mut joined: Traced = Vec::with_capacity(traced.len());
    let mut rest = traced.into_iter().peekable();
    while let Some((c, mut source)) = rest.next() {
        let second = if c == quote { rest.next_if(|(next, _)| *next == quote) } else { None };
        match second {
            Some((_, behind)) => {
                source.end = behind.end;
                joined.push(('"', source));
            }
            None => joined.push((c, source)),
        }
    }
    joined
}

/// Compatibility forms taken apart and combining marks left out. Marks need no sorting for that.
fn without_accents(traced: Traced) -> Traced {
    let mut plain: Traced = Vec::with_capacity(traced.len());
    for (c, source) in traced {
        let before = plain.len();
        decompose_compatible(c, |part| {
            if canonical_combining_class(part) == 0 {
                plain.push((part, source.clone()));
            }
        });
        if plain.len() == before
            && let Some((_, last)) = plain.last_mut()
        {
            last.end = source.end;
        }
    }
    plain
}

/// Lower case. The text has to be taken as a whole, as what becomes of a capital sigma depends on what is around it.
fn lower_case(traced: Traced) -> Traced {
    let whole: String = traced.iter().map(|(c, _)| *c).collect();
    let lowered = whole.to_lowercase();
    let mut letters = lowered.chars();
    let mut lower = Vec::with_capacity(traced.len());
    for (c, source) in traced {
        let count = c.to_lowercase().count();
        lower.extend(letters.by_ref().take(count).map(|letter| (letter, source.clone())));
    }
    lower
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn switches() -> impl Strategy<Value = XlnetNormalization> {
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(lower_case, keep_accents, keep_spaces)| {
            XlnetNormalization { lower_case, keep_accents, keep_spaces }
        })
    }

    proptest! {
        #[test]
        fn traced_text_is_the_prepared_text(
            text in r"([ \t\u{85}\u{A0}`'a-zA-ZΣİéÅ\u{301}\u{327}ﬁ½①각ệ\u{200B}]|\PC){0,30}",
            normalization in switches(),
        ) {
            let (prepared, origins) = normalization.prepare_traced(&text);
            prop_assert_eq!(&prepared, &normalization.prepare(&text));
            prop_assert_eq!(origins.0.len(), prepared.len());
            let cuts = |place: &usize| text.is_char_boundary(*place);
            prop_assert!(origins.0.iter().all(|(begin, end)| cuts(&(*begin as usize)) && cuts(&(*end as usize))));
            prop_assert!(origins.0.windows(2).all(|pair| pair[0] <= pair[1]));
        }
    }

    #[test]
    fn letters_come_from_their_characters() {
        let text = " ``Cafe\u{301}''  \u{FB01}n";
        let (prepared, origins) = XlnetNormalization::default().prepare_traced(text);
        assert_eq!(prepared, "\"Cafe\" fin");
        let source = |begin: usize, end: usize| &text[origins.cover(begin..end)];
        assert_eq!((source(0, 1), source(4, 5), source(5, 6)), ("``", "e\u{301}", "''"));
        assert_eq!(
            (source(7, 8), source(8, 9), source(1, 9)),
            ("\u{FB01}", "\u{FB01}", "Cafe\u{301}''  \u{FB01}")
        );
        assert_eq!(origins.cover(9..9).len(), 0);
    }
}
