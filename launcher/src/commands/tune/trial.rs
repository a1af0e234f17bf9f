//! One trial of a study, or one rerun of its best: training by turns, and the loss it comes to.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use segue_cluster::pool::Runner;
use segue_configs::study::Study;
use segue_trainer::report::read_metrics;
use segue_tuner::{Asked, Journal, MedianRule, Rerun, Search, State, Told};
use serde_json::Value;

use super::super::child::{Unfinished, command, training};
use crate::failure::{Failure, NOT_A_NUMBER};

/// How a job ended: what to say of it, or why it did not.
pub type Outcome = Result<String, Unfinished>;

/// What all trials share.
pub struct Trials<'a> {
    /// The study.
    pub study: &'a Study,
    /// Its folder.
    pub output: &'a Path,
    /// What has been asked and told.
    pub journal: &'a RefCell<Journal>,
}

/// The losses of a run's evaluations.
struct Losses {
    /// By step; not a number where the evaluation had none.
    rows: Vec<(u64, f64)>,
}

impl Losses {
    fn read(run: &Path) -> Result<Self, Failure> {
        let rows = read_metrics(run)?;
        let evaluations = rows.iter().filter(|row| row["kind"] == "eval");
        let loss = |row: &Value| {
            Some((row["step"].as_u64()?, row.get("loss").map(|loss| loss.as_f64().unwrap_or(f64::NAN))?))
        };
        Ok(Self { rows: evaluations.filter_map(loss).collect() })
    }

    /// The lowest; not a number where any is none, or where there is no evaluation.
    fn best(&self) -> f64 {
        let lower =
            |best: f64, (_, loss): &(u64, f64)| if loss.is_nan() { f64::NAN } else { best.min(*loss) };
        let first = self.rows.first().map_or(f64::NAN, |(_, loss)| *loss);
        self.rows.iter().fold(first, |best, row| if best.is_nan() { best } else { lower(best, row) })
    }

    /// The last loss of each turn of `turn` steps that is complete.
    fn turns(&self, turn: u64) -> Vec<f64> {
        let last = self.rows.iter().map(|(step, _)| step / turn).max().unwrap_or(0);
        let of_turn =
            |k: u64| self.rows.iter().rev().find(|(step, _)| *step <= k * turn).map(|(_, loss)| *loss);
        (1..=last).filter_map(of_turn).collect()
    }
}

impl Trials<'_> {
    /// What proposes them.
    pub fn search(&self) -> Search<'_> {
        let Study { space, search, startup, seed, .. } = self.study;
        Search { space, kind: *search, startup: *startup, seed: *seed }
    }

    /// Makes trial `open` go on, or without one proposes the next and makes it.
    pub async fn work(&self, open: Option<usize>, runner: &Runner<'_, Outcome>) -> Outcome {
        let asked = self.asked(open)?;
        let overrides = self.study.overrides_at(&asked.point);
        let told = self.train(&asked, overrides, runner).await?;
        let words = match (told.state, told.loss) {
            (State::Done, Some(loss)) => format!("{loss:.4} nats"),
            (State::Stopped, Some(loss)) => {
                format!("given up after {} turns at {loss:.4} nats", told.turns.len())
            }
            _ => "no loss: it is not a number".into(),
        };
        self.journal.borrow_mut().tell(told).map_err(Failure::from)?;
        Ok(words)
    }

    fn asked(&self, open: Option<usize>) -> Result<Asked, Failure> {
        let mut journal = self.journal.borrow_mut();
        if let Some(trial) = open.and_then(|number| journal.trials().get(number)) {
            return Ok(trial.asked.clone());
        }
        let asked = self.search().next(journal.trials());
        self.study.config_at(&asked.point)?;
        journal.ask(asked.clone())?;
        Ok(asked)
    }

    /// Trains a trial, to its end or up to the turn after which it is given up.
    async fn train(
        &self,
        asked: &Asked,
        overrides: Vec<String>,
        runner: &Runner<'_, Outcome>,
    ) -> Result<Told, Unfinished> {
        let (run, log) = self.places(&format!("trial-{:04}", asked.trial));
        let mut begun = 0;
        loop {
            begun += 1;
            let stop =
                self.study.stop.as_ref().filter(|stop| begun * stop.turn < self.study.base.train.steps);
            let mut overrides = overrides.clone();
            overrides.extend(stop.map(|stop| format!("train.stop_at={}", begun * stop.turn)));
            let arguments = training(&self.study.recipe, overrides, &run)?;
            let losses = match losses_of(command(runner, &arguments, &log).await, &run)? {
                Some(losses) => losses,
                None => return Ok(Told::new(asked.trial, State::Infeasible, f64::NAN, Vec::new())),
            };
            let turns = self.study.stop.as_ref().map_or(Vec::new(), |stop| losses.turns(stop.turn));
            let best = losses.best();
            let Some(stop) = stop else { return Ok(Told::new(asked.trial, State::Done, best, turns)) };
            if best.is_nan() || MedianRule(stop).stops(&turns, &self.journal.borrow().curves()) {
                return Ok(Told::new(asked.trial, State::Stopped, best, turns));
            }
        }
    }

    /// Trains the settings of `trial` with another seed, and writes down its loss.
    pub async fn rerun(&self, trial: usize, seed: u64, runner: &Runner<'_, Outcome>) -> Outcome {
        let (run, log) = self.places(&format!("trial-{trial:04}-seed-{seed}"));
        let point = self.journal.borrow().trials()[trial].asked.point.clone();
        let mut overrides = self.study.overrides_at(&point);
        overrides.push(format!("train.seed={seed}"));
        let arguments = training(&self.study.recipe, overrides, &run)?;
        let losses = losses_of(command(runner, &arguments, &log).await, &run)?;
        let loss = losses.map(|losses| losses.best()).filter(|loss| loss.is_finite());
        self.journal.borrow_mut().rerun(Rerun { trial, seed, loss }).map_err(Failure::from)?;
        Ok(loss.map_or("no loss: it is not a number".into(), |loss| format!("{loss:.4} nats")))
    }

    fn places(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.output.join("runs").join(name), self.output.join("logs").join(format!("{name}.log")))
    }
}

/// The losses of a training that has ended; none where it ended as its loss was not a number.
fn losses_of(ended: Result<Value, Unfinished>, run: &Path) -> Result<Option<Losses>, Unfinished> {
    match ended {
        Ok(_) => {
            let losses = Losses::read(run)?;
            if losses.rows.is_empty() {
                let message = "it made no evaluation: its corpus has no validation split, or too short a one";
                return Err(Failure::new(65, message).into());
            }
            Ok(Some(losses))
        }
        Err(Unfinished::Failed { code, .. }) if code == i32::from(NOT_A_NUMBER) => Ok(None),
        Err(unfinished) => Err(unfinished),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m16_the_lowest_loss_counts_and_none_where_one_is_not_a_number() {
        let losses = |values: &[(u64, f64)]| Losses { rows: values.to_vec() };
        let some = losses(&[(10, 3.0), (20, 2.0), (30, 2.5)]);
        assert_eq!((some.best(), some.turns(10), some.turns(20)), (2.0, vec![3.0, 2.0, 2.5], vec![2.0]));
        assert!(losses(&[(10, 1.0), (20, f64::NAN), (30, 2.0)]).best().is_nan());
        assert!(losses(&[]).best().is_nan());
    }
}
