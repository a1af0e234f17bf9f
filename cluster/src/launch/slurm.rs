//! Slurm's shorthand for nodes and their tasks. It multiplies: a few bytes stand for more than there is memory for, and are bounded by what a machine
//! could have.

use std::fmt::Write;

use super::source::{MOST_HOSTS, Source, malformed, number};
use crate::ClusterError;

/// Bytes of all names together: 256 for each host, one more than a name of DNS has.
const MOST_BYTES: usize = MOST_HOSTS * 256;
/// Brackets in a name: as many as the dimensions of a torus, and more.
const MOST_BRACKETS: usize = 8;
/// Digits of a number in such a bracket.
const WIDEST: usize = 20;

/// What `SLURM_JOB_NODELIST` holds, its names counted and not yet spelled out.
pub(super) struct NodeList<'a> {
    parts: Vec<Part<'a>>,
    /// How many names it stands for: [`MOST_HOSTS`] at most.
    pub nodes: usize,
}

/// A part of a list, between commas: `rack[1-2]n[1-4]`.
struct Part<'a> {
    brackets: Vec<Bracket<'a>>,
    after: &'a str,
}

struct Bracket<'a> {
    before: &'a str,
    ranges: Vec<Range>,
}

/// Numbers of one bracket, `01-03`, as wide as the first is written.
struct Range {
    first: usize,
    last: usize,
    width: usize,
}

impl<'a> NodeList<'a> {
    /// Reads a list such as `n1,gpu[01-03,7],login`, and with several brackets `rack[1-2]n[1-4]`.
    ///
    /// # Errors
    ///
    /// A list that Slurm does not write, one of more nodes than [`MOST_HOSTS`].
    pub fn read(list: &'a str) -> Result<Self, ClusterError> {
        let mut depth = 0;
        let outside = |c: char| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            c == ',' && depth == 0
        };
        let refused = || malformed("SLURM_JOB_NODELIST", list, "a list of nodes");
        let parts = list.strip_suffix(',').unwrap_or(list).split(outside).map(Part::read);
        let parts = parts.collect::<Option<Vec<_>>>().ok_or_else(refused)?;
        let nodes = parts.iter().fold(0_usize, |nodes, part| nodes.saturating_add(part.nodes()));
        if nodes > MOST_HOSTS {
            return Err(ClusterError::TooManyHosts { from: Source::Slurm, most: MOST_HOSTS });
        }
        let bytes = parts.iter().map(|part| part.nodes().saturating_mul(part.longest()));
        match bytes.fold(0, usize::saturating_add) > MOST_BYTES {
            true => Err(refused()),
            false => Ok(Self { parts, nodes }),
        }
    }

    /// The names, in the order of the list.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(self.nodes);
        for part in &self.parts {
            spell_out(&part.brackets, part.after, &mut String::new(), &mut names);
        }
        names
    }
}

impl<'a> Part<'a> {
    fn read(part: &'a str) -> Option<Self> {
        let (mut brackets, mut after) = (Vec::new(), part);
        while let Some((before, rest)) = after.split_once('[') {
            let (ranges, rest) = rest.split_once(']')?;
            let ranges = ranges.split(',').map(Range::read).collect::<Option<_>>()?;
            brackets.push(Bracket { before, ranges });
            after = rest;
        }
        let read = Self { brackets, after };
        let has_stray = read.literals().any(|literal| literal.contains(']'));
        (!part.is_empty() && !has_stray && read.brackets.len() <= MOST_BRACKETS).then_some(read)
    }

    fn literals(&self) -> impl Iterator<Item = &'a str> {
        self.brackets.iter().map(|bracket| bracket.before).chain([self.after])
    }

    /// How many names the part stands for; of a number that does not fit, the greatest that does.
    fn nodes(&self) -> usize {
        self.brackets.iter().map(Bracket::numbers).fold(1, usize::saturating_mul)
    }

    /// Bytes that no name of the part is longer than.
    fn longest(&self) -> usize {
        self.literals().map(str::len).sum::<usize>() + self.brackets.len() * WIDEST
    }
}

