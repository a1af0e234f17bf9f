use serde::{Deserialize, Serialize};

use crate::corpus::Split;

/// Which of a sequence of documents belong to a split. What a document falls to depends on its number alone, and every
/// split's documents are spread evenly over the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordFilter {
    pub(crate) shares: [f64; 3],
    pub(crate) split: Split,
}

impl RecordFilter {
    /// Whether document `number`, counted from zero, belongs to the split.
    pub(crate) fn takes(&self, number: u64) -> bool {
        split_of(self.shares, number) == self.split
    }
}

/// The split that a document falls to: valid wherever its growing share passes half of a whole number, test likewise
/// among the rest.
pub(crate) fn split_of(shares: [f64; 3], number: u64) -> Split {
    let rounded = |share: f64, count: u64| (share * count as f64 + 0.5).floor() as u64;
    let [_, valid, test] = shares;
    if rounded(valid, number + 1) > rounded(valid, number) {
        return Split::Valid;
    }
    let rest = number - rounded(valid, number);
    let test_of_rest = if valid < 1.0 { test / (1.0 - valid) } else { 0.0 };
    match rounded(test_of_rest, rest + 1) > rounded(test_of_rest, rest) {
        true => Split::Test,
        false => Split::Train,
    }
}

/// Where train, valid and test begin and end in a stream of bytes. Valid and test get their shares rounded down, and
/// train the rest, as the enwik8 and text8 preparation has it.
pub(crate) fn byte_marks(shares: [f64; 3], total: u64) -> [u64; 4] {
    // The tolerance keeps 0.05 of 100,000,000 at 5,000,000 although 0.05 has no exact binary form.
    let part = |share: f64| ((share * total as f64 + 1e-6).floor() as u64).min(total);
    let (valid, test) = (part(shares[1]), part(shares[2]));
    let train_end = total.saturating_sub(valid + test);
    [0, train_end, (train_end + valid).min(total), total]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn enwik8_is_cut_as_published() {
        let marks = byte_marks([0.9, 0.05, 0.05], 100_000_000);
        assert_eq!(marks, [0, 90_000_000, 95_000_000, 100_000_000]);
    }

    proptest! {
        #[test]
        fn every_split_gets_its_share_of_documents(valid in 0.0..0.4f64, test in 0.0..0.4f64, count in 1u64..5000) {
            let shares = [1.0 - valid - test, valid, test];
            let mut counts = [0.0; 3];
            for number in 0..count {
                counts[split_of(shares, number) as usize] += 1.0;
            }
            for (found, share) in counts.iter().zip(shares) {
                prop_assert!((found - share * count as f64).abs() <= 2.0, "{counts:?} of {shares:?}");
            }
        }

        #[test]
        fn marks_ascend(valid in 0.0..0.5f64, test in 0.0..0.5f64, total in 0u64..1 << 50) {
            let marks = byte_marks([1.0 - valid - test, valid, test], total);
            prop_assert!(marks.is_sorted() && marks[3] == total);
        }
    }
}
