use super::rules::{is_plain_punctuation, is_space, pad, single_spaced, split_numbers, unescape_xml};

/// Translation edit rate (Snover et al. 2006), with the settings and values of sacrebleu 2.6.0, which follows tercom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ter {
    /// Whether punctuation is separated from words.
    pub normalized: bool,
    /// Whether punctuation is removed.
    pub no_punct: bool,
    /// Whether the two settings above extend to Chinese and Japanese; `normalized` makes words of their characters.
    pub asian_support: bool,
    /// Whether case is kept; otherwise lines are lower-cased.
    pub case_sensitive: bool,
}

impl Ter {
    /// A line as tercom's `Normalizer.java` prepares it, in sacrebleu's reading: words with single spaces between.
    pub fn prepare(&self, line: &str) -> String {
        let line = line.trim_end_matches(is_space);
        let mut line = if self.case_sensitive { line.to_string() } else { line.to_lowercase() };
        if self.normalized {
            line = take_apart(&line);
            if self.asian_support {
                line = pad(&line, |c| is_ideograph(c) || is_asian_punctuation(c));
            }
        }
        if self.no_punct {
            let is_removed =
                |c: char| is_removed_punctuation(c) || self.asian_support && is_asian_punctuation(c);
            line.retain(|c| !is_removed(c));
        }
        single_spaced(&line)
    }
}

/// Separates punctuation and the possessive `'s`. The reference has a second rule for `'s` at the end of the line, which
/// never applies because the line ends in a space.
fn take_apart(line: &str) -> String {
    let line = unescape_xml(&line.replace("\n-", "").replace('\n', " "));
    let line = pad(&format!(" {line} "), is_plain_punctuation);
    split_numbers(&line.replace("'s ", " 's "))
}

/// Characters that become words of their own: CJK ideographs, strokes, radicals and compatibility forms.
///
/// The last range follows sacrebleu, which writes 3F22 for 32FF. Its rules for hiragana and katakana match at the
/// start of the line only, where there is always a space: they never apply.
fn is_ideograph(c: char) -> bool {
    matches!(c,
        '\u{4E00}'..='\u{9FFF}' | '\u{3400}'..='\u{4DBF}'
        | '\u{31C0}'..='\u{31EF}' | '\u{2E80}'..='\u{2EFF}'
        | '\u{3300}'..='\u{33FF}' | '\u{F900}'..='\u{FAFF}' | '\u{FE30}'..='\u{FE4F}'
        | '\u{3200}'..='\u{3F22}')
}

/// Chinese and Japanese punctuation, of half and full width.
fn is_asian_punctuation(c: char) -> bool {
    matches!(c,
        '\u{3001}' | '\u{3002}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301F}'
        | '\u{FF61}'..='\u{FF65}' | '\u{30FB}'
        | '\u{FF0E}' | '\u{FF0C}' | '\u{FF1F}' | '\u{FF1A}' | '\u{FF1B}'
        | '\u{FF01}' | '\u{FF02}' | '\u{FF08}' | '\u{FF09}')
}

fn is_removed_punctuation(c: char) -> bool {
    matches!(c, '.' | ',' | '?' | ':' | ';' | '!' | '"' | '(' | ')')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// sacrebleu 2.6.0: `TercomTokenizer(…)(line.rstrip())`.
    #[test]
    fn lines_are_prepared_as_by_tercom() {
        let plain = Ter::default();
        let normalized = Ter { normalized: true, ..plain };
        let all = Ter { no_punct: true, asian_support: true, ..normalized };
        for (settings, line, expected) in [
            (plain, " The  dog's, 3.5%. ", "the dog's, 3.5%."),
            (normalized, "The dog's bone, 3.5%.\n-x &lt;b&gt;", "the dog 's bone , 3.5 % . x < b >"),
            (Ter { case_sensitive: true, ..normalized }, "It's (A)", "It 's ( A )"),
            (Ter { asian_support: true, ..normalized }, "漢字かな。カナ！", "漢 字 かな 。 カナ ！"),
            (all, "漢字かな。カナ！ (a), b", "漢 字 かな カナ a b"),
            (Ter { normalized: false, ..all }, "漢字。 (a), b's", "漢字 a b's"),
        ] {
            assert_eq!(settings.prepare(line), expected, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_prepared(line in ".{0,60}", normalized: bool, no_punct: bool, asian_support: bool) {
            let settings = Ter { normalized, no_punct, asian_support, case_sensitive: false };
            let prepared = settings.prepare(&line);
            prop_assert_eq!(&single_spaced(&prepared), &prepared);
        }
    }
}
