use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

/// How XLNet prepares text for its SentencePiece model, after the reference's `prepro_utils.py`: white space becomes
/// single spaces, ` `` ` and `''` become `"`, accents go, letters become lower case where asked. After the
/// segmentation, a piece that ends in a comma after a digit is cut again without the comma.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct XlnetNormalization {
    /// Turn upper-case letters into lower-case ones (`do_lower_case`, `uncased`).
    pub lower_case: bool,
    /// Leave accents and compatibility characters as they are.
    pub keep_accents: bool,
    /// Leave white space as it is (`remove_space` off).
    pub keep_spaces: bool,
}

impl XlnetNormalization {
    /// The text as the model gets it.
    pub(crate) fn prepare<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = if self.keep_spaces { Cow::Borrowed(text) } else { single_spaces(text) };
        for quotes in ["``", "''"] {
            if text.contains(quotes) {
                text = Cow::Owned(text.replace(quotes, "\""));
            }
        }
        if !self.keep_accents && !text.is_ascii() {
            text = Cow::Owned(text.nfkd().filter(|c| canonical_combining_class(*c) == 0).collect());
        }
        if self.lower_case {
            text = Cow::Owned(text.to_lowercase());
        }
        text
    }
}

/// The words of a text with one space between them.
fn single_spaces(text: &str) -> Cow<'_, str> {
    let mut words = text.split(is_space).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    if first.len() == text.len() {
        return Cow::Borrowed(first);
    }
    let mut joined = String::with_capacity(text.len());
    joined.push_str(first);
    for word in words {
        joined.push(' ');
        joined.push_str(word);
    }
    Cow::Owned(joined)
}

/// White space as Python's `str.split` knows it: the four information separators count.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1C}'..='\u{1F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(text: &str) -> String {
        XlnetNormalization::default().prepare(text).into_owned()
    }

    /// What Python 3.11 makes of the same text by the reference's steps.
    /// Row X1.
    #[test]
    fn text_is_prepared_as_in_python() {
        for (text, expected) in [
            ("  two \t words\u{A0}\u{85}here\u{1C}and\u{1F}there\u{3000}", "two words here and there"),
            ("``quoted'' '''three''' ```", "\"quoted\" \"'three\"' \"`"),
            ("Caf\u{E9} \u{C5}ngstr\u{F6}m \u{1EC7}", "Cafe Angstrom e"),
            ("\u{FB01}ne \u{BD}, \u{2460} \u{FF21} \u{2026} \u{A8}x", "fine 1\u{2044}2, 1 A ...  x"),
            // A vowel sign has combining class 0 and stays, a nukta and a virama go.
            ("\u{915}\u{93C}\u{93F}\u{94D}", "\u{915}\u{93F}"),
            ("\u{200B}x\u{180E}", "\u{200B}x\u{180E}"),
            (" \n", ""),
        ] {
            assert_eq!(prepared(text), expected, "{text:?}");
        }
        let lower = XlnetNormalization { lower_case: true, ..XlnetNormalization::default() };
        assert_eq!(lower.prepare("\u{39F}\u{394}\u{39F}\u{3A3} \u{130}X \u{1E9E}"), "οδος ix \u{DF}");
        let kept =
            XlnetNormalization { keep_accents: true, keep_spaces: true, ..XlnetNormalization::default() };
        assert_eq!(kept.prepare(" \u{E9}  ''"), " \u{E9}  \"");
    }
}
