//! The way back of a run to its best evaluation: of one that diverges, at a lower learning rate (Melis 2023, §4.4), and of one that
//! fine-tunes (see `stages`).

use std::path::Path;

use segue_configs::NonFinite;
use segue_kernels::TrainError;

use super::doubles;
use super::event::Event;
use super::family::Family;
use super::learner::Learner;
use super::recovery::warn_of_refused;
use super::run::Run;
use super::search::newest_checkpoint;
use super::state::{Guard, TrainState};
use super::step::Engine;
use crate::checkpoint::{Check, find_up_to};

impl<L: Learner> Engine<'_, L> {
    /// Scales learning rates by what the run has gone through.
    pub(super) fn scale_rates(&mut self, state: &TrainState) {
        let lowered = state.guard.as_ref().map_or(1.0, |guard| guard.rate);
        let rate = match state.fine_tuning.round {
            0 => lowered,
            _ => lowered * self.config.average.fine_tuning_rate,
        };
        self.networks.iter_mut().for_each(|network| network.rate = rate);
    }
}

impl<F: Family> Run<'_, F> {
    fn restores_best(&self) -> bool {
        self.config.recovery.non_finite == NonFinite::RestoreBest
    }

    /// Writes down where a run begins that may have to go back there: before its first evaluation nothing else is the best. A collective
    /// call.
    pub(super) fn begin_guard(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        if !self.restores_best() || self.state.guard.is_some() {
            return Ok(());
        }
        self.state.guard = Some(Guard { step: self.state.step, rate: 1.0, ..Guard::default() });
        self.keeper.forget();
        self.checkpoint(on_event)
    }

    /// Takes note of an evaluation that counts, of the `loss` that is reported and that of the `trained` weights where it was found. Its checkpoint
    /// stays where it is the best, and the run goes back to the best one where it has diverged since. A collective call.
    pub(super) fn guard(
        &mut self,
        loss: f64,
        trained: Option<f64>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TrainError> {
        if !self.restores_best() && !self.fine_tunes() {
            return Ok(());
        }
        let guard = self.state.guard.clone().unwrap_or(Guard { rate: 1.0, ..Guard::default() });
        let agreed = doubles::of_first_rank([loss, trained.unwrap_or(loss)], self.comm)?;
        let (step, loss, best) = (self.state.step, agreed[0], guard.best);
        let recovery = &self.config.recovery;
        // What is reported may rise where an average gives way to another one, and training be as it was.
        let beside = trained.is_some() && recovery.judges_losses() && self.config.average.copies() > 0;
        let (judged, than) = match beside && loss.is_finite() {
            true => (agreed[1], guard.trained),
            false => (loss, best),
        };
        if self.restores_best() && recovery.diverged(judged, than) {
            let error = TrainError::Diverged { step, loss: judged, best: than };
            if self.state.recoveries >= recovery.at_most {
                // No checkpoint: the same command has to come here again.
                self.finish(on_event)?;
                return Err(error);
            }
            self.state.recoveries += 1;
            on_event(Event::Warning { what: error.to_string() });
            return self.restore_best(on_event);
        }
        let trained = match beside {
            true => Some(guard.trained.map_or(judged, |before| before.min(judged))),
            false => guard.trained,
        };
        if let Some(known) = &mut self.state.guard {
            known.trained = trained;
        }
        if loss.is_finite() && best.is_none_or(|best| loss < best) {
            self.state.guard = Some(Guard { best: Some(loss), step, trained, ..guard });
            // One of this step may know nothing of its evaluation.
            self.keeper.forget();
            self.checkpoint(on_event)?;
        }
        Ok(())
    }

    /// Goes on from weights and optimizer of the best evaluation, at a lower rate, where the data stands. At a lower rate alone where these are lost,
    /// so that the same update does not diverge again. A collective call.
    pub(super) fn restore_best(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let Some(mut guard) = self.state.guard.clone() else { return Ok(()) };
        let from = match self.load_best(guard.step, on_event)? {
            Some(from) => {
                self.engine.begin_averages_anew(&self.state.fine_tuning);
                self.engine.begin_carries();
                format!(" from the weights of step {from},")
            }
            None => String::new(),
        };
        guard.rate *= self.config.recovery.rate_factor;
        let what = format!(
            "step {}: training goes on{from} at {} of the learning rate",
            self.state.step, guard.rate
        );
        on_event(Event::Warning { what });
        self.state.guard = Some(guard);
        self.engine.scale_rates(&self.state);
        Ok(())
    }

    /// Fills the engine with the checkpoint of the best evaluation, which is that of step `best`. Where that is not there or not whole, with a
    /// warning, with the newest before it that is. Gives its step; none where there is none. A collective call.
    pub(super) fn load_best(
        &mut self,
        best: u64,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Option<u64>, TrainError> {
        self.keeper.wait(on_event)?;
        let mut refused = Vec::new();
        let find = |folder: &Path, check: Check| find_up_to(folder, best, &mut refused, check);
        let found = newest_checkpoint(&self.checkpoints(), self.comm, &self.engine.layout, find)?;
        let lost = if refused.is_empty() { "is not there" } else { "cannot be used" };
        warn_of_refused(refused, on_event);
        let from = match &found {
            Some((path, _)) => Some(self.restore_own(path)?.step),
            None => None,
        };
        // The disk was full when it was to be written, say.
        if from != Some(best) {
            let instead = match from {
                Some(step) => format!("that of step {step} stands in for it"),
                None => "training goes on as it is".into(),
            };
            on_event(Event::Warning { what: format!("the checkpoint of step {best} {lost}: {instead}") });
        }
        Ok(from)
    }
}
