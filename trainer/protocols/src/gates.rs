//! How far the gates of a recurrent model stand open on a text (Melis 2023, §2.3.4).

use segue_collectives::Communicator;
use segue_data_error::DataError;
use segue_dataloader::TokenStream;
use segue_engine::{Share, Watch};
use segue_kernels::TrainError;
use segue_language::NextToken;
use serde::Serialize;
use tch::{Device, Kind, Tensor};

use super::walk::Walk;

/// Mean and variance of values that come in pieces (Chan et al. 1983).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    count: f64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl Moments {
    /// Of all values of a tensor.
    pub fn of(values: &Tensor) -> Self {
        let count = values.numel() as f64;
        if count == 0.0 {
            return Self::default();
        }
        let values = values.to_device(Device::Cpu).to_kind(Kind::Double);
        let mean = values.mean(Kind::Double).double_value(&[]);
        let squares = (values - mean).square().sum(Kind::Double).double_value(&[]);
        Self { count, mean, squares }
    }

    /// Of these values and `other`'s.
    pub fn join(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let apart = other.mean - self.mean;
        Self {
            count,
            mean: self.mean + apart * other.count / count,
            squares: self.squares + other.squares + apart * apart * self.count * other.count / count,
        }
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The mean squared distance from the mean.
    pub fn variance(&self) -> f64 {
        self.squares / self.count
    }
}

/// Moments of a gate over all values of a text: positions times width.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct GateMoments {
    /// Mean.
    pub mean: f64,
    /// Variance.
    pub variance: f64,
}

/// The gates of a layer.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LayerGates {
    /// f.
    pub forget: GateMoments,
    /// i, as it is before a cap; of a tied gate 1 − f.
    pub input: GateMoments,
    /// o.
    pub output: GateMoments,
}

/// Gates of a layer: f, i and o.
const GATES: usize = 3;
/// Numbers that moments are sent as.
const NUMBERS: usize = 3;

/// Reads a split and gives the moments of each layer's gates; the same bits at any number of ranks. Fails where the model has no such gates. A
/// collective call.
pub fn gate_moments(
    model: &dyn NextToken,
    stream: &TokenStream,
    walk: &Walk,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Vec<LayerGates>, TrainError> {
    let share = Share::new(comm, walk.groups());
    let own = share.each(walk.cut(stream)?.steps(), watch, |group, done| {
        let moments = of_group(model, stream, walk, group, done)?;
        Ok(moments.iter().flat_map(|m| [m.count, m.mean, m.squares]).collect::<Vec<f64>>())
    })?;
    let mut joined: Vec<Moments> = Vec::new();
    for part in share.numbers(&own)? {
        let moments = part.chunks_exact(NUMBERS).map(|n| Moments { count: n[0], mean: n[1], squares: n[2] });
        join_all(&mut joined, moments);
    }
    let gate = |moments: &Moments| GateMoments { mean: moments.mean(), variance: moments.variance() };
    let layer =
        |of: &[Moments]| LayerGates { forget: gate(&of[0]), input: gate(&of[1]), output: gate(&of[2]) };
    Ok(joined.chunks_exact(GATES).map(layer).collect())
}

/// Adds moments, one for each gate of each layer.
fn join_all(to: &mut Vec<Moments>, moments: impl Iterator<Item = Moments>) {
    for (i, moments) in moments.enumerate() {
        match to.get_mut(i) {
            Some(before) => *before = before.join(moments),
            None => to.push(moments),
        }
    }
}

/// Moments of f, i and o of each layer over the real positions of a group of lanes.
fn of_group(
    model: &dyn NextToken,
    stream: &TokenStream,
    walk: &Walk,
    group: usize,
    done: &mut dyn FnMut() -> Result<(), TrainError>,
) -> Result<Vec<Moments>, TrainError> {
    let mut memory = model.memory_start(walk.lanes_of(group).len() as i64);
    let mut moments = Vec::new();
    for piece in walk.pieces(stream, group, model.parameters().options().1)? {
        let piece = piece?;
        let Some((layers, next)) = model.gates(&piece.inputs, &memory) else {
            let why = "the model has no forget, input and output gates\nhint: gates are of `model.cell` lstm, mlstm and rewired";
            return Err(DataError::Usage(why.into()).into());
        };
        let real = |gate: &Tensor| {
            let lanes = (0..).zip(&piece.counts);
            let lane = lanes.map(|(lane, &count)| Moments::of(&gate.get(lane).narrow(0, 0, count as i64)));
            lane.fold(Moments::default(), Moments::join)
        };
        join_all(&mut moments, layers.iter().flatten().map(real));
        memory = next;
        done()?;
    }
    Ok(moments)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row M22.
    #[test]
    fn moments_of_pieces_are_those_of_all_values_at_once() {
        let values: Vec<f64> = (0..10_007).map(|i| 1e3 + (0.37 * f64::from(i)).sin() * 2.0).collect();
        // Two passes.
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64;
        for piece in [1, 7, 1000, 20_000] {
            let pieces = values.chunks(piece).map(|piece| Moments::of(&Tensor::from_slice(piece)));
            let found = pieces.fold(Moments::default(), Moments::join);
            assert!((found.mean() / mean - 1.0).abs() < 1e-12, "{piece}: {}", found.mean());
            assert!((found.variance() / variance - 1.0).abs() < 1e-12, "{piece}: {}", found.variance());
        }
        let empty = Moments::of(&Tensor::zeros([0], (Kind::Float, Device::Cpu)));
        assert_eq!(empty.join(Moments::default()), Moments::default());
    }
}
