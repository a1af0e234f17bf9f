//! What every update rule has.

use segue_kernels::{Parameters, TrainError};
use tch::Tensor;

use super::counts::Counts;
use super::piece::Piece;
use super::state::State;
use super::update::Update;

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
