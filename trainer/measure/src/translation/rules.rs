//! Rewriting rules that tokenisers share. White space is Python's, the language of the reference.

/// White space as Python's `str.split` knows it: the four information separators count.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1C}'..='\u{1F}')
}

/// The parts of a line between white space.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_space).filter(|word| !word.is_empty())
}

/// The words of a line with single spaces between.
pub fn single_spaced(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for word in words(line) {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Puts spaces around each character for which `is_apart` holds.
pub fn pad(line: &str, is_apart: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(2 * line.len());
    for c in line.chars() {
        if is_apart(c) {
            out.extend([' ', c, ' ']);
        } else {
            out.push(c);
        }
    }
    out
}

/// Which character of a pair gets spaces around it.
#[derive(Clone, Copy)]
pub enum Apart {
    /// The first.
    First,
    /// The second.
    Second,
}

/// Separates one character of each matching pair of neighbours. Pairs do not overlap, as in the substitution of a regular
/// expression: of `a..`, one pass separates the first full stop only.
pub fn split_pairs(
    line: &str,
    is_first: impl Fn(char) -> bool,
    is_second: impl Fn(char) -> bool,
    apart: Apart,
) -> String {
    let mut out = String::with_capacity(2 * line.len());
    let mut chars = line.chars().peekable();
    while let Some(first) = chars.next() {
        match chars.next_if(|second| is_first(first) && is_second(*second)) {
            Some(second) => match apart {
                Apart::First => out.extend([' ', first, ' ', second]),
                Apart::Second => out.extend([first, ' ', second, ' ']),
            },
            None => out.push(first),
        }
    }
    out
}

/// Replaces the four XML entities that mteval knows. `&amp;` comes before `&lt;` and `&gt;`: `&amp;lt;` becomes `<`.
pub fn unescape_xml(line: &str) -> String {
    line.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
}

/// ASCII punctuation and symbols except for the apostrophe, comma, hyphen and full stop.
pub fn is_plain_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '\'' | ',' | '-' | '.')
}

/// Separates full stops and commas except between digits, and hyphens after digits.
pub fn split_numbers(line: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let is_point = |c: char| matches!(c, '.' | ',');
    let line = split_pairs(line, |c| !is_digit(c), is_point, Apart::Second);
    let line = split_pairs(&line, is_point, |c| !is_digit(c), Apart::First);
    split_pairs(&line, is_digit, |c| c == '-', Apart::Second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_do_not_overlap() {
        let point = |c: char| c == '.';
        assert_eq!(split_pairs("a..b", |c| c != '1', point, Apart::Second), "a . .b");
        assert_eq!(split_pairs("...x", point, |c| c != '1', Apart::First), " . . . x");
    }

    #[test]
    fn numbers_keep_their_points() {
        assert_eq!(single_spaced(&split_numbers(" 1,000.5 a.b 5-6 x-y 3. ")), "1,000.5 a . b 5 - 6 x-y 3 .");
    }

    #[test]
    fn information_separators_are_white_space() {
        assert_eq!(
            words("a\u{1F}b\u{A0}c\u{85} d\u{200B}e").collect::<Vec<_>>(),
            ["a", "b", "c", "d\u{200B}e"]
        );
    }

    #[test]
    fn entities_are_replaced_in_a_fixed_order() {
        assert_eq!(unescape_xml("&amp;lt; &amp;quot; &gt;"), "< &quot; >");
    }
}
