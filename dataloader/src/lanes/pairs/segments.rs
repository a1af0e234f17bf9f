use std::ops::Range;

use segue_data_error::DataError;
use segue_random::Draws;

use super::edges::View;

/// Probability that segment B is taken from anywhere, where the text has an edge to cut it at.
const RANDOM_SHARE: f64 = 0.5;

/// Segments A and B of a sequence, as positions of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    pub(super) a: Range<u64>,
    pub(super) b: Range<u64>,
    /// B continues A, but for what was trimmed off A's end.
    pub(super) follows: bool,
}

impl Segments {
    /// Draws segments of `total` tokens together, A from `begin` on, with `begin + total` inside the view: the
    /// reference's `_split_a_and_b`.
    ///
    /// A ends at any of the sentence edges within `total` tokens. B is what follows up to the next edge, or, one time
    /// in two and where there is no edge, a random stretch of the rest widened to whole sentences. Then the longer of
    /// the two loses tokens at its right end. The last token of the view is never in a random B: the reference
    /// needs one more as a target.
    pub(super) fn draw(
        view: &View<'_>,
        begin: u64,
        total: u64,
        draws: &mut Draws,
    ) -> Result<Segments, DataError> {
        let mut cuts = Vec::new();
        let mut edge = view.edge_from(begin + 1)?;
        while edge < begin + total {
            cuts.push(edge);
            edge = view.edge_from(edge + 1)?;
        }
        let follows = !cuts.is_empty() && draws.uniform() >= RANDOM_SHARE;
        let cut = match cuts.len() as u64 {
            0 => edge,
            n => cuts[draws.below(n) as usize],
        };
        let b = match follows {
            true => cut..edge,
            false => random_stretch(view, total.saturating_sub(cut - begin).max(1), draws)?,
        };
        let (a_len, b_len) = trim(cut - begin, b.end - b.start, total);
        Ok(Segments { a: begin..begin + a_len, b: b.start..b.start + b_len, follows })
    }
}

/// So many tokens from anywhere, widened to whole sentences.
fn random_stretch(view: &View<'_>, length: u64, draws: &mut Draws) -> Result<Range<u64>, DataError> {
    let last = view.len() - 1;
    let start = draws.below(last - length + 1);
    Ok(view.edge_until(start)?..view.edge_from(start + length)?.min(last))
}

/// Takes tokens off the longer of two lengths, off the second where they are equal, until they make `total`.
fn trim(a: u64, b: u64, total: u64) -> (u64, u64) {
    let (half_a, half_b) = (total - total / 2, total / 2);
    if b <= half_b {
        (total - b, b)
    } else if a <= half_a {
        (a, total - a)
    } else {
        (half_a, half_b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token by token, as the rule is told.
    fn trimmed_slowly(mut a: u64, mut b: u64, total: u64) -> (u64, u64) {
        while a + b > total {
            if a > b { a -= 1 } else { b -= 1 }
        }
        (a, b)
    }

    #[test]
    fn trimming_at_once_is_trimming_token_by_token() {
        for total in 1..30 {
            for a in 1..40u64 {
                for b in (1..40).filter(|b| a + b >= total) {
                    assert_eq!(trim(a, b, total), trimmed_slowly(a, b, total), "{a} {b} {total}");
                }
            }
        }
    }
}
