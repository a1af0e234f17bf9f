//! Ways in which lanes read a corpus: contiguous streams, lines, packed sentences, episodes, pairs of segments, evaluation pieces.

mod documents;
mod eval;
mod heads;
mod pairs;
mod records;
mod segments;
mod sentences;
mod stream;

use std::ops::Range;

use segue_data_error::DataError;
use serde::{Deserialize, Serialize};

pub use documents::Documents;
pub use eval::{EvalBatch, EvalLanes, PADDING_ID};
pub use heads::Heads;
pub use pairs::{PairLanes, PairOptions, PairSource, RecordLanes};
pub use records::{RecordRow, RecordSteps};
pub use segments::{Lengths, Segments};
pub use sentences::SentenceLanes;
pub use stream::StreamLanes;

/// Where a lane stands: a part of the training state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCursor {
    /// How often the lane has begun again.
    pub epoch: u64,
    /// Number of the sentence in the lane's order of this epoch; 0 for lanes that read a stream.
    #[serde(default)]
    pub sentence: u64,
    /// Tokens of the lane's piece, or of the sentence, that were inputs in this epoch.
    pub offset: u64,
    /// The memory of what came before is to be forgotten.
    #[serde(default)]
    pub forget: bool,
}

/// One step of a contiguous range of lanes.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Targets of a lane.
    pub segment: usize,
    /// Inputs of a lane before the one that predicts its first target.
    pub context: usize,
    /// Last inputs of a lane that come again as context of the next step.
    pub overlap: usize,
    /// Token ids, `[lanes, context + segment]`.
    pub inputs: Vec<i64>,
    /// The token after each of the last `segment` inputs, `[lanes, segment]`; with `pairs`, the tokens at
    /// their positions, `[lanes, targets]`.
    pub targets: Vec<i64>,
    /// What else a sequence of pairs comes with.
    pub pairs: Option<Pairs>,
    /// The document that each input belongs to, `[lanes, context + segment]`, where it matters.
    pub documents: Option<Vec<i64>>,
    /// Per lane: how many targets, from the left, are real, where not all are; [`PADDING_ID`] fills the rest.
    pub counts: Option<Vec<usize>>,
    /// Per lane: the lane's memory must be fresh before this step. Where parts of a memory are forgotten by themselves: as many entries a
    /// lane as it has parts.
    pub restarts: Vec<bool>,
    /// Per lane: where the next step begins.
    pub cursors_after: Vec<LaneCursor>,
}

impl Batch {
    /// Puts the lanes of `more` behind its own. Both are of one step, and of one shape.
    pub(crate) fn append(&mut self, more: Batch) {
        self.inputs.extend(more.inputs);
        self.targets.extend(more.targets);
        self.restarts.extend(more.restarts);
        self.cursors_after.extend(more.cursors_after);
        if let (Some(own), Some(more)) = (&mut self.documents, more.documents) {
            own.extend(more);
        }
        if let (Some(own), Some(more)) = (&mut self.counts, more.counts) {
            own.extend(more);
        }
        if let (Some(own), Some(more)) = (&mut self.pairs, more.pairs) {
            own.segments.extend(more.segments);
            own.ranks.extend(more.ranks);
            own.positions.extend(more.positions);
            own.weights.extend(more.weights);
            own.follows.extend(more.follows);
            own.reversed.extend(more.reversed);
        }
    }
}

/// Sequences of reused text, segment A and segment B for objectives that see both sides of a token
/// (Yang 2019, §2.2.2).
///
/// Rank says which positions see which: the content of position i sees position j where
/// `rank(j) <= rank(i)`, and a prediction at position i where `rank(j) < rank(i)`. One number a position
/// stands for the whole mask; memory is seen by all. Ranks are below `2 * segment + 2`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    /// Segment of each input, `[lanes, segment]`: 0 reused text and A, 1 B, 2 the last token.
    pub segments: Vec<i64>,
    /// Rank of each input, `[lanes, segment]`.
    pub ranks: Vec<i64>,
    /// Places of the targets in the sequence, `[lanes, targets]`, rising; 0 where there are fewer.
    pub positions: Vec<i64>,
    /// 1 for targets, 0 for the places that fill up a row, `[lanes, targets]`.
    pub weights: Vec<f32>,
    /// Per lane: B continues A.
    pub follows: Vec<bool>,
    /// Per lane: the text is read backwards. Of the lanes of a micro-batch all or none, or those of its second
    /// half.
    pub reversed: Vec<bool>,
}

/// A way of reading: what each lane yields is a function of its cursor and the step, never of the number of ranks.
pub trait Lanes: Send {
    /// Reads step `step` (from 1) of the lanes `range`, whose cursors are given in the same order.
    fn batch(&self, range: Range<usize>, cursors: &[LaneCursor], step: u64) -> Result<Batch, DataError>;
}

/// Refuses lanes that do not exist.
fn check_range(range: &Range<usize>, cursors: &[LaneCursor], lanes: usize) -> Result<(), DataError> {
    if range.end > lanes || range.len() != cursors.len() {
        return Err(DataError::Usage(format!(
            "lanes {range:?} with {} cursors do not fit a job of {lanes} lanes",
            cursors.len(),
        )));
    }
    Ok(())
}
