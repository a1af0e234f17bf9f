//! Slurm's shorthand for nodes and their tasks. It multiplies: a few bytes stand for more than there is memory for, and are bounded by what a machine
//! could have.

use super::hosts::{MOST, malformed, number};
use crate::ClusterError;

/// Bytes of all names together.
const MOST_BYTES: usize = 1 << 25;
/// Brackets in a name: as many as the dimensions of a torus, and more.
const MOST_BRACKETS: usize = 8;
/// Digits of a number in such a bracket.
const WIDEST: usize = 20;

/// The names of `SLURM_JOB_NODELIST`: `n1,gpu[01-03,7],login`, and with several brackets `rack[1-2]n[1-4]`.
pub fn slurm_names(list: &str) -> Result<Vec<String>, ClusterError> {
    let mut names = Vec::new();
    let mut bytes = MOST_BYTES;
    let mut depth = 0;
    let outside = |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    };
    for part in list.strip_suffix(',').unwrap_or(list).split(outside) {
        let of_part = multiplied(part, MOST - names.len(), &mut bytes);
        names.extend(of_part.ok_or_else(|| malformed("SLURM_JOB_NODELIST", list, "a list of nodes"))?);
    }
    Ok(names)
}

/// The names of one part of a list, no more than `most`, and of no more than `bytes`, of which they are taken.
fn multiplied(part: &str, most: usize, bytes: &mut usize) -> Option<Vec<String>> {
    let (mut names, mut rest) = (vec![String::new()], part);
    if part.matches('[').count() > MOST_BRACKETS {
        return None;
    }
    loop {
        let (literal, bracket) = rest.split_once('[').unwrap_or((rest, ""));
        let is_last = literal.len() == rest.len();
        let (ranges, after) = if is_last { ("", "") } else { bracket.split_once(']')? };
        let endings = if is_last { vec![String::new()] } else { slurm_numbers(ranges, most)? };
        let longest = |of: &[String]| of.iter().map(String::len).max().unwrap_or(0);
        let count = names.len().checked_mul(endings.len()).filter(|count| *count <= most)?;
        let all = count.checked_mul(longest(&names) + literal.len() + longest(&endings))?;
        (all <= *bytes).then_some(())?;
        names = names
            .iter()
            .flat_map(|name| endings.iter().map(move |end| format!("{name}{literal}{end}")))
            .collect();
        if is_last {
            *bytes -= all;
            return Some(names)
                .filter(|names| !names.iter().any(|name| name.is_empty() || name.contains(']')));
        }
        rest = after;
    }
}

/// The numbers of `01-03,7`, as wide as they are written, no more than `most`.
fn slurm_numbers(ranges: &str, most: usize) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        let width = Some(first.len()).filter(|width| *width <= WIDEST)?;
        if from > to || to - from >= most.saturating_sub(numbers.len()) {
            return None;
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

/// The numbers of `SLURM_TASKS_PER_NODE`, such as `2(x3),1`: three nodes with two tasks, one with one.
pub fn slurm_tasks(text: &str) -> Result<Vec<usize>, ClusterError> {
    const NAME: &str = "SLURM_TASKS_PER_NODE";
    let mut tasks = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, number(NAME, times.trim_end_matches(')'))?),
            None => (part, 1),
        };
        if times > MOST - tasks.len() {
            return Err(malformed(NAME, text, "a number for each node"));
        }
        tasks.resize(tasks.len() + times, number(NAME, count)?);
    }
    Ok(tasks)
}
