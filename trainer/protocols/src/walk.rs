//! Splits read once from left to right, and the loss of every token on the way.

use std::ops::Range;

use segue_collectives::Communicator;
use segue_dataloader::{EvalLanes, TokenStream};
use segue_engine::{Share, Watch};
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_language::NextToken;
use tch::{Device, Kind, Tensor};

/// How a split is cut: into lanes that each begin with a fresh memory, of which a group goes in one forward pass.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    /// Lanes.
    pub lanes: usize,
    /// Lanes of one forward pass; what ranks take turns with.
    pub group: usize,
    /// Tokens of a lane in one forward pass.
    pub segment: usize,
    /// Read this many tokens of the split at most.
    pub tokens: u64,
}

/// A segment of a group of lanes.
pub(super) struct Piece {
    /// Ids, `[lanes, width]`, where the width is a segment, or the longest lane where that is shorter.
    pub inputs: Tensor,
    /// The id after each, `[lanes, width]`.
    pub targets: Tensor,
    /// Targets of each lane, from the left, that are no padding.
    pub counts: Vec<usize>,
    /// Its number in the walk.
    pub step: u64,
}

/// What masks of dropout a group of lanes gets in a segment: (group, segment).
pub(super) type Masks<'a> = &'a dyn Fn(usize, u64) -> Noise;

impl Walk {
    /// One lane, all of the split: every token has all of its past.
    pub fn whole(segment: usize) -> Self {
        Self { lanes: 1, group: 1, segment, tokens: u64::MAX }
    }

    /// Forward passes that go on from each other.
    pub(super) fn groups(&self) -> usize {
        self.lanes.div_ceil(self.group)
    }

    /// The lanes of a group.
    pub(super) fn lanes_of(&self, group: usize) -> Range<usize> {
        group * self.group..((group + 1) * self.group).min(self.lanes)
    }

    /// The cut of a stream.
    pub(super) fn cut(&self, stream: &TokenStream) -> Result<EvalLanes, TrainError> {
        Ok(EvalLanes::new(stream.len().min(self.tokens), self.lanes, self.segment)?)
    }

    /// How many tokens of a stream each lane predicts.
    pub fn lengths(&self, stream: &TokenStream) -> Result<Vec<usize>, TrainError> {
        let cut = self.cut(stream)?;
        let length = |lane| cut.targets(lane).end - cut.targets(lane).start;
        Ok((0..self.lanes).map(|lane| length(lane) as usize).collect())
    }

    /// The segments of a group, one after another, on `device`.
    pub(super) fn pieces<'a>(
        &self,
        stream: &'a TokenStream,
        group: usize,
        device: Device,
    ) -> Result<impl Iterator<Item = Result<Piece, TrainError>> + use<'a>, TrainError> {
        let (cut, lanes) = (self.cut(stream)?, self.lanes_of(group));
        let count = lanes.len() as i64;
        let rows = move |ids: &[i64]| Tensor::from_slice(ids).view([count, -1]).to_device(device);
        Ok((0..cut.steps()).map(move |step| {
            let batch = cut.batch(stream, lanes.clone(), step, None)?;
            let (inputs, targets) = (rows(&batch.inputs), rows(&batch.targets));
            Ok(Piece { inputs, targets, counts: batch.counts, step })
        }))
    }
}

impl Piece {
    /// The values of each lane's real targets out of `[lanes, width]`.
    pub fn real(&self, values: &Tensor) -> Vec<Vec<f64>> {
        let values = values.detach().to_device(Device::Cpu).to_kind(Kind::Double);
        let lane = |(lane, &count): (i64, &usize)| {
            let mut real = vec![0.0; count];
            values.get(lane).narrow(0, 0, count as i64).copy_data(&mut real, count);
            real
        };
        (0..).zip(&self.counts).map(lane).collect()
    }
}

/// −ln P of the targets of a group of lanes, in nats, lane after lane; with dropout where there are masks. `done` is called after each
/// segment.
pub(super) fn group_losses(
    model: &dyn NextToken,
    stream: &TokenStream,
    walk: &Walk,
    group: usize,
    masks: Option<Masks>,
    done: &mut dyn FnMut() -> Result<(), TrainError>,
) -> Result<Vec<f64>, TrainError> {
    let lanes = walk.lanes_of(group).len();
    let mut memory = model.memory_start(lanes as i64);
    let mut losses = vec![Vec::new(); lanes];
    for piece in walk.pieces(stream, group, model.parameters().options().1)? {
        let piece = piece?;
        let noise = masks.map(|masks| masks(group, piece.step));
        let (nll, next) =
            tch::no_grad(|| model.nll_with(&piece.inputs, &piece.targets, &memory, noise.as_ref()));
        losses.iter_mut().zip(piece.real(&nll)).for_each(|(lane, real)| lane.extend(real));
        memory = next;
        done()?;
    }
    Ok(losses.concat())
}

/// −ln P of every token but the first, in nats, in their order; the same bits at any number of ranks. A collective call.
pub fn token_losses(
    model: &dyn NextToken,
    stream: &TokenStream,
    walk: &Walk,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Vec<f64>, TrainError> {
    let share = Share::new(comm, walk.groups());
    let own = share.each(walk.cut(stream)?.steps(), watch, |group, done| {
        group_losses(model, stream, walk, group, None, done)
    })?;
    Ok(share.numbers(&own)?.concat())
}
