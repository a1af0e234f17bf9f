//! Lines on stderr that arrive in one piece.

use std::borrow::Cow;
use std::io::Write;

/// Prints `line` with one write, as [`printable`] has it. `eprintln!` writes each part of its format by itself, and a launcher
/// that merges the output of several ranks puts other ranks' words between the parts.
pub fn print_line(line: &str) {
    // Nothing can be done about a stderr that is closed.
    let _ = std::io::stderr().write_all(format!("{}\n", printable(line)).as_bytes());
}

/// A text for people without control characters but line ends and tabs, and without marks that break or turn a line: names from files may hold
/// sequences that a terminal obeys. They are written like `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t') || is_plain(c))
}

/// A name from a file, or of one, within a line for people: as [`printable`] has it, and without line ends and tabs, which would forge lines
/// and columns.
pub fn printable_name(name: &str) -> Cow<'_, str> {
    escaped(name, is_plain)
}

/// Whether a character neither is obeyed by terminals nor separates lines nor changes the direction of the text around it.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match stays(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_unicode()),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_given_nothing_to_obey() {
        let title = "w\u{1b}]0;owned\u{7}\u{9b}2J\rx\u{7f}";
        assert_eq!(printable(title), r"w\u{1b}]0;owned\u{7}\u{9b}2J\u{d}x\u{7f}");
        assert!(matches!(printable("a\tb\nüß → 文"), Cow::Borrowed("a\tb\nüß → 文")));
    }

    #[test]
    fn a_name_forges_no_line_and_turns_none() {
        assert_eq!(printable_name("a\nsegue: error: b\tc"), r"a\u{a}segue: error: b\u{9}c");
        assert_eq!(printable_name("üß → 文"), "üß → 文");
        for mark in ['\u{2028}', '\u{2029}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}'] {
            let (text, expected) = (format!("a{mark}b"), format!("a{}b", mark.escape_unicode()));
            assert_eq!([printable(&text), printable_name(&text)], [expected.as_str(); 2]);
        }
    }
}
