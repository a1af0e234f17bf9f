/// Number of cells computed on either side of the diagonal, as in tercom.
const BEAM_WIDTH: usize = 25;

/// Cost of a cell outside the beam; adding one edit does not overflow.
const UNREACHED: u32 = u32::MAX / 2;

/// Levenshtein distance from hypotheses of one length to a reference, within a beam around the diagonal.
///
/// The beam is sacrebleu's: the diagonal's slope is the ratio of the lengths, and a slope so steep that the beams of two
/// rows would not overlap widens it. Row i and column j of the matrix are the distance from the first i words of the
/// hypothesis to the first j of the reference.
pub struct EditDistance<'a> {
    reference: &'a [u32],
    hypothesis_length: usize,
    /// Length of the reference divided by that of the hypothesis.
    slope: f64,
    beam_width: usize,
}

/// One step in turning the hypothesis into the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The words are the same.
    Keep,
    /// A word is replaced.
    Substitute,
    /// A word of the hypothesis is removed.
    Delete,
    /// A word of the reference is inserted.
    Insert,
}

impl<'a> EditDistance<'a> {
    /// Distance to `reference` from hypotheses of `hypothesis_length` words.
    pub fn new(reference: &'a [u32], hypothesis_length: usize) -> Self {
        let slope = match hypothesis_length {
            0 => 1.0,
            length => reference.len() as f64 / length as f64,
        };
        let steep = (slope / 2.0 + BEAM_WIDTH as f64).ceil() as usize;
        let beam_width = if slope / 2.0 > BEAM_WIDTH as f64 { steep } else { BEAM_WIDTH };
        Self { reference, hypothesis_length, slope, beam_width }
    }

    /// The reference.
    pub fn reference(&self) -> &'a [u32] {
        self.reference
    }

    /// Costs of the whole matrix, row by row.
    pub fn matrix(&self, words: &[u32]) -> Vec<Vec<u32>> {
        let mut rows: Vec<Vec<u32>> = Vec::with_capacity(words.len() + 1);
        rows.push((0..=self.reference.len() as u32).collect());
        for (above, word) in words.iter().enumerate() {
            let mut row = Vec::new();
            self.fill_row(above + 1, *word, &rows[above], &mut row);
            rows.push(row);
        }
        rows
    }

    /// Distance of `words`, given the row of their first `known` words: a shift changes no row before its first word.
    pub fn distance_from(&self, row: &[u32], known: usize, words: &[u32]) -> u32 {
        let (mut above, mut row) = (Vec::new(), row.to_vec());
        for (before, word) in words.iter().enumerate().skip(known) {
            std::mem::swap(&mut above, &mut row);
            self.fill_row(before + 1, *word, &above, &mut row);
        }
        row[self.reference.len()]
    }

    fn fill_row(&self, number: usize, word: u32, above: &[u32], row: &mut Vec<u32>) {
        row.clear();
        row.resize(self.reference.len() + 1, UNREACHED);
        for column in self.beam(number) {
            row[column] = match column {
                0 => above[0] + 1,
                _ => {
                    let substituted = above[column - 1] + u32::from(word != self.reference[column - 1]);
                    substituted.min(above[column] + 1).min(row[column - 1] + 1).min(UNREACHED)
                }
            };
        }
    }

    /// Columns of a row within the beam. The last row extends to its end.
    fn beam(&self, row: usize) -> std::ops::Range<usize> {
        let diagonal = (row as f64 * self.slope).floor() as usize;
        let columns = self.reference.len() + 1;
        let end =
            if row == self.hypothesis_length { columns } else { columns.min(diagonal + self.beam_width) };
        diagonal.saturating_sub(self.beam_width)..end
    }

    /// The edits along the cheapest path of the matrix, in the order of the words. Among equal costs, a substitution
    /// precedes a deletion and this an insertion, as in sacrebleu: the choice of shifts depends on it.
    pub fn edits(&self, matrix: &[Vec<u32>], words: &[u32]) -> Vec<Edit> {
        let (mut row, mut column) = (words.len(), self.reference.len());
        let mut edits = Vec::with_capacity(row + column);
        while row > 0 || column > 0 {
            let edit = self.edit_at(matrix, words, row, column);
            row -= usize::from(edit != Edit::Insert);
            column -= usize::from(edit != Edit::Delete);
            edits.push(edit);
        }
        edits.reverse();
        edits
    }

    fn edit_at(&self, matrix: &[Vec<u32>], words: &[u32], row: usize, column: usize) -> Edit {
        if row == 0 {
            return Edit::Insert;
        }
        if column == 0 {
            return Edit::Delete;
        }
        let cost = matrix[row][column];
        let (diagonal, is_same) = (matrix[row - 1][column - 1], words[row - 1] == self.reference[column - 1]);
        match cost {
            _ if is_same && cost == diagonal => Edit::Keep,
            _ if !is_same && cost == diagonal + 1 => Edit::Substitute,
            _ if cost == matrix[row - 1][column] + 1 => Edit::Delete,
            _ => Edit::Insert,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Levenshtein 1966 without a beam, by recursion on the last words.
    fn naive(words: &[u32], reference: &[u32]) -> u32 {
        match (words, reference) {
            ([], rest) | (rest, []) => rest.len() as u32,
            ([words @ .., last], [reference @ .., target]) => {
                let whole = [words, &[*last]].concat();
                let substituted = naive(words, reference) + u32::from(last != target);
                let deleted = naive(words, &[reference, &[*target]].concat()) + 1;
                substituted.min(deleted).min(naive(&whole, reference) + 1)
            }
        }
    }

    #[test]
    fn edits_of_equal_cost_have_an_order() {
        let distance = EditDistance::new(&[1, 2, 3], 2);
        let words = [9, 3];
        let matrix = distance.matrix(&words);
        assert_eq!(matrix[2][3], 2);
        assert_eq!(distance.edits(&matrix, &words), [Edit::Insert, Edit::Substitute, Edit::Keep]);
    }

    /// sacrebleu 2.6.0: `BeamEditDistance([str(i) for i in range(300)])(["0", "299"])` has 300 edits, where 298 would do:
    /// both matches lie outside the beam.
    #[test]
    fn a_reference_of_many_times_the_length_is_reached_within_the_beam() {
        let reference: Vec<u32> = (0..300).collect();
        let words = [0, 299];
        let distance = EditDistance::new(&reference, words.len());
        let matrix = distance.matrix(&words);
        assert_eq!(matrix[2][300], 300);
        assert_eq!(distance.edits(&matrix, &words).len(), 300);
    }

    proptest! {
        #[test]
        fn short_sentences_have_levenshteins_distance(words in vec(0_u32..3, 0..6), reference in vec(0_u32..3, 0..6)) {
            let distance = EditDistance::new(&reference, words.len());
            let matrix = distance.matrix(&words);
            let cost = matrix[words.len()][reference.len()];
            prop_assert_eq!(cost, naive(&words, &reference));
            let edits = distance.edits(&matrix, &words);
            prop_assert_eq!(cost as usize, edits.iter().filter(|edit| **edit != Edit::Keep).count());
            for (known, row) in matrix.iter().enumerate() {
                prop_assert_eq!(cost, distance.distance_from(row, known, &words));
            }
        }
    }
}
