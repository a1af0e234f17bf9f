use std::cmp::Reverse;

use super::edit_distance::{Edit, EditDistance};

/// Largest number of words in a shift, as in tercom.
const MAX_SHIFT_LENGTH: usize = 10;
/// Largest distance, in words, between a block's places in hypothesis and reference, as in tercom.
const MAX_SHIFT_DISTANCE: usize = 50;
/// Largest number of shifts tried for a sentence, over all rounds, as in sacrebleu.
const MAX_TRIED: usize = 1000;

/// Least number of edits that turn the hypothesis into the reference, where the shift of a block of words counts as one
/// (Snover et al. 2006, §3): a greedy search with the limits of tercom and sacrebleu.
pub fn count_edits(hypothesis: &[u32], reference: &[u32]) -> u64 {
    if reference.is_empty() {
        return hypothesis.len() as u64;
    }
    let distance = EditDistance::new(reference, hypothesis.len());
    let (mut words, mut shifts, mut tried) = (hypothesis.to_vec(), 0, 0);
    loop {
        let matrix = distance.matrix(&words);
        let best = best_shift(&distance, &matrix, &words, &mut tried);
        match best {
            // At the limit sacrebleu drops the shift that it has found.
            Some(shift) if shift.gain > 0 && tried < MAX_TRIED => words = shift.apply(&words),
            _ => return shifts + u64::from(matrix[words.len()][reference.len()]),
        }
        shifts += 1;
    }
}

/// A block of the hypothesis and where it goes. The order of the fields is tercom's ranking of shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shift {
    /// Number of edits it saves.
    gain: i64,
    length: usize,
    start: Reverse<usize>,
    /// Index of the word before which the block goes, in the hypothesis before the shift.
    target: Reverse<usize>,
}

impl Shift {
    fn apply(self, words: &[u32]) -> Vec<u32> {
        let (Reverse(start), Reverse(target)) = (self.start, self.target);
        let end = start + self.length;
        let mut shifted = [&words[..start], &words[end..]].concat();
        // A target within the block moves it on by that many words, as in sacrebleu.
        let place = if target > end { target - self.length } else { target.min(shifted.len()) };
        shifted.splice(place..place, words[start..end].iter().copied());
        shifted
    }

    /// Number of leading words that the shift leaves in place.
    fn kept(self) -> usize {
        self.start.0.min(self.target.0)
    }
}

/// The shift that saves the most edits, of all blocks that the reference has elsewhere; `tried` counts the shifts.
fn best_shift(
    distance: &EditDistance<'_>,
    matrix: &[Vec<u32>],
    words: &[u32],
    tried: &mut usize,
) -> Option<Shift> {
    let reference = distance.reference();
    let cost = i64::from(matrix[words.len()][reference.len()]);
    let alignment = Alignment::of(&distance.edits(matrix, words));
    let mut best = None;
    for block in matching_blocks(words, reference).filter(|block| alignment.is_worth_a_shift(block)) {
        for target in alignment.targets(&block) {
            let (start, target) = (Reverse(block.hypothesis), Reverse(target));
            let mut shift = Shift { gain: 0, length: block.length, start, target };
            let kept = shift.kept();
            shift.gain = cost - i64::from(distance.distance_from(&matrix[kept], kept, &shift.apply(words)));
            best = best.max(Some(shift));
            *tried += 1;
        }
        if *tried >= MAX_TRIED {
            break;
        }
    }
    best
}

/// Consecutive words that occur in both sentences.
struct Block {
    /// Index of its first word in the hypothesis.
    hypothesis: usize,
    /// Index of its first word in the reference.
    reference: usize,
    length: usize,
}

/// All blocks, ordered by place in the hypothesis, place in the reference and length.
fn matching_blocks<'a>(words: &'a [u32], reference: &'a [u32]) -> impl Iterator<Item = Block> + 'a {
    let places = (0..words.len()).flat_map(|start| (0..reference.len()).map(move |other| (start, other)));
    let near = places.filter(|(start, other)| start.abs_diff(*other) <= MAX_SHIFT_DISTANCE);
    near.flat_map(|(start, other)| {
        let pairs = words[start..].iter().zip(&reference[other..]).take(MAX_SHIFT_LENGTH);
        let longest = pairs.take_while(|(word, target)| word == target).count();
        (1..=longest).map(move |length| Block { hypothesis: start, reference: other, length })
    })
}

/// Alignment of the words of both sentences by the cheapest edits, and which of them are wrong.
#[derive(Default)]
struct Alignment {
    /// For each word of the reference, the number of words of the hypothesis up to and including the one aligned to it.
    places: Vec<usize>,
    is_wrong_in_hypothesis: Vec<bool>,
    is_wrong_in_reference: Vec<bool>,
}

impl Alignment {
    fn of(edits: &[Edit]) -> Self {
        let mut alignment = Self::default();
        for edit in edits {
            let is_wrong = *edit != Edit::Keep;
            if *edit != Edit::Insert {
                alignment.is_wrong_in_hypothesis.push(is_wrong);
            }
            if *edit != Edit::Delete {
                alignment.is_wrong_in_reference.push(is_wrong);
                alignment.places.push(alignment.is_wrong_in_hypothesis.len());
            }
        }
        alignment
    }

    /// Whether the block is wrong in the hypothesis, missing in the reference and aligned outside itself.
    fn is_worth_a_shift(&self, block: &Block) -> bool {
        let any = |is_wrong: &[bool], start| is_wrong[start..start + block.length].contains(&true);
        let own = block.hypothesis + 1..=block.hypothesis + block.length;
        any(&self.is_wrong_in_hypothesis, block.hypothesis)
            && any(&self.is_wrong_in_reference, block.reference)
            && !own.contains(&self.places[block.reference])
    }

    /// Places before the block's first word in the reference and after each of its words, without repetition.
    fn targets(&self, block: &Block) -> Vec<usize> {
        let before = if block.reference == 0 { 0 } else { self.places[block.reference - 1] };
        let mut targets = vec![before];
        targets.extend(&self.places[block.reference..block.reference + block.length]);
        targets.dedup();
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shifted(start: usize, length: usize, target: usize) -> Vec<u32> {
        let (start, target) = (Reverse(start), Reverse(target));
        Shift { gain: 0, length, start, target }.apply(&[0, 1, 2, 3, 4, 5])
    }

    /// sacrebleu 2.6.0: `lib_ter._perform_shift([0, 1, 2, 3, 4, 5], start, length, target)`.
    #[test]
    fn blocks_move_before_their_target() {
        assert_eq!(shifted(3, 2, 1), [0, 3, 4, 1, 2, 5]);
        assert_eq!(shifted(1, 2, 5), [0, 3, 4, 1, 2, 5]);
        assert_eq!(shifted(1, 2, 2), [0, 3, 1, 2, 4, 5]);
        assert_eq!(shifted(3, 2, 5), [0, 1, 2, 5, 3, 4]);
        assert_eq!(shifted(0, 1, 6), [1, 2, 3, 4, 5, 0]);
    }

    #[test]
    fn a_shift_counts_as_one_edit() {
        assert_eq!(count_edits(&[7, 8, 1, 2, 3], &[1, 2, 3, 7, 8]), 1);
        assert_eq!(count_edits(&[1, 2, 3], &[]), 3);
        assert_eq!(count_edits(&[], &[1, 2]), 2);
        assert_eq!(count_edits(&[2, 1], &[1, 2]), 1);
    }
}
