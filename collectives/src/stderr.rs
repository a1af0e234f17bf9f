//! Lines on stderr that arrive in one piece.

use std::borrow::Cow;
use std::io::Write;

/// Prints `line` with one write, as [`printable`] has it. `eprintln!` writes each part of its format by itself, and a launcher
/// that merges the output of several ranks puts other ranks' words between the parts.
pub fn print_line(line: &str) {
    // Nothing can be done about a stderr that is closed.
    let _ = std::io::stderr().write_all(format!("{}\n", printable(line)).as_bytes());
}

/// A text for people without control characters but line ends and tabs: names from files may hold sequences that a
/// terminal obeys. They are written like `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_plain(c) {
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
}
