use std::sync::LazyLock;

/// The classes of characters that GPT-2's pattern tells apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Number,
    Space,
    Other,
}

/// One class per code point, from the same Unicode tables that the regular expression would use.
static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let mut classes = vec![Class::Other; char::MAX as usize + 1];
    for (pattern, class) in [(r"\p{L}", Class::Letter), (r"\p{N}", Class::Number), (r"\s", Class::Space)] {
        // The three patterns are constants known to parse.
        let Ok(parsed) = regex_syntax::parse(pattern) else { continue };
        if let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(set)) = parsed.kind() {
            for range in set.ranges() {
                classes[range.start() as usize..=range.end() as usize].fill(class);
            }
        }
    }
    classes
});

/// Cuts text into words as GPT-2 does before it merges bytes. The pattern, tried in this order at every place:
///
/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
///
/// Every byte of the text falls in exactly one word.
pub(crate) struct Words<'a> {
    text: &'a str,
    at: usize,
    classes: &'static [Class],
}

impl<'a> Words<'a> {
    pub(crate) fn new(text: &'a str) -> Words<'a> {
        Words { text, at: 0, classes: &CLASSES }
    }

    /// Class and length in bytes of the character at a place, if there is one.
    fn class_at(&self, at: usize) -> Option<(Class, usize)> {
        let first = *self.text.as_bytes().get(at)?;
        if first < 0x80 {
            return Some((self.classes[first as usize], 1));
        }
        let c = self.text[at..].chars().next()?;
        Some((self.classes[c as usize], c.len_utf8()))
    }

    /// End of the run of characters of one class.
    fn run_end(&self, mut at: usize, class: Class) -> usize {
        while let Some((found, length)) = self.class_at(at) {
            if found != class {
                break;
            }
            at += length;
        }
        at
    }

    /// End of the white space word that begins here: the last space before a word belongs to the word, where it is
    /// U+0020, and stands alone otherwise.
    fn space_end(&self, begin: usize) -> usize {
        let (mut at, mut last) = (begin, begin);
        while let Some((Class::Space, length)) = self.class_at(at) {
            last = at;
            at += length;
        }
        if at == self.text.len() || last == begin { at } else { last }
    }

    fn contraction_end(&self, begin: usize) -> Option<usize> {
        let rest = &self.text.as_bytes()[begin..];
        let endings: [&[u8]; 7] = [b"'s", b"'t", b"'re", b"'ve", b"'m", b"'ll", b"'d"];
        endings.iter().find(|ending| rest.starts_with(ending)).map(|ending| begin + ending.len())
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let begin = self.at;
        let (class, length) = self.class_at(begin)?;
        let first = self.text.as_bytes()[begin];
        let end = match class {
            Class::Space => match self.class_at(begin + length) {
                Some((next, _)) if first == b' ' && next != Class::Space => self.run_end(begin + 1, next),
                _ => self.space_end(begin),
            },
            Class::Other if first == b'\'' => {
                self.contraction_end(begin).unwrap_or_else(|| self.run_end(begin, class))
            }
            _ => self.run_end(begin, class),
        };
        self.at = end;
        Some(&self.text[begin..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    /// The same text through the regular expression of the `tokenizers` crate.
    fn by_regex(text: &str) -> Vec<String> {
        let mut pre = PreTokenizedString::from(text);
        ByteLevel::new(false, true, true).pre_tokenize(&mut pre).unwrap();
        pre.get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(_, (begin, end), _)| text[begin..end].to_owned())
            .collect()
    }

    fn by_scanner(text: &str) -> Vec<String> {
        Words::new(text).map(str::to_owned).collect()
    }

    #[test]
    fn words_are_those_of_the_pattern() {
        for text in [
            "Hello world's  best\n\n  code's 'tis don't we'll I'D  x ",
            " \u{a0}x\u{2003} y\t\tz  ",
            "Ⅷ½٣ α'ß ʼn '' 's' 're've",
            "",
            " ",
            "\n a\r\n",
        ] {
            assert_eq!(by_scanner(text), by_regex(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_cut_as_by_the_pattern(text in "[ \n\t'a-dlmrstvé½\u{a0}\u{301}中🦀.,-]{0,40}") {
            prop_assert_eq!(by_scanner(&text), by_regex(&text));
        }

        #[test]
        fn no_byte_is_lost(text: String) {
            prop_assert_eq!(by_scanner(&text).concat(), text.clone());
            prop_assert_eq!(by_scanner(&text), by_regex(&text));
        }
    }
}
