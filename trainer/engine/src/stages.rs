//! The stages of a run that fine-tunes: plain descent, averaging, and rounds that train the best average so far (Merity et al. 2018).

use segue_kernels::TrainError;
use serde_json::json;

use super::event::Event;
use super::family::{Family, Measures};
use super::run::Run;
use super::state::FineTuning;
use crate::checkpoint::STAGE;

impl<F: Family> Run<'_, F> {
    pub(super) fn fine_tunes(&self) -> bool {
        self.config.average.fine_tuning > 0
    }

    /// Says in the record of an evaluation which stage it is of, and where that `ends`, what it came to.
    pub(super) fn mark_stage(&self, measures: &mut Measures, ends: bool) {
        if !self.fine_tunes() {
            return;
        }
        let round = self.state.fine_tuning.round;
        let averages = || self.engine.networks.iter().any(|network| network.averaging.chosen().is_some());
        let name = match round {
            0 if averages() => "averaging",
            0 => "descent",
            _ => "fine_tuning",
        };
        let (best, step) = self.state.guard.as_ref().map_or((None, 0), |guard| (guard.best, guard.step));
        measures.row["stage"] =
            json!({ "name": name, "round": round, "ended": ends, "best": best, "best_step": step });
        measures.scalars.push(("stage/round".into(), round as f64));
        let Some(best) = best.filter(|_| ends) else { return };
        let rounds = self.config.average.fine_tuning;
        let next = match round < rounds {
            true => format!("round {} of {rounds} of fine-tuning goes on from there", round + 1),
            false => "the run ends".into(),
        };
        measures
            .lines
            .push(format!("stage {} ends, best loss {best:.4} after step {step}: {next}", round + 1));
    }

    /// Ends a stage whose average brings nothing more. Training goes on from the average of the best evaluation, where the data stands, with
    /// averages of its own; or ends after the last round. A collective call.
    pub(super) fn end_stage(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let FineTuning { round, .. } = self.state.fine_tuning;
        if round >= self.config.average.fine_tuning {
            self.state.fine_tuning.over = true;
            return Ok(());
        }
        if let Some(best) = self.state.guard.as_ref().map(|guard| guard.step) {
            self.load_best(best, on_event)?;
        }
        self.engine.take_averages()?;
        self.state.fine_tuning = FineTuning { round: round + 1, after: self.state.step, over: false };
        self.engine.begin_averages(&self.state.fine_tuning);
        self.engine.begin_carries();
        self.engine.scale_rates(&self.state);
        self.write_model(&format!("{STAGE}{}", round + 1), Vec::new(), on_event)?;
        Ok(())
    }
}
