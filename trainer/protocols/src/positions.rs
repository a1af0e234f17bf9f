//! The choice of positions of a split to evaluate.

use std::collections::BTreeSet;
use std::ops::Range;

use segue_data_error::DataError;
use segue_kernels::TrainError;
use segue_random::{Purpose, Stream};

/// `count` positions of `range` at even distances; all of them where there are no more than that.
pub fn spread_positions(range: Range<u64>, count: u64) -> Vec<u64> {
    let length = range.end.saturating_sub(range.start);
    if count >= length {
        return range.collect();
    }
    // 128 bits: a product of two positions may not fit into 64.
    let place = |i: u64| (u128::from(i) * u128::from(length) / u128::from(count)) as u64;
    (0..count).map(|i| range.start + place(i)).collect()
}

/// Uniform bits as a number below `limit`.
pub(super) fn scaled(bits: u64, limit: u64) -> u64 {
    ((u128::from(bits) * u128::from(limit)) >> 64) as u64
}

/// `count` different positions of `range`, drawn from `seed`, in rising order. A range with fewer is an
/// error.
pub fn drawn_positions(range: Range<u64>, count: u64, seed: u64) -> Result<Vec<u64>, TrainError> {
    let length = range.end.saturating_sub(range.start);
    if count > length {
        let why = format!(
            "the split has {length} positions with a context that long, fewer than the {count} asked for; ask for \
             fewer, or for shorter contexts"
        );
        return Err(DataError::Usage(why).into());
    }
    let stream = Stream::new(seed, Purpose::Evaluation, &[0]);
    let mut drawn = BTreeSet::new();
    // Floyd's sampling: each set of `count` positions is as likely as any other.
    for (i, last) in (length - count..length).enumerate() {
        let candidate = scaled(stream.bits(i as u64), last + 1);
        let position = if drawn.contains(&candidate) { last } else { candidate };
        drawn.insert(position);
    }
    Ok(drawn.into_iter().map(|position| range.start + position).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_positions_are_even_and_inside() {
        assert_eq!(spread_positions(10..20, 4), [10, 12, 15, 17]);
        assert_eq!(spread_positions(10..13, 4), [10, 11, 12]);
        assert!(spread_positions(5..5, 4).is_empty());
    }

    #[test]
    fn drawn_positions_are_different_and_reach_every_place() {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let drawn = drawn_positions(100..110, 4, seed).unwrap();
            assert!(drawn.windows(2).all(|w| w[0] < w[1]) && drawn.len() == 4);
            seen.extend(drawn);
        }
        assert_eq!(seen, (100..110).collect());
        assert_eq!(drawn_positions(3..6, 3, 1).unwrap(), [3, 4, 5]);
        assert_eq!(drawn_positions(3..6, 4, 1).unwrap_err().exit_code(), 64);
    }
}
