//! The rules in a table, and names with numbers in them.

use serde::Serialize;

/// What happens to a variable's values on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Nothing.
    Copy,
    /// Its two axes change places: TensorFlow multiplies from the left.
    Transpose,
    /// Its rows come in the opposite order: the PyTorch programs count tail clusters from the end.
    Reverse,
    /// Entry n of its first axis goes to the parameter with `{n}` in its name.
    Slice,
    /// The same, the rows of each entry in the opposite order: Shaw's tables end with distance 0 in the PyTorch
    /// programs and begin with it here.
    SliceReverse,
    /// As [`Operation::Slice`], each entry `[rows, heads, width]` read as `[rows, heads * width]`.
    SliceMatrix,
    /// Joined along the first axis with the others that have this destination, in the order of the number in
    /// their names.
    Join,
    /// The same, at this place.
    JoinAt(u32),
    /// Taken apart into equal blocks of rows, the gates of a cell, which are put together anew.
    Gates {
        /// What becomes of them: each piece the parameter whose name is the destination with the piece's ending.
        pieces: &'static [Piece],
        /// Equal blocks of columns, the inputs of a window, which come in the opposite order.
        windows: usize,
    },
    /// Left out, for the reason given.
    Skip(&'static str),
}

/// What becomes of some of the blocks of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// What follows the rule's destination in the name of the parameter.
    pub ending: &'static str,
    /// The blocks of the variable that it consists of, in this order.
    pub blocks: &'static [usize],
    /// Those of them whose values change their sign.
    pub negated: &'static [usize],
}

impl Piece {
    /// Of no blocks, and without an ending.
    pub(super) const NONE: Self = Self { ending: "", blocks: &[], negated: &[] };
}

/// One line of a table. Patterns may hold `{i}`, a number, the same on both sides; `{n}` on the right, the entries
/// that [`Operation::Slice`] makes; and `{*}`, any text, the same on the right where it stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of the source's names.
    pub source: &'static str,
    /// Pattern of the names here.
    pub destination: &'static str,
    /// What happens to the values.
    pub operation: Operation,
}

/// A line of a table.
pub(super) const fn rule(source: &'static str, destination: &'static str, operation: Operation) -> Rule {
    Rule { source, destination, operation }
}

/// A line for variables that have no place here.
pub(super) const fn skip(source: &'static str, reason: &'static str) -> Rule {
    Rule { source, destination: "", operation: Operation::Skip(reason) }
}

/// The number that `{i}` stands for where `name` fits `pattern`; 0 where the pattern has none.
pub(super) fn fit(pattern: &str, name: &str) -> Option<u64> {
    if pattern.contains("{*}") {
        return captured(pattern, name).map(|_| 0);
    }
    let Some((before, after)) = pattern.split_once("{i}") else { return (pattern == name).then_some(0) };
    let digits = name.strip_prefix(before)?.strip_suffix(after)?;
    let plain =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}

/// The text that `{*}` stands for where `name` fits `pattern`; none of it where the pattern has no such mark.
pub(super) fn captured<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("{*}") else { return (pattern == name).then_some("") };
    name.strip_prefix(before)?.strip_suffix(after).filter(|inner| !inner.is_empty())
}

/// The name that a rule leads `name` to, which fits it with the number `i`.
pub(super) fn destination(rule: &Rule, name: &str, i: u64) -> String {
    let text = captured(rule.source, name).filter(|_| rule.destination.contains("{*}"));
    text.map_or_else(|| fill(rule.destination, "{i}", i), |text| rule.destination.replacen("{*}", text, 1))
}

/// A pattern with its number put in.
pub(super) fn fill(pattern: &str, mark: &str, number: u64) -> String {
    pattern.replacen(mark, &number.to_string(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_numbers_and_nothing_else() {
        assert_eq!(fit("layers.{i}.w", "layers.12.w"), Some(12));
        for other in ["layers..w", "layers.x.w", "layers.01.w", "layers.1.v", "layers.1.w.w", "layers.-1.w"] {
            assert_eq!(fit("layers.{i}.w", other), None, "{other}");
        }
        assert_eq!(fit("{*}/Adam", "a/b/Adam"), Some(0));
        assert_eq!(fit("{*}/Adam", "/Adam"), None);
        assert_eq!(captured("a_{*}/b", "a_sts-b/b"), Some("sts-b"));
        assert_eq!(fill("a.{n}.b", "{n}", 3), "a.3.b");
        let leads = |source, to, name| destination(&rule(source, to, Operation::Copy), name, 7);
        assert_eq!(leads("{*}", "{*}", "a.0.b.1.c"), "a.0.b.1.c");
        assert_eq!(leads("x.{i}", "y.{i}", "x.7"), "y.7");
    }
}