impl Bracket<'_> {
    fn numbers(&self) -> usize {
        self.ranges
            .iter()
            .map(|range| (range.last - range.first).saturating_add(1))
            .fold(0, usize::saturating_add)
    }
}

impl Range {
    fn read(range: &str) -> Option<Self> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = Some(first.len()).filter(|width| *width <= WIDEST)?;
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(Self { first, last, width })
    }
}

/// Adds the names that begin with `name`, go on with the brackets that are left and end with `after`. `name` is as before in the end.
fn spell_out(brackets: &[Bracket<'_>], after: &str, name: &mut String, names: &mut Vec<String>) {
    let begun = name.len();
    match brackets {
        [] => {
            name.push_str(after);
            names.push(name.clone());
        }
        [bracket, rest @ ..] => {
            name.push_str(bracket.before);
            let before = name.len();
            for range in &bracket.ranges {
                let width = range.width;
                for number in range.first..=range.last {
                    // Writing to a text does not fail.
                    let _ = write!(name, "{number:0width$}");
                    spell_out(rest, after, name, names);
                    name.truncate(before);
                }
            }
        }
    }
    name.truncate(begun);
}

/// The numbers of `SLURM_TASKS_PER_NODE`, such as `2(x3),1`: three nodes with two tasks, one with one. One for each of `nodes`.
///
/// # Errors
///
/// Another number of them, and what is not a number.
pub(super) fn slurm_tasks(text: &str, nodes: usize) -> Result<Vec<usize>, ClusterError> {
    const NAME: &str = "SLURM_TASKS_PER_NODE";
    let refused = || malformed(NAME, text, "a number for each node");
    let mut tasks = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, number(NAME, times.trim_end_matches(')'))?),
            None => (part, 1),
        };
        if times > nodes - tasks.len() {
            return Err(refused());
        }
        tasks.resize(tasks.len() + times, number(NAME, count)?);
    }
    (tasks.len() == nodes).then_some(tasks).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A text, and what each bracket behind it holds: as it is written, and the numbers that it stands for.
    fn part() -> impl Strategy<Value = (String, Vec<(String, Vec<String>)>)> {
        let range = (0..120usize, 0..12usize, 1..4usize);
        let bracket = proptest::collection::vec(range, 1..3).prop_map(|ranges| {
            let of = |(first, more, width): &(usize, usize, usize)| {
                let width = format!("{first:0width$}", width = *width).len();
                (*first..=first + more).map(|number| format!("{number:0width$}")).collect::<Vec<_>>()
            };
            let written = ranges.iter().map(|range| match &of(range)[..] {
                [one] => one.clone(),
                all => format!("{}-{}", all[0], all[all.len() - 1]),
            });
            (written.collect::<Vec<_>>().join(","), ranges.iter().flat_map(of).collect())
        });
        ("[a-z]{1,3}", proptest::collection::vec(bracket, 0..3))
    }

    proptest! {
        #[test]
        fn names_are_those_of_the_product(parts in proptest::collection::vec(part(), 1..4)) {
            let (mut list, mut expected) = (Vec::new(), Vec::new());
            for (literal, brackets) in parts {
                let (mut written, mut names) = (literal.clone(), vec![literal]);
                for (ranges, choices) in brackets {
                    written += &format!("[{ranges}]r");
                    let longer = |name: &String| choices.iter().map(|c| format!("{name}{c}r")).collect::<Vec<_>>();
                    names = names.iter().flat_map(longer).collect();
                }
                list.push(written);
                expected.extend(names);
            }
            let list = list.join(",");
            let read = NodeList::read(&list).unwrap();
            prop_assert_eq!((read.nodes, read.names()), (expected.len(), expected));
        }
    }
}
