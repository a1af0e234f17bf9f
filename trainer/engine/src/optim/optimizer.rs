//! What every update rule has: an update, and counts of updates.

use segue_configs::{OptimConfig, OptimKind};
use segue_kernels::{Parameters, TrainError};
use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::adam::Adam;
use super::lamb::Lamb;
use super::piece::Piece;
use super::sgd::Sgd;
use super::state::State;

/// Gradients, and how they are applied.
#[derive(Clone, Copy)]
pub struct Update<'a> {
    /// Sums of gradients over the batch, one for each piece that the optimizer updates and of its shape. Those of whole tables may be sparse, with
    /// rows in rising order, where [`updates_rows`] says so.
    pub grads: &'a [Tensor],
    /// The sums are divided by it: the weight of the batch over the clipping factor.
    pub divisor: f64,
    /// Learning rate.
    pub lr: f64,
    /// Masks the parameters this step updates; `None` updates all.
    pub reached: Option<&'a [bool]>,
}

/// An update rule with its state.
pub trait Optimizer {
    /// Updates its pieces of `parameters` in place.
    fn update(&mut self, parameters: &Parameters, update: &Update) -> Result<(), TrainError>;

    /// What it keeps.
    fn state(&self) -> &State;

    /// The same, to go on from a checkpoint.
    fn state_mut(&mut self) -> &mut State;

    /// What it updates, and keeps state of.
    fn pieces(&self) -> &[Piece] {
        self.state().pieces()
    }

    /// State that a checkpoint stores: tables by name, each of one tensor a piece, in the pieces' order. A restart fills
    /// these tensors.
    fn tables(&self) -> Vec<(&'static str, &[Tensor])> {
        self.state().tables()
    }

    /// Updates made so far.
    fn counts(&self) -> &Counts {
        self.state().counts()
    }

    /// Continues from counts of a checkpoint, whose tables have been filled in by then.
    fn restore(&mut self, counts: Counts) {
        self.state_mut().restore(counts);
    }
}

/// The configured update rule with fresh state for these pieces of `parameters`. LAMB needs whole parameters, which the configuration is held to
/// (`train.shard`).
pub fn build(config: &OptimConfig, parameters: &Parameters, pieces: Vec<Piece>) -> Box<dyn Optimizer> {
    match config.kind {
        OptimKind::Adam | OptimKind::Adamw | OptimKind::Rmsprop | OptimKind::Radam => {
            Box::new(Adam::of_pieces(config, parameters, pieces))
        }
        OptimKind::Sgd => Box::new(Sgd::of_pieces(config, parameters, pieces)),
        OptimKind::Lamb => Box::new(Lamb::new(config, parameters)),
    }
}

/// Whether an update leaves rows that have no gradient as they are, and depends on none of them: gradients of tables may be sparse then. Rules
/// with moments move rows without a gradient too, decay does, and clipping takes a norm whose rounding is the whole table's.
pub fn updates_rows(config: &OptimConfig) -> bool {
    config.kind == OptimKind::Sgd && config.weight_decay == 0.0 && config.l2 == 0.0 && config.clip == 0.0
}

/// How often an optimizer has updated its parameters. Bias correction counts updates, not steps of the run: other
/// networks have steps of their own, and some steps reach a part of the parameters only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    updates: u64,
    /// Updates of each parameter; empty while every update has reached all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    by_parameter: Vec<u64>,
}

impl Counts {
    /// All parameters were updated `updates` times.
    pub fn all(updates: u64) -> Self {
        Self { updates, by_parameter: Vec::new() }
    }

    /// Updates of the optimizer.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Updates that reached parameter `i`.
    pub fn of(&self, i: usize) -> u64 {
        self.by_parameter.get(i).copied().unwrap_or(self.updates)
    }

    /// Whether they are of as many parameters.
    pub fn fit(&self, parameters: usize) -> bool {
        self.by_parameter.is_empty() || self.by_parameter.len() == parameters
    }

    /// Counts one update of those of `parameters` parameters that `reached` says, or of all.
    pub fn advance(&mut self, parameters: usize, reached: Option<&[bool]>) {
        if self.by_parameter.is_empty() && reached.is_some_and(|reached| reached.contains(&false)) {
            self.by_parameter = vec![self.updates; parameters];
        }
        self.updates += 1;
        for (i, count) in self.by_parameter.iter_mut().enumerate() {
            *count += u64::from(reached.is_none_or(|reached| reached[i]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_parameters_part_with_the_first_update_that_leaves_one_out() {
        let mut counts = Counts::all(5);
        counts.advance(3, None);
        counts.advance(3, Some(&[true, true, true]));
        assert_eq!(counts, Counts::all(7));
        counts.advance(3, Some(&[true, false, true]));
        counts.advance(3, None);
        assert_eq!((counts.updates(), [0, 1, 2].map(|i| counts.of(i))), (9, [9, 8, 9]));
        let stored = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<Counts>(&stored).unwrap(), counts);
    }
}
