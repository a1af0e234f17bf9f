use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::corpus::TokenStream;
use crate::error::DataError;

/// How a token stream is cut into lanes.
///
/// Lane `i` of `lanes` owns the tokens `i * lane_tokens .. (i + 1) * lane_tokens`; up to `lanes - 1` tokens at the
/// end of the stream belong to no lane. A lane is read from its start in segments; where less than one segment and
/// one more target are left, the lane begins again. Lanes are numbered over the whole job, so what a lane yields
/// does not depend on the number of ranks.
///
/// ```
/// use segue_dataloader::{LaneCursor, Lanes};
///
/// let lanes = Lanes::new(100, 4, 8)?;
/// assert_eq!(lanes.lane_tokens(), 25);
/// // Three segments of 8 inputs fit with their targets; then the lane begins again.
/// let last = LaneCursor { epoch: 0, offset: 16 };
/// let after = LaneCursor { epoch: 0, offset: 24 };
/// assert_eq!(lanes.advance(last), (last, after));
/// assert_eq!(lanes.advance(after).0, LaneCursor { epoch: 1, offset: 0 });
/// # Ok::<(), segue_dataloader::DataError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    lanes: usize,
    segment: usize,
    lane_tokens: u64,
}

/// Where a lane stands: a part of the training state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCursor {
    /// How often the lane has begun again.
    pub epoch: u64,
    /// Tokens of the lane that were inputs in this epoch.
    pub offset: u64,
}

/// One step of a contiguous range of lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Token ids, `[lanes, segment]`.
    pub inputs: Vec<i64>,
    /// The token after each input, `[lanes, segment]`.
    pub targets: Vec<i64>,
    /// Per lane: this step begins at the start of the lane, so the lane's memory must be empty before it.
    pub restarts: Vec<bool>,
    /// Per lane: where the next step begins.
    pub cursors_after: Vec<LaneCursor>,
}

impl Lanes {
    /// Cuts a stream of `total_tokens` in `lanes` pieces that are read in segments of `segment` tokens.
    pub fn new(total_tokens: u64, lanes: usize, segment: usize) -> Result<Lanes, DataError> {
        if lanes == 0 || segment == 0 {
            return Err(DataError::Usage("lanes and segment must be at least 1".into()));
        }
        let lane_tokens = total_tokens / lanes as u64;
        let needed = segment as u64 + 1;
        if lane_tokens < needed {
            return Err(DataError::LaneTooShort { lane_tokens, lanes, segment, needed, total: total_tokens });
        }
        Ok(Lanes { lanes, segment, lane_tokens })
    }

    /// Number of lanes over the whole job.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Tokens a lane yields per step.
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// Tokens a lane owns.
    pub fn lane_tokens(&self) -> u64 {
        self.lane_tokens
    }

    /// Steps until a lane begins again.
    pub fn steps_per_epoch(&self) -> u64 {
        (self.lane_tokens - 1) / self.segment as u64
    }

    /// Where the step at `cursor` really begins (the start of the lane, if too little is left), and where the
    /// step after it begins.
    pub fn advance(&self, cursor: LaneCursor) -> (LaneCursor, LaneCursor) {
        let segment = self.segment as u64;
        let fits = cursor.offset.checked_add(segment).is_some_and(|end| end < self.lane_tokens);
        let begin = if fits { cursor } else { LaneCursor { epoch: cursor.epoch + 1, offset: 0 } };
        (begin, LaneCursor { offset: begin.offset + segment, ..begin })
    }

    /// Reads the next step of the lanes `range`, whose cursors are given in the same order.
    pub fn batch(
        &self,
        stream: &TokenStream,
        range: Range<usize>,
        cursors: &[LaneCursor],
    ) -> Result<Batch, DataError> {
        if range.end > self.lanes || range.len() != cursors.len() {
            return Err(DataError::Usage(format!(
                "lanes {range:?} with {} cursors do not fit a job of {} lanes",
                cursors.len(),
                self.lanes
            )));
        }
        let size = range.len() * self.segment;
        let mut batch = Batch {
            inputs: Vec::with_capacity(size),
            targets: Vec::with_capacity(size),
            restarts: Vec::with_capacity(range.len()),
            cursors_after: Vec::with_capacity(range.len()),
        };
        let mut tokens = vec![0; self.segment + 1];
        for (lane, cursor) in range.zip(cursors) {
            let (begin, after) = self.advance(*cursor);
            stream.read(lane as u64 * self.lane_tokens + begin.offset, &mut tokens)?;
            batch.inputs.extend_from_slice(&tokens[..self.segment]);
            batch.targets.extend_from_slice(&tokens[1..]);
            batch.restarts.push(begin.offset == 0);
            batch.cursors_after.push(after);
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lane_too_short_for_one_segment_says_what_to_change() {
        let error = Lanes::new(99, 10, 9).unwrap_err();
        let text = error.to_string();
        for part in ["9 tokens", "fewer lanes (now 10)", "segment of 9 needs 10", "now 99 tokens"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert_eq!(error.exit_code(), 65);
        assert!(Lanes::new(100, 10, 9).is_ok());
        assert_eq!(Lanes::new(100, 0, 9).unwrap_err().exit_code(), 64);
    }

    proptest! {
        /// Against a list of the positions that a plain loop over one lane visits.
        #[test]
        fn a_lane_visits_every_whole_segment_once_an_epoch(
            segment in 1usize..40, extra in 1u64..200, lanes in 1usize..5,
        ) {
            let lane_tokens = segment as u64 + extra;
            let cut = Lanes::new(lane_tokens * lanes as u64, lanes, segment).unwrap();
            let mut expected = Vec::new();
            let mut position = 0;
            while position + (segment as u64) < lane_tokens {
                expected.push(position);
                position += segment as u64;
            }
            prop_assert_eq!(cut.steps_per_epoch(), expected.len() as u64);
            let mut cursor = LaneCursor::default();
            for epoch in 0..3 {
                for offset in &expected {
                    let (begin, after) = cut.advance(cursor);
                    prop_assert_eq!(begin, LaneCursor { epoch, offset: *offset });
                    cursor = after;
                }
            }
        }

        #[test]
        fn any_cursor_leads_to_a_readable_step(
            total in 2u64..1 << 40, lanes in 1usize..1000, segment in 1usize..5000, offset: u64, epoch in 0..u64::MAX / 2,
        ) {
            if let Ok(cut) = Lanes::new(total, lanes, segment) {
                let (begin, _) = cut.advance(LaneCursor { epoch, offset });
                prop_assert!(begin.offset + (segment as u64) < cut.lane_tokens());
                prop_assert!(cut.lane_tokens() * lanes as u64 <= total);
            }
        }
    }
}
