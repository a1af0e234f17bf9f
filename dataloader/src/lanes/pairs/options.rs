use crate::sections::{MaskDraws, ObjectiveConfig, ObjectiveKind, PairsConfig, SegmentConfig, SpanKind};
use segue_configs::{ModelConfig, OwnSections, TrainConfig};
use segue_data_error::DataError;

/// How sequences of pairs are drawn: what a configuration says of it, checked there.
#[derive(Clone, Debug, PartialEq)]
pub struct PairOptions {
    pub(super) lanes: usize,
    pub(super) micro_batch: usize,
    pub(super) seed: u64,
    pub(super) bidirectional: bool,
    pub(super) draws: MaskDraws,
    pub(super) layout: Layout,
    pub(super) spans: Spans,
    pub(super) task: Task,
}

/// Lengths of a sequence and its parts, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The whole.
    pub(crate) segment: usize,
    /// Its first part, which enters the memory.
    pub(crate) reuse_len: usize,
    /// Windows in which the order is random; 0 for each part as a whole.
    pub(crate) perm_size: usize,
    /// Places for targets.
    pub(crate) targets: usize,
}

/// Which tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// What a span is made of.
    pub(crate) kind: SpanKind,
    /// About so many tokens ..
    pub(crate) mask_beta: usize,
    /// .. out of so many.
    pub(crate) mask_alpha: usize,
    /// Longest span.
    pub(crate) longest: usize,
}

/// What is to be done with the chosen tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Task {
    /// They are predicted one after the other in a random order.
    Permutation,
    /// They are corrupted and predicted all at once.
    Denoising {
        /// Share that become `<mask>`.
        mask_share: f64,
        /// Share that become a random piece.
        random_share: f64,
    },
}

impl PairOptions {
    /// What the configuration of a model that reads pairs says.
    pub fn of(train: &TrainConfig, model: &ModelConfig, own: &OwnSections) -> Result<PairOptions, DataError> {
        let Some(reuse_len) = model.reuse_len() else {
            let why = format!(
                "a {} reads no sequences of pairs\nhint: set model.model_type=xlnet",
                model.model_type()
            );
            return Err(DataError::Usage(why));
        };
        let (pairs, objective) = (own.get::<PairsConfig>(), own.get::<ObjectiveConfig>());
        let segment = own.get::<SegmentConfig>().segment;
        let task = match objective.kind {
            ObjectiveKind::Permutation => Task::Permutation,
            ObjectiveKind::Denoising => {
                Task::Denoising { mask_share: objective.mask_share, random_share: objective.random_share }
            }
            ObjectiveKind::Lm => {
                let why = "left-to-right training does not read pairs\nhint: set data.order=stream";
                return Err(DataError::Usage(why.into()));
            }
        };
        Ok(PairOptions {
            lanes: train.lanes,
            micro_batch: train.micro_batch,
            seed: train.seed,
            bidirectional: pairs.bidirectional,
            draws: pairs.draws,
            layout: Layout {
                segment,
                reuse_len,
                perm_size: pairs.perm_size,
                targets: pairs.targets(segment),
            },
            spans: Spans {
                kind: pairs.spans,
                mask_beta: pairs.mask_beta,
                mask_alpha: pairs.mask_alpha,
                longest: pairs.max_span,
            },
            task,
        })
    }

    /// The same over so many lanes, with random choices resampled as `draws` says.
    pub fn over(self, lanes: usize, draws: MaskDraws) -> Self {
        Self { lanes, draws, ..self }
    }

    /// Tokens of a sequence that are reused text, and the rest.
    pub fn parts(&self) -> (usize, usize) {
        (self.layout.reuse_len, self.layout.segment - self.layout.reuse_len)
    }

    /// Streams that the lanes read: two lanes read each, if one of them reads backwards.
    pub fn streams(&self) -> usize {
        if self.bidirectional { self.lanes / 2 } else { self.lanes }
    }

    /// The stream of a lane, and whether the lane reads it backwards.
    ///
    /// The first half of the lanes of each micro-batch read forwards, the second half read the same streams
    /// backwards, whichever ranks they are computed on. The reference lays the rows of a file out for a number of
    /// cores and goes wrong on any other.
    pub fn stream_of(&self, lane: usize) -> (usize, bool) {
        if !self.bidirectional {
            return (lane, false);
        }
        let (half, place) = (self.micro_batch / 2, lane % self.micro_batch);
        (lane / self.micro_batch * half + place % half, place >= half)
    }
}
