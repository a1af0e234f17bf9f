//! Rows ranked against each other (Yang 2019, §2.2.3): QNLI's sentences of one question, WNLI's readings of one
//! sentence.

use std::path::Path;

use ahash::AHashMap;
use segue_data_error::DataError;

use super::data::{Answer, Records, Row, Split, TaskData};
use super::example::{Example, Kind, Target};
use super::rows::Encoded;
use super::sieve::Sieve;

impl TaskData {
    /// Of rows that compete, the number of the label of the best one; none where no rows compete.
    pub fn ranked_label(&self) -> Option<u32> {
        let is_best = |label: &String| label == "entailment" || label == "1";
        let place = self.labels.iter().position(is_best).filter(|_| self.labels.len() == 2);
        (self.kind == Kind::Choice).then_some(place).flatten().map(|place| place as u32)
    }
}

/// A split whose rows with the same first text are one example, a sequence each. The right option is the one row with
/// the label `best`. For training, groups of one row and groups without exactly one such row are left out.
pub(super) fn split_of(
    name: &str,
    path: &Path,
    encoded: Vec<Encoded>,
    best: u32,
    training: bool,
    fingerprint: String,
    mut sieve: Sieve,
) -> Result<Split, DataError> {
    let mut groups: Vec<Vec<Encoded>> = Vec::new();
    let mut of_text: AHashMap<String, usize> = AHashMap::new();
    let mut order: Vec<(usize, u32)> = Vec::new();
    for row in encoded {
        let group = *of_text.entry(row.asked.first.clone()).or_insert(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        order.push((group, groups[group].len() as u32));
        groups[group].push(row);
    }
    let useful: Vec<bool> =
        groups.iter().map(|group| !training || right_option(group, best).is_some()).collect();
    if training {
        note_left_out(&groups, &useful, &mut sieve);
    }
    let places: Vec<u32> = useful
        .iter()
        .scan(0, |next, useful| Some(std::mem::replace(next, *next + u32::from(*useful))))
        .collect();
    let kept = order.into_iter().filter(|(group, _)| useful[*group]);
    let rows: Vec<Row> = kept
        .map(|(group, sequence)| {
            let asked = &groups[group][sequence as usize].asked;
            let (index, gold) = (asked.index.clone(), asked.gold.clone());
            Row { index, example: places[group], sequence, gold, group: None }
        })
        .collect();
    if rows.is_empty() {
        let why = "no two rows of it belong together, so there is nothing to rank\nhint: set \
            task.loss=standard";
        return Err(DataError::line(path, 1, why));
    }
    let examples = groups.into_iter().zip(&useful).filter(|(_, useful)| **useful);
    let examples = examples.map(|(group, _)| example(group, best)).collect();
    let (records, skipped) = (Records::Rows(rows), sieve.done());
    Ok(Split { name: name.into(), examples, records, skipped, fingerprint, submission: None })
}

/// The place of the only row with the label `best` among two or more.
fn right_option(group: &[Encoded], best: u32) -> Option<u32> {
    let mut right = (0..).zip(group).filter(|(_, row)| row.asked.gold == Target::Class(best));
    let (only, more) = (right.next(), right.next());
    only.filter(|_| more.is_none() && group.len() > 1).map(|(place, _)| place)
}

fn example(group: Vec<Encoded>, best: u32) -> Example {
    let target = right_option(&group, best).map_or(Target::Unknown, Target::Option);
    Example { sequences: group.into_iter().map(|row| row.sequence).collect(), target }
}

fn note_left_out(groups: &[Vec<Encoded>], useful: &[bool], sieve: &mut Sieve) {
    let left_out = || groups.iter().zip(useful).filter(|(_, useful)| !**useful).map(|(group, _)| group);
    let (single, total) = (left_out().filter(|group| group.len() == 1).count(), left_out().count());
    if total > 0 {
        let rows: usize = left_out().map(Vec::len).sum();
        sieve.note(format!(
            "{rows} rows of {total} groups were left out of training: {single} groups of one row, {} without exactly \
             one right row",
            total - single
        ));
    }
}

/// Answers of rows that compete, from the scores of each example's sequences: of every group the row with the highest
/// score has the label `best`, the others have not. A group of one row has it where its score is at least the middle
/// between the mean of the highest scores and the mean of all others in the groups of more rows; 0 where there are
/// no such groups.
///
/// # Panics
///
/// If there are not as many scores as the rows' examples have sequences.
pub fn rank_answers(rows: &[Row], scores: &[Vec<f32>], best: u32) -> Vec<Answer> {
    let highest: Vec<u32> = scores.iter().map(|scores| place_of_highest(scores)).collect();
    let threshold = threshold(scores, &highest);
    let answer = |row: &Row| {
        let scores = &scores[row.example as usize];
        let wins = match scores.len() {
            1 => f64::from(scores[0]) >= threshold,
            _ => highest[row.example as usize] == row.sequence,
        };
        Answer::Class(if wins { best } else { 1 - best.min(1) })
    };
    rows.iter().map(answer).collect()
}

fn place_of_highest(scores: &[f32]) -> u32 {
    let mut highest = 0;
    for (place, score) in scores.iter().enumerate() {
        if score.total_cmp(&scores[highest]).is_gt() {
            highest = place;
        }
    }
    highest as u32
}

fn threshold(scores: &[Vec<f32>], highest: &[u32]) -> f64 {
    let (mut best, mut others) = ((0.0, 0u64), (0.0, 0u64));
    for (group, highest) in scores.iter().zip(highest).filter(|(group, _)| group.len() > 1) {
        for (place, score) in (0..).zip(group) {
            let sum = if place == *highest { &mut best } else { &mut others };
            sum.0 += f64::from(*score);
            sum.1 += 1;
        }
    }
    if best.1 == 0 { 0.0 } else { (best.0 / best.1 as f64 + others.0 / others.1 as f64) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(example: u32, sequence: u32) -> Row {
        Row { index: String::new(), example, sequence, gold: Target::Unknown, group: None }
    }

    /// Row X28.
    #[test]
    fn the_best_of_a_group_wins_and_single_rows_are_measured_by_the_groups() {
        // Of the groups the best are 2, 4, 3 (mean 3), the others -3, 1, -1, 1 (mean -1/2): the middle is 1.25.
        let scores = [vec![2.0, -3.0], vec![1.0, 4.0, -1.0], vec![1.2], vec![1.3], vec![1.0, 3.0]];
        let rows = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (4, 0), (4, 1)];
        let rows: Vec<Row> = rows.iter().map(|(example, sequence)| row(*example, *sequence)).collect();
        let wins = |best: u32| -> Vec<bool> {
            let answers = rank_answers(&rows, &scores, best);
            answers.iter().map(|answer| *answer == Answer::Class(best)).collect()
        };
        assert_eq!(wins(0), [true, false, false, true, false, false, true, false, true]);
        assert_eq!(wins(0), wins(1));
        let alone = rank_answers(&[row(0, 0), row(1, 0)], &[vec![0.1], vec![-0.1]], 1);
        assert_eq!(alone, [Answer::Class(1), Answer::Class(0)]);
    }
}
