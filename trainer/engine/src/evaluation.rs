//! The evaluations of a run: when there is one, what is kept and reported of it, and when they end the run.

use std::collections::BTreeMap;

use segue_configs::counted;
use segue_kernels::TrainError;
use serde_json::{Value, json};
use tracing::trace_span;

use super::averages::Chosen;
use super::best::Rating;
use super::doubles;
use super::event::{EarlyEnd, Event};
use super::family::{Better, Family, KeepBest, Measures};
use super::kept::metrics_file;
use super::run::{Run, leaves_nothing};
use super::share::Watch;
use crate::checkpoint::BEST;
use crate::optim::averaging::{AveragingEvent, TRAINED};

impl<F: Family> Run<'_, F> {
    /// Whether the state's step is one to evaluate after, and that has not been done.
    pub(super) fn evaluation_due(&self) -> bool {
        let step = self.state.step;
        let due = step == self.config.train.steps || self.over || self.counts();
        due && step > 0 && self.state.evaluated != step
    }

    /// Whether an evaluation after the state's step decides anything. One more at a run's end does not: a run made longer would remember it.
    /// Nor does one of weights that have not changed since the last one was due.
    pub(super) fn counts(&self) -> bool {
        let every = self.config.eval.every;
        every > 0 && self.state.step.is_multiple_of(every) && !self.state.stood_still(every)
    }

    /// Evaluates, and keeps the model where it is the best so far. True where `stop` ended it before it was done.
    pub(super) fn evaluate(
        &mut self,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<bool, TrainError> {
        let _span = trace_span!(target: "compute", "evaluate").entered();
        // What the same weights come to once more, after a run's end, decides nothing.
        let (step, counts) = (self.state.step, self.counts() && self.state.evaluated != self.state.step);
        let Self { engine, family, comm, .. } = self;
        let mut progress = |done, total| on_event(Event::Evaluating { done, total });
        let mut watch = Watch::new(&mut progress).stopped_by(stop);
        let found = match engine.evaluate(step, counts, |learner| family.evaluate(learner, *comm, &mut watch))
        {
            Err(TrainError::Stopped) => return Ok(true),
            found => found?,
        };
        let Some(chosen) = found else { return Ok(false) };
        self.state.evaluated = step;
        self.state.unmeasured = !chosen.candidates[chosen.choice.candidate].1.is_finite();
        let ends = chosen.choice.events.contains(&AveragingEvent::Stagnated);
        let trained = chosen.trained_loss();
        let mut measures = reported(chosen);
        let best = self.keep_best(&measures, counts, on_event)?;
        if counts {
            self.guard(measures.loss(), trained, on_event)?;
        }
        self.mark_stage(&mut measures, ends);
        self.evaluation = Some(measures.row.clone());
        on_event(Event::Evaluated { step, measures, best });
        if ends {
            self.end_stage(on_event)?;
        }
        Ok(false)
    }

    /// Writes the model down where it is the best so far, and says whether it is.
    fn keep_best(
        &mut self,
        measures: &Measures,
        counts: bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Option<bool>, TrainError> {
        let Some(KeepBest { min_delta, .. }) = self.family.keeps_best() else { return Ok(None) };
        if leaves_nothing(&self.config.run) {
            return Ok(None);
        }
        let step = self.state.step;
        let is_better = |a: f64, b: f64| match measures.better {
            Better::Lower => a < b,
            Better::Higher => a > b,
        };
        // The measure of weights that have no loss is one of chance.
        let lead = if self.state.unmeasured { f64::NAN } else { measures.lead };
        let own = [lead, measures.tie.unwrap_or(f64::NAN)];
        let agreed = doubles::of_first_rank(own, self.comm)?;
        let (lead, tie) = (agreed[0], agreed[1]);
        let found = Rating { value: lead, tie: Some(tie).filter(|tie| tie.is_finite()), step };
        let mut so_far = self.state.task.clone();
        let best = so_far.observe(found, counts, min_delta, is_better);
        if best {
            let mut files = self.family.beside_best(measures, step);
            files.push(metrics_file(found, measures));
            if !self.write_model(BEST, files, on_event)? {
                // The best model is the one that lies there.
                self.state.task.since_best = so_far.since_best;
                return Ok(Some(false));
            }
        }
        self.state.task = so_far;
        Ok(Some(best))
    }

    /// Whether evaluations end the run, and why: patience is used up, or the last stage is over.
    pub(super) fn out_of_patience(&self) -> Option<EarlyEnd> {
        let KeepBest { patience, .. } = self.family.keeps_best().unwrap_or_default();
        if self.state.fine_tuning.over {
            return Some(EarlyEnd::Stages);
        }
        (patience > 0 && self.state.task.since_best >= patience).then_some(EarlyEnd::Patience(patience))
    }

    /// Whether the time is over, and nothing is left to be done.
    pub(super) fn over_and_evaluated(&self) -> bool {
        self.over && !self.evaluation_due()
    }
}

/// What is reported of an evaluation: the chosen weight set, and beside it the losses of all where there were several.
fn reported(chosen: Chosen) -> Measures {
    let Chosen { mut candidates, choice, lengths, trained } = chosen;
    let mut losses: Vec<(&str, f64)> = candidates.iter().map(|(name, found)| (*name, found.lead)).collect();
    losses.extend(trained.map(|found| (TRAINED, found.lead)));
    let decided: Vec<(&str, f64)> =
        candidates.iter().filter_map(|(name, found)| Some((*name, found.decide?))).collect();
    let (name, mut measures) = candidates.swap_remove(choice.candidate);
    if choice.best.as_ref().is_some_and(|best| best.since > 0) {
        // Weights from before are kept as the model: these win no tie.
        measures.tie = None;
    }
    if losses.len() == 1 && choice.events.is_empty() {
        return measures;
    }
    measures.row["average"] = json!({
        "weights": name,
        "length": choice.length,
        "lengths": lengths.into_iter().collect::<BTreeMap<_, _>>(),
        "losses": by_name(&losses),
        "events": choice.events,
        "best": choice.best,
    });
    if !decided.is_empty() {
        measures.row["average"]["decided_by"] = by_name(&decided);
    }
    let told: Vec<String> = losses.iter().map(|(name, loss)| format!("{name} {loss:.4}")).collect();
    if losses.len() > 1 {
        measures.lines.push(format!(
            "weights: {name} of {} ({})",
            counted(choice.length, "step"),
            told.join(", ")
        ));
        measures.scalars.extend(losses.iter().map(|(name, loss)| (format!("average/{name}"), *loss)));
        measures.scalars.push(("average/length".into(), choice.length as f64));
    }
    measures
}

fn by_name(losses: &[(&str, f64)]) -> Value {
    losses.iter().map(|(name, loss)| (name.to_string(), json!(loss))).collect()
}
