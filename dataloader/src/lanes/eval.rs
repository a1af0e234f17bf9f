use std::ops::Range;

use segue_configs::DocumentEnd;
use segue_data_error::DataError;

use super::Documents;
use crate::corpus::TokenStream;

/// Fills the places of a ragged segment that hold no token; no loss is taken there.
pub const PADDING_ID: i64 = 0;

/// How the tokens of a split are cut into lanes for evaluation: every token but the first is the target of exactly
/// one prediction, at any number of lanes and any segment length.
///
/// The targets `1..total` are cut in `lanes` contiguous pieces whose lengths differ by at most one. The first target
/// of a piece is predicted from the token just before it, which is the last target of the piece before.
///
/// ```
/// use segue_dataloader::EvalLanes;
///
/// let cut = EvalLanes::new(10, 2, 4)?;
/// assert_eq!((cut.targets(0), cut.targets(1)), (1..6, 6..10));
/// assert_eq!(cut.steps(), 2);
/// assert_eq!((cut.count(0, 0), cut.count(0, 1), cut.count(1, 1)), (4, 1, 0));
/// # Ok::<(), segue_data_error::DataError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalLanes {
    total: u64,
    lanes: usize,
    segment: usize,
    ext_len: usize,
}

/// One step of a contiguous range of lanes in an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalBatch {
    /// Inputs of a lane before the one that predicts its first target.
    pub context: usize,
    /// Last inputs of a lane that come again as context of the next step.
    pub overlap: usize,
    /// Token ids, `[lanes, context + segment]`, [`PADDING_ID`] after a lane's last input.
    pub inputs: Vec<i64>,
    /// The token after each input, `[lanes, segment]`, [`PADDING_ID`] after a lane's last target.
    pub targets: Vec<i64>,
    /// Per lane: how many targets, from the left, are real.
    pub counts: Vec<usize>,
    /// The document that each input belongs to, `[lanes, context + segment]`, where it matters.
    pub documents: Option<Vec<i64>>,
    /// Per lane: the lane's memory must be fresh before this step.
    pub restarts: Vec<bool>,
}

impl EvalLanes {
    /// Cuts a stream of `total_tokens` in `lanes` pieces that are read in segments of `segment` tokens.
    pub fn new(total_tokens: u64, lanes: usize, segment: usize) -> Result<EvalLanes, DataError> {
        if lanes == 0 || segment == 0 {
            return Err(DataError::Usage("lanes and segment must be at least 1".into()));
        }
        if total_tokens < 2 {
            return Err(DataError::EmptyInput {
                why: format!("an evaluation needs at least 2 tokens and the split has {total_tokens}"),
            });
        }
        Ok(EvalLanes { total: total_tokens, lanes, segment, ext_len: 0 })
    }

    /// Reads up to `ext_len` tokens before each segment again, as its context; none from before the lane's piece.
    pub fn with_context(self, ext_len: usize) -> EvalLanes {
        EvalLanes { ext_len, ..self }
    }

    /// Number of lanes over the whole job.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Tokens a lane yields per step.
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// Number of predictions in all: every token but the first.
    pub fn total_targets(&self) -> u64 {
        self.total - 1
    }

    /// The positions that a lane predicts.
    pub fn targets(&self, lane: usize) -> Range<u64> {
        let (share, longer) =
            (self.total_targets() / self.lanes as u64, self.total_targets() % self.lanes as u64);
        let begin = |lane: u64| 1 + lane * share + lane.min(longer);
        begin(lane as u64)..begin(lane as u64 + 1)
    }

    /// Number of steps until every lane is done. All lanes take part in all of them, the last with padding.
    pub fn steps(&self) -> u64 {
        let longest = self.total_targets().div_ceil(self.lanes as u64);
        longest.div_ceil(self.segment as u64)
    }

    /// Number of real targets of a lane in a step.
    pub fn count(&self, lane: usize, step: u64) -> usize {
        let targets = self.targets(lane);
        let done = step.saturating_mul(self.segment as u64);
        (targets.end - targets.start).saturating_sub(done).min(self.segment as u64) as usize
    }

