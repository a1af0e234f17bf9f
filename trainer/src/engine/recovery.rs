//! What follows a loss or a gradient that is not finite: an end, a step left out, or a way back.

use std::path::Path;

use segue_configs::NonFinite;

use super::cursors::own_cursors;
use super::event::Event;
use super::family::Family;
use super::run::Run;
use super::search::newest_checkpoint;
use super::snapshot::restore;
use super::state::TrainState;
use crate::TrainError;
use crate::checkpoint::{Check, find_due};

/// How a run goes on after a step that made no update.
pub(super) enum Recovery {
    /// The step is left out.
    LeftOut,
    /// The run stands where an earlier checkpoint does.
    WentBack,
}

impl<F: Family> Run<'_, F> {
    /// Whether step `step` makes no update: somebody said so, or it was part of what went wrong.
    pub(super) fn leaves_out(&self, step: u64) -> bool {
        let asked = self.config.recovery.skipped().any(|steps| steps.contains(&step));
        asked || self.state.leaves_out(step)
    }

    /// Decides after `error` of step `step`, on all ranks alike: the numbers that were not finite are those of all. A
    /// collective call.
    pub(super) fn recover(
        &mut self,
        step: u64,
        error: TrainError,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Recovery, TrainError> {
        self.engine.settle()?;
        let recovery = &self.config.recovery;
        if recovery.non_finite == NonFinite::Stop || self.state.recoveries >= recovery.at_most {
            // Before the first step there is nothing to go on from: the run begins anew, with other keys if need be.
            if self.state.step > 0 {
                self.checkpoint(on_event)?;
                self.finish(on_event)?;
            }
            return Err(error);
        }
        self.state.recoveries += 1;
        on_event(Event::Warning { what: error.to_string() });
        match recovery.non_finite {
            NonFinite::RollBack if self.go_back(step, on_event)? => return Ok(Recovery::WentBack),
            NonFinite::RestoreBest => self.restore_best(on_event)?,
            _ => {}
        }
        self.state.leave_out(step, step);
        Ok(Recovery::LeftOut)
    }

    /// Takes the newest checkpoint of those that every run of this configuration has, and leaves out the steps from there
    /// up to `step`; false where there is no checkpoint.
    fn go_back(&mut self, step: u64, on_event: &mut dyn FnMut(Event)) -> Result<bool, TrainError> {
        self.keeper.wait(on_event)?;
        let find = |folder: &Path, check: Check| find_due(folder, self.config.checkpoint.every, check);
        let found = newest_checkpoint(&self.checkpoints(), self.comm, &self.engine.layout, find)?;
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
        let mut config = self.config.clone();
        let sections = config.to_json();
        config.recovery.allow_change =
            sections.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
        Ok(restore(path, &config, &self.family, &mut self.engine)?.0)
    }
}
