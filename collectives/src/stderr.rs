//! Lines on stderr that arrive in one piece.

use std::io::Write;

/// Prints `line` with one write. `eprintln!` writes each part of its format by itself, and a launcher
/// that merges the output of several ranks puts other ranks' words between the parts.
pub fn print_line(line: &str) {
    // Nothing can be done about a stderr that is closed.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