    /// Reads a step of the lanes `range`, with the marks that the policy for a document's end needs.
    pub fn batch(
        &self,
        stream: &TokenStream,
        range: Range<usize>,
        step: u64,
        documents: Option<(&Documents, DocumentEnd)>,
    ) -> Result<EvalBatch, DataError> {
        if range.end > self.lanes {
            return Err(DataError::Usage(format!("lanes {range:?} of {}", self.lanes)));
        }
        let done = step * self.segment as u64;
        let context = done.min(self.ext_len as u64) as usize;
        let width = context + self.segment;
        let mut batch = EvalBatch {
            context,
            overlap: width.min(self.ext_len),
            inputs: Vec::with_capacity(range.len() * width),
            targets: Vec::with_capacity(range.len() * self.segment),
            counts: Vec::with_capacity(range.len()),
            documents: None,
            restarts: Vec::with_capacity(range.len()),
        };
        let mut marks = Vec::with_capacity(range.len() * width);
        let (mut tokens, mut numbers) = (vec![PADDING_ID; width + 1], vec![0; width]);
        for lane in range {
            let count = self.count(lane, step);
            let first_input = self.targets(lane).start - 1 + done;
            tokens.fill(PADDING_ID);
            if count > 0 {
                stream.read(first_input - context as u64, &mut tokens[..context + count + 1])?;
            }
            batch.inputs.extend_from_slice(&tokens[..width]);
            batch.targets.extend_from_slice(&tokens[context + 1..]);
            // The token that closes a ragged segment is a target only.
            if count < self.segment {
                let end = batch.inputs.len();
                batch.inputs[end - self.segment + count] = PADDING_ID;
            }
            batch.counts.push(count);
            let mut restarts = step == 0;
            if let Some((documents, policy)) = documents {
                documents.fill(first_input - context as u64, &mut numbers)?;
                marks.extend_from_slice(&numbers);
                let before = first_input.saturating_sub(self.segment as u64);
                restarts |=
                    policy == DocumentEnd::Reset && documents.at(before)? != documents.at(first_input)?;
            }
            batch.restarts.push(restarts);
        }
        if matches!(documents, Some((_, DocumentEnd::Mask))) {
            batch.documents = Some(marks);
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_split_of_one_token_has_nothing_to_predict() {
        assert_eq!(EvalLanes::new(1, 1, 1).unwrap_err().exit_code(), 65);
        assert_eq!(EvalLanes::new(10, 0, 1).unwrap_err().exit_code(), 64);
    }

    proptest! {
        #[test]
        fn no_target_is_dropped_or_counted_twice(total in 2u64..3000, lanes in 1usize..70, segment in 1usize..90) {
            let cut = EvalLanes::new(total, lanes, segment).unwrap();
            let mut predicted = vec![0; total as usize];
            for lane in 0..lanes {
                let mut next = cut.targets(lane).start;
                for step in 0..cut.steps() {
                    for _ in 0..cut.count(lane, step) {
                        predicted[next as usize] += 1;
                        next += 1;
                    }
                }
                prop_assert_eq!(cut.count(lane, cut.steps()), 0);
            }
            prop_assert_eq!(predicted[0], 0);
            prop_assert!(predicted[1..].iter().all(|times| *times == 1));
        }

        #[test]
        fn pieces_differ_by_at_most_one(total in 2u64..1 << 50, lanes in 1usize..5000) {
            let cut = EvalLanes::new(total, lanes, 1).unwrap();
            let lengths = (0..lanes).map(|lane| cut.targets(lane)).map(|t| t.end - t.start);
            let (least, most) = lengths.fold((u64::MAX, 0), |(least, most), l| (least.min(l), most.max(l)));
            prop_assert!(most - least <= 1);
            prop_assert_eq!(cut.targets(lanes - 1).end, total);
        }
    }
}
