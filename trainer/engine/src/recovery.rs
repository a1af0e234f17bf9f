//! What follows a loss, a gradient or weights that are not finite: an end, a step left out, or a way back.

use std::path::Path;

use segue_configs::NonFinite;
use segue_kernels::TrainError;

use super::cursors::own_cursors;
use super::event::Event;
use super::family::Family;
use super::run::{Recovery, Run};
use super::search::newest_checkpoint;
use super::snapshot::restore;
use super::state::TrainState;
use crate::checkpoint::{Check, find_due};

/// Tells of checkpoints that a run would have gone back to.
pub(super) fn warn_of_refused(refused: Vec<String>, on_event: &mut dyn FnMut(Event)) {
    for why in refused {
        let what = format!("a checkpoint to go back to does not verify, and is set aside: {why}");
        on_event(Event::Warning { what });
    }
}

impl<F: Family> Run<'_, F> {
    /// Whether step `step` makes no update: somebody said so, or it was part of what went wrong.
    pub(super) fn leaves_out(&self, step: u64) -> bool {
        let asked = self.config.recovery.skipped().any(|steps| steps.contains(&step));
        asked || self.state.leaves_out(step)
    }

    /// Looks at what a checkpoint or an evaluation is to be made of. Where it is not finite the run goes back as `[recovery]` says, or ends; true
    /// where it stands at an earlier step. A collective call.
    pub(super) fn mend(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<bool, TrainError> {
        match self.spoiled()? {
            None => Ok(false),
            Some(error) => Ok(matches!(self.recover(self.state.step, error, on_event)?, Recovery::WentBack)),
        }
    }

    /// Decides after `error` of step `step`, on all ranks alike: the numbers that were not finite are those of all. A
    /// collective call.
    pub(super) fn recover(
        &mut self,
        step: u64,
        error: TrainError,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Recovery, TrainError> {
        let spoiled = self.spoiled()?;
        let recovery = &self.config.recovery;
        // No weights are mended by leaving a batch out.
        let ends = recovery.non_finite == NonFinite::Stop
            || recovery.non_finite == NonFinite::Skip && spoiled.is_some()
            || self.state.recoveries >= recovery.at_most;
        if ends {
            // Before the first step there is nothing to go on from: the run begins anew, with other keys if need be.
            if self.state.step > 0 && spoiled.is_none() {
                self.checkpoint(on_event)?;
            }
            return self.end_with(spoiled.unwrap_or(error), on_event);
        }
        self.state.recoveries += 1;
        on_event(Event::Warning { what: spoiled.as_ref().unwrap_or(&error).to_string() });
        match recovery.non_finite {
            NonFinite::RollBack if self.go_back(step, on_event)? => return Ok(Recovery::WentBack),
            NonFinite::RestoreBest => self.restore_best(on_event)?,
            _ => {}
        }
        if spoiled.is_some()
            && let Some(error) = self.spoiled()?
        {
            // There is nothing to go back to.
            return self.end_with(error, on_event);
        }
        self.state.leave_out(step, step);
        Ok(Recovery::LeftOut)
    }

    /// Ends the run with `error`, once what is being written is on the disk.
    pub(super) fn end_with<T>(
        &mut self,
        error: TrainError,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<T, TrainError> {
        self.finish(on_event)?;
        Err(error)
    }

    /// Takes the newest checkpoint of those that every run of this configuration has, and leaves out the steps from there
    /// up to `step`; false where there is no checkpoint that is whole.
    fn go_back(&mut self, step: u64, on_event: &mut dyn FnMut(Event)) -> Result<bool, TrainError> {
        self.keeper.wait(on_event)?;
        let mut refused = Vec::new();
        let every = self.config.checkpoint.every;
        let find = |folder: &Path, check: Check| find_due(folder, every, &mut refused, check);
        let found = newest_checkpoint(&self.checkpoints(), self.comm, &self.engine.layout, find)?;
        warn_of_refused(refused, on_event);
        let Some((path, _)) = found else { return Ok(false) };
        let stored = self.restore_own(&path)?;
        self.state.go_back_to(stored);
        self.engine.scale_rates(&self.state);
        self.cursors = own_cursors(&self.state, &self.engine, Some(&path))?;
        // What was read ahead is of steps that are not made again.
        self.sources.clear();
        let to = self.state.step;
        self.state.leave_out(to + 1, step);
        // Killed from here on, the run knows what it has left out.
        self.keeper.forget();
        self.checkpoint(on_event)?;
        on_event(Event::RolledBack { to, evaluated: self.state.evaluated });
        Ok(true)
    }

    /// Fills the engine from a checkpoint of this very run, whatever keys it has changed since.
    pub(super) fn restore_own(&mut self, path: &Path) -> Result<TrainState, TrainError> {
        let all = self.config.to_json();
        let sections: Vec<String> =
            all.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        Ok(restore(path, &sections, &self.family, &mut self.engine)?.0)
    }
}
