use segue_kernels::Parameters;
use serde_json::Value;
use tch::Tensor;

use super::saved::named;
use super::{AveragingError, Candidate, CandidateLoss, Choice, Saved};

/// Averages of the weights of one network. All of it is a function of the weights and losses it is given: replicas that
/// give the same ones agree without talking to each other, and no random number is drawn.
pub trait Averaging {
    /// Takes in the weights after update number `step` (from 1). Once per update made: not per micro-step, and not for an
    /// update that was skipped.
    fn fold(&mut self, step: u64, parameters: &Parameters);

    /// After [`Averaging::fold`]: the weights that training goes on from, in the order of the parameters, where it is time for that. They are an
    /// average, of which this then holds nothing. `None`: from the trained ones, as nearly always.
    fn hand_over(&mut self, _step: u64) -> Option<Vec<Tensor>> {
        None
    }

    /// The weight sets to evaluate now, one to three. Averages of the same steps are offered once.
    fn candidates(&self) -> Vec<Candidate<'_>>;

    /// Takes note of the losses of [`Averaging::candidates`], one each and in their order, and chooses.
    ///
    /// Panics where their number is another.
    fn observe(&mut self, step: u64, losses: &[CandidateLoss], parameters: &Parameters) -> Choice;

    /// The same of an evaluation that decides nothing, such as one more at a run's end: a run made longer would remember it.
    fn compare(&mut self, step: u64, losses: &[CandidateLoss], parameters: &Parameters) -> Choice {
        self.observe(step, losses, parameters)
    }

    /// The weights to store as the model, in the order of the parameters; `None` for the trained ones.
    fn chosen(&self) -> Option<&[Tensor]>;

    /// What takes over where the trained weights have gone back to earlier ones: `fresh`, or this without its averages. What was reported best
    /// stays: it is the model of the run.
    fn begin_anew(self: Box<Self>, fresh: Box<dyn Averaging>) -> Box<dyn Averaging> {
        fresh
    }

    /// What a checkpoint holds besides tensors.
    fn state(&self) -> Value;

    /// Averages that a checkpoint holds besides [`Averaging::chosen`], by name, each in the order of the parameters.
    fn tables(&self) -> Vec<(&'static str, &[Tensor])> {
        Vec::new()
    }

    /// The same as `NAME.PARAMETER`, as a checkpoint names them. They share memory with the averages.
    fn named_tables(&self, parameters: &Parameters) -> Vec<(String, Tensor)> {
        let tables = self.tables().into_iter();
        tables.flat_map(|(name, tables)| named(name, tables, parameters)).collect()
    }

    /// Goes on from a checkpoint's state, tables and chosen weights.
    fn restore(&mut self, saved: Saved, parameters: &Parameters) -> Result<(), AveragingError>;
}
