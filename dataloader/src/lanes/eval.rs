use std::ops::Range;

use crate::sections::DocumentEnd;
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
/// Cut by [lines](EvalLanes::by_lines) or in [episodes](EvalLanes::in_episodes) pieces are whole lines, and the first token is a target too:
/// each piece, or each line, is predicted from an end-of-sequence token on.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalLanes {
    total: u64,
    lanes: usize,
    segment: usize,
    ext_len: usize,
    cut: Cut,
}

/// What pieces consist of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cut {
    /// Tokens, as many in each piece, save one.
    Tokens,
    /// Lines, as many in each piece, save one.
    Lines {
        /// Where each piece begins, and the last one ends.
        begins: Vec<u64>,
        /// What stands before a piece.
        eos: i64,
        /// The segments of each piece, where no two lines share one.
        episodes: Option<Vec<Vec<Span>>>,
    },
}

/// Targets of a lane in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// Position of the first.
    first: u64,
    count: usize,
    /// Whether it is the first of a text: the memory before it is fresh.
    begins: bool,
}

/// One step of a contiguous range of lanes in an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalBatch {
    /// Inputs of a lane before the one that predicts its first target.
    pub context: usize,
    /// Last inputs of a lane that come again as context of the next step.
    pub overlap: usize,
    /// Token ids, `[lanes, context + width]`, [`PADDING_ID`] after a lane's last input. The width is a segment, or the longest lane where that
    /// is shorter.
    pub inputs: Vec<i64>,
    /// The token after each input, `[lanes, width]`, [`PADDING_ID`] after a lane's last target.
    pub targets: Vec<i64>,
    /// Per lane: how many targets, from the left, are real.
    pub counts: Vec<usize>,
    /// The document that each input belongs to, `[lanes, context + width]`, where it matters.
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
        Ok(EvalLanes { total: total_tokens, lanes, segment, ext_len: 0, cut: Cut::Tokens })
    }

    /// Cuts where lines begin, at the positions `starts`. What comes before the first of them belongs to it.
    pub fn by_lines(self, starts: &[u64], eos: i64) -> EvalLanes {
        let number = |lane: usize| (lane as u128 * starts.len() as u128 / self.lanes as u128) as usize;
        let begin = |lane: usize| match number(lane) {
            0 => 0,
            number => starts.get(number).copied().unwrap_or(self.total),
        };
        let begins = (0..self.lanes).map(begin).chain([self.total]).collect();
        EvalLanes { cut: Cut::Lines { begins, eos, episodes: None }, ..self }
    }

    /// The same, and each line begins a segment of its own with a fresh memory.
    pub fn in_episodes(self, starts: &[u64], eos: i64) -> EvalLanes {
        let mut cut = self.by_lines(starts, eos);
        let of_line = |begin: u64, end: u64| {
            (begin..end).step_by(cut.segment).map(move |first| Span {
                first,
                count: (end - first).min(cut.segment as u64) as usize,
                begins: first == begin,
            })
        };
        let of_lane = |lane: usize| {
            let Range { start, end } = cut.targets(lane);
            let inside = starts.iter().copied().filter(|line| (start + 1..end).contains(line));
            let begins: Vec<u64> = [start].into_iter().chain(inside).chain([end]).collect();
            begins.windows(2).flat_map(|line| of_line(line[0], line[1])).collect()
        };
        let spans = (0..cut.lanes).map(of_lane).collect();
        if let Cut::Lines { episodes, .. } = &mut cut.cut {
            *episodes = Some(spans);
        }
        cut
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

    /// Number of predictions in all: every token, or every one but the first.
    pub fn total_targets(&self) -> u64 {
        match self.cut {
            Cut::Tokens => self.total - 1,
            Cut::Lines { .. } => self.total,
        }
    }

    /// The positions that a lane predicts.
    pub fn targets(&self, lane: usize) -> Range<u64> {
        if let Cut::Lines { begins, .. } = &self.cut {
            return begins[lane]..begins[lane + 1];
        }
        let (share, longer) =
            (self.total_targets() / self.lanes as u64, self.total_targets() % self.lanes as u64);
        let begin = |lane: u64| 1 + lane * share + lane.min(longer);
        begin(lane as u64)..begin(lane as u64 + 1)
    }

    /// Number of steps until every lane is done. All lanes take part in all of them, the last with padding.
    pub fn steps(&self) -> u64 {
        if let Cut::Lines { episodes: Some(spans), .. } = &self.cut {
            return spans.iter().map(Vec::len).max().unwrap_or(0) as u64;
        }
        self.longest().div_ceil(self.segment as u64)
    }

    /// Targets of the longest lane.
    fn longest(&self) -> u64 {
        let lengths =
            (0..self.lanes).map(|lane| self.targets(lane)).map(|targets| targets.end - targets.start);
        lengths.max().unwrap_or(0)
    }

    /// Number of real targets of a lane in a step.
    pub fn count(&self, lane: usize, step: u64) -> usize {
        self.span(lane, step).count
    }

    fn span(&self, lane: usize, step: u64) -> Span {
        let targets = self.targets(lane);
        if let Cut::Lines { episodes: Some(spans), .. } = &self.cut {
            let none = Span { first: targets.end, count: 0, begins: false };
            return spans[lane].get(step as usize).copied().unwrap_or(none);
        }
        let done = step.saturating_mul(self.segment as u64);
        let count = (targets.end - targets.start).saturating_sub(done).min(self.segment as u64) as usize;
        Span { first: targets.start.saturating_add(done), count, begins: step == 0 }
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
        let targets = self.longest().min(self.segment as u64) as usize;
        let width = context + targets;
        let mut batch = EvalBatch {
            context,
            overlap: width.min(self.ext_len),
            inputs: Vec::with_capacity(range.len() * width),
            targets: Vec::with_capacity(range.len() * targets),
            counts: Vec::with_capacity(range.len()),
            documents: None,
            restarts: Vec::with_capacity(range.len()),
        };
        let mut marks = Vec::with_capacity(range.len() * width);
        let (mut tokens, mut numbers) = (vec![PADDING_ID; width + 1], vec![0; width]);
        for lane in range {
            let Span { first, count, begins } = self.span(lane, step);
            let first_input = first.saturating_sub(1);
            tokens.fill(PADDING_ID);
            match (&self.cut, begins) {
                _ if count == 0 => {}
                (Cut::Lines { eos, .. }, true) => {
                    // Nothing comes before what begins.
                    tokens[context] = *eos;
                    stream.read(first, &mut tokens[context + 1..][..count])?;
                }
                _ => stream.read(first_input - context as u64, &mut tokens[..context + count + 1])?,
            }
            batch.inputs.extend_from_slice(&tokens[..width]);
            batch.targets.extend_from_slice(&tokens[context + 1..]);
            // The token that closes a ragged segment is a target only.
            if count < targets {
                let end = batch.inputs.len();
                batch.inputs[end - targets + count] = PADDING_ID;
            }
            batch.counts.push(count);
            let mut restarts = begins;
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

    /// Lines of these lengths, one after the other.
    fn lines(lengths: &[u64]) -> (Vec<u64>, u64) {
        let begins = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end - length)
        });
        (begins.collect(), lengths.iter().sum())
    }

    proptest! {
        /// And what begins a text is marked: a piece, or a line.
        /// Row M8.
        #[test]
        fn every_token_of_every_line_is_predicted_exactly_once(
            lengths in proptest::collection::vec(1u64..40, 1..60), lanes in 1usize..20, segment in 1usize..50,
        ) {
            let (starts, total) = lines(&lengths);
            prop_assume!(total >= 2);
            let whole = EvalLanes::new(total, lanes, segment).unwrap();
            let by_lines = whole.clone().by_lines(&starts, 0);
            let episodes = whole.in_episodes(&starts, 0);
            for cut in [by_lines, episodes] {
                let mut predicted = vec![0; total as usize];
                let mut begins = Vec::new();
                for lane in 0..lanes {
                    let mut next = cut.targets(lane).start;
                    for step in 0..cut.steps() {
                        let span = cut.span(lane, step);
                        prop_assert!(span.count == 0 || span.first == next);
                        if span.begins && span.count > 0 {
                            begins.push(next);
                        }
                        for _ in 0..span.count {
                            predicted[next as usize] += 1;
                            next += 1;
                        }
                    }
                    prop_assert_eq!(next, cut.targets(lane).end);
                    prop_assert_eq!(cut.count(lane, cut.steps()), 0);
                }
                prop_assert!(predicted.iter().all(|times| *times == 1));
                prop_assert_eq!(cut.total_targets(), total);
                prop_assert!(begins.iter().all(|position| starts.contains(position)));
                let episodic = matches!(&cut.cut, Cut::Lines { episodes: Some(_), .. });
                let texts = if episodic { lengths.len() } else { lanes.min(lengths.len()) };
                prop_assert_eq!(begins.len(), texts);
            }
        }

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
