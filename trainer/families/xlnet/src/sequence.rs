//! What the model reads: a segment of each lane, and who sees whom in it.

use tch::Tensor;

/// Which positions of a sequence see which. Memory is seen by all.
#[derive(Clone, Copy)]
pub enum Visibility<'a> {
    /// Every position sees every other.
    All,
    /// The content of every position sees itself and those before, as many as `same_length` says; a prediction sees those
    /// before.
    Before,
    /// By rank in the order of prediction.
    Ranks {
        /// `[batch, segment]`: the content of i sees j where `rank(j) <= rank(i)`, a prediction at i where
        /// `rank(j) < rank(i)`.
        ranks: &'a Tensor,
        /// Positions before this one see none from it on; 0 where there is no such place.
        halves_at: i64,
    },
    /// One by one, `[batch, segment, segment]`: true where query i must not see key j. A position's content
    /// sees itself all the same.
    Blocked(&'a Tensor),
}

/// One segment of each lane, as the model reads it.
#[derive(Clone, Copy)]
pub struct Sequence<'a> {
    /// Token ids, `[batch, segment]`.
    pub ids: &'a Tensor,
    /// Segment of each, `[batch, segment]`; without, segments play no part. Memory is segment 0.
    pub segments: Option<&'a Tensor>,
    /// Which position sees which.
    pub visibility: Visibility<'a>,
    /// Positions to predict, `[batch, targets]`: those the query stream is computed for.
    pub targets: Option<&'a Tensor>,
    /// Rows at the end of the batch that hold text read backwards.
    pub reversed: i64,
    /// Whether the last layer's content is wanted beside the predictions.
    pub content: bool,
}

impl<'a> Sequence<'a> {
    /// A sequence whose positions all see each other, as fine-tuning reads it.
    pub fn new(ids: &'a Tensor) -> Self {
        Self { ids, segments: None, visibility: Visibility::All, targets: None, reversed: 0, content: true }
    }
}
