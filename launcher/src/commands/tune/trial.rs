//! One trial of a study, or one rerun of its best: training by turns, and the loss it comes to.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use segue_cluster::pool::Runner;
use segue_configs::study::Study;
use segue_configs::{Config, FinetuneConfig, TrainConfig, counted};
use segue_tuner::{Asked, Cause, Journal, Rerun, Search, State, Told, Training};
use serde_json::{Value, json};

use super::super::child::{Unfinished, command, essence, evaluations_of, key, training, with_log};
use super::super::measure::{Inputs, Measure};
use super::best;
use super::costs::Costs;
use crate::failure::{BAD_CONFIG, BAD_DATA, CHECK_FAILED, Failure, NOT_A_NUMBER};

/// Exit code of a configuration that is refused: another attempt reads it no better.
const REFUSED: i32 = BAD_CONFIG as i32;

/// How a job ended: what to say of it, or why it did not.
pub type Outcome = Result<String, Unfinished>;

/// What all trials share.
pub struct Trials<'a> {
    /// The study.
    pub study: &'a Study,
    /// Its folder.
    pub output: &'a Path,
    /// The fingerprint of its data, and what trials are judged by.
    pub inputs: &'a Inputs,
    /// What has been asked and told.
    pub journal: &'a RefCell<Journal>,
}

/// Result of a training.
struct Ended {
    /// The last step.
    step: u64,
    /// Steps of the whole run, of a task too.
    steps: u64,
    costs: Costs,
}

impl Trials<'_> {
    /// What proposes them.
    pub fn search(&self) -> Search<'_> {
        let Study { space, search, startup, seed, .. } = self.study;
        Search { space, kind: *search, startup: *startup, seed: *seed }
    }

    /// What a trial came to.
    fn in_words(&self, cost: f64) -> String {
        self.inputs.measure.words(self.inputs.measure.cost(cost))
    }

    /// Makes trial `open` go on, or without one proposes the next and makes it.
    pub async fn work(&self, open: Option<usize>, runner: &Runner<'_, Outcome>) -> Outcome {
        let asked = self.asked(open)?;
        let (told, log) = match self.study.config_at(&asked.point) {
            Ok(config) => {
                let prefix = trial_name(asked.trial);
                let name = run_name(config.to_json(), &self.inputs.fingerprint, &prefix);
                (self.make(&asked, &config.train, &config.task, &name, runner).await?, Some(self.log(&name)))
            }
            // The ends of each range were tried, but not all that may come together.
            Err(error) if i32::from(error.exit_code()) == REFUSED => {
                (Told::failed(asked.trial, Cause { code: REFUSED, why: error.to_string() }), None)
            }
            Err(error) => return Err(Failure::from(error).into()),
        };
        let words = match (told.state, told.loss) {
            (State::Done, Some(cost)) => self.in_words(cost),
            (State::Stopped, Some(cost)) => {
                format!("given up after {} at {}", counted(told.turns.len(), "turn"), self.in_words(cost))
            }
            _ => self.no_value(told.cause.as_ref(), log.as_deref()),
        };
        self.journal.borrow_mut().tell(told).map_err(Failure::from)?;
        let journal = self.journal.borrow();
        if journal.best().is_some_and(|best| best.asked.trial == asked.trial) {
            best::write(self.study, &self.inputs.measure, &journal, self.output)?;
        }
        Ok(words)
    }

    /// Trains a trial in the run folder `name`, as often as it fails and the study says.
    async fn make(
        &self,
        asked: &Asked,
        train: &TrainConfig,
        task: &FinetuneConfig,
        name: &str,
        runner: &Runner<'_, Outcome>,
    ) -> Result<Told, Unfinished> {
        let trained = Training { trial: asked.trial, seed: None };
        let make = async || self.train(asked, train, task, name, runner).await;
        let told = self.insist(trained, name, make).await?;
        Ok(told.unwrap_or_else(|cause| Told::failed(asked.trial, cause)))
    }

    /// Trains by `train`, and again where that fails. Each failure is written down, so that a kill forgets none. The last one, where there were more than the
    /// study tries again, or where another attempt would come to the same.
    async fn insist<T>(
        &self,
        trained: Training,
        name: &str,
        train: impl AsyncFn() -> Result<T, Unfinished>,
    ) -> Result<Result<T, Cause>, Unfinished> {
        loop {
            let failures = self.journal.borrow().failures(trained);
            let last =
                failures.last().filter(|last| failures.len() > self.study.retries || last.code == REFUSED);
            if let Some(last) = last {
                return Ok(Err(last.clone()));
            }
            match train().await {
                Ok(made) => return Ok(Ok(made)),
                // An error of this process is none of the training's, which stays open.
                Err(own @ Unfinished::Failed { log: None, .. }) => return Err(own),
                Err(Unfinished::Failed { code, why, .. }) => {
                    // Errors of two trials, and of one in two places, are to compare.
                    let why = why.replace(&self.run(name).display().to_string(), "RUN");
                    self.journal.borrow_mut().fail(trained, Cause { code, why }).map_err(Failure::from)?;
                }
                Err(stopped) => return Err(stopped),
            }
        }
    }

    /// What to say of a training that is judged by nothing.
    fn no_value(&self, cause: Option<&Cause>, log: Option<&Path>) -> String {
        let measure = self.inputs.measure.name();
        match cause {
            Some(Cause { code, why }) => {
                format!("no {measure}: it failed with exit code {code}: {}", with_log(why, log))
            }
            None => format!("no {measure}: it is not a number"),
        }
    }

    /// Why the study stops, where its last trials all failed with one error.
    pub fn hopeless(&self) -> Option<Failure> {
        let (journal, count) = (self.journal.borrow(), self.study.give_up_after.min(self.study.trials));
        let last = journal.hopeless(count)?;
        let cause = last.cause()?;
        let message = format!(
            "{count} trials in a row failed with the same error, trial {} with exit code {}: {}\nhint: look into {}, mend the \
             cause and add --retry; with give_up_after = 0 the study goes on without these trials",
            last.asked.trial,
            cause.code,
            cause.why.trim_start_matches("error: "),
            self.output.join("logs").display()
        );
        // A code of 128 and more tells of a signal, which this process did not get.
        let code = u8::try_from(cause.code).ok().filter(|code| *code < 128);
        Some(Failure::new(code.unwrap_or(CHECK_FAILED), message))
    }

    fn run(&self, name: &str) -> PathBuf {
        self.output.join("runs").join(name)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.output.join("logs").join(format!("{name}.log"))
    }

    fn asked(&self, open: Option<usize>) -> Result<Asked, Failure> {
        let mut journal = self.journal.borrow_mut();
        if let Some(trial) = open.and_then(|number| journal.trials().get(number)) {
            return Ok(trial.asked.clone());
        }
        let asked = self.search().next(journal.trials());
        journal.ask(asked.clone())?;
        Ok(asked)
    }

    /// Trains a trial, to its end or up to the turn after which it is given up.
    async fn train(
        &self,
        asked: &Asked,
        train: &TrainConfig,
        task: &FinetuneConfig,
        name: &str,
        runner: &Runner<'_, Outcome>,
    ) -> Result<Told, Unfinished> {
        let end_of = |steps: u64| if train.stop_at == 0 { steps } else { steps.min(train.stop_at) };
        // Passes over the examples of a task come to a number of steps that its run knows.
        let mut end = end_of(if task.epochs > 0.0 { u64::MAX } else { train.steps });
        let mut begun = 0;
        loop {
            begun += 1;
            let stop = self.study.stop.as_ref().filter(|stop| begun * stop.turn < end);
            let until = stop.map(|stop| begun * stop.turn);
            let overrides = until.map(|step| format!("train.stop_at={step}"));
            let ended = self.train_once(&asked.point, overrides, name, runner).await?;
            let Some(Ended { step, steps, costs }) = ended else {
                return Ok(Told::new(asked.trial, State::Infeasible, f64::NAN, Vec::new()));
            };
            end = end_of(steps);
            let turns = self.study.stop.as_ref().map_or(Vec::new(), |stop| costs.turns(stop.turn));
            let best = costs.best();
            // One that ended before the turn did has its own reasons.
            let Some((stop, until)) = stop.zip(until).filter(|(_, until)| *until <= step && step < end)
            else {
                return Ok(Told::new(asked.trial, State::Done, best, turns));
            };
            // Where a study goes on that was killed: this turn was over before, and the trial did not end with it.
            if step > until {
                continue;
            }
            if costs.gives_up(stop, &self.journal.borrow().curves()) {
                return Ok(Told::new(asked.trial, State::Stopped, best, turns));
            }
        }
    }

    /// Trains at `point`, in the run folder `name`; none where its loss is not a number.
    async fn train_once(
        &self,
        point: &[f64],
        more: Option<String>,
        name: &str,
        runner: &Runner<'_, Outcome>,
    ) -> Result<Option<Ended>, Unfinished> {
        let (run, log) = (self.run(name), self.log(name));
        let config = self.study.config_at(point).map_err(Failure::from)?;
        let mut overrides = self.study.overrides_at(point);
        overrides.extend(more);
        let Config { task, train, .. } = &config;
        let arguments = training(task, &train.init_from, &self.study.recipe, overrides, &run)?;
        ended(command(runner, &arguments, &log).await, train.steps, &run, &self.inputs.measure)
    }

    /// Trains the settings of `trial` with another seed, and writes down its loss.
    pub async fn rerun(&self, trial: usize, seed: u64, runner: &Runner<'_, Outcome>) -> Outcome {
        let point = self.journal.borrow().trials()[trial].asked.point.clone();
        let config = self.study.config_at(&point).map_err(Failure::from)?;
        let prefix = format!("{}-seed-{seed}", trial_name(trial));
        let name = run_name(config.to_json(), &self.inputs.fingerprint, &prefix);
        let other = || Some(format!("train.seed={seed}"));
        let train = async || self.train_once(&point, other(), &name, runner).await;
        let made = self.insist(Training { trial, seed: Some(seed) }, &name, train).await?;
        let (ended, cause) = made.map_or_else(|cause| (None, Some(cause)), |ended| (ended, None));
        let loss = ended.map(|ended| ended.costs.best()).filter(|cost| cost.is_finite());
        let words = loss.map_or_else(
            || self.no_value(cause.as_ref(), Some(&self.log(&name))),
            |cost| self.in_words(cost),
        );
        self.journal.borrow_mut().rerun(Rerun { trial, seed, loss, cause }).map_err(Failure::from)?;
        Ok(words)
    }
}

/// Trial `number` in names of folders.
pub fn trial_name(number: usize) -> String {
    format!("trial-{number:04}")
}

/// The name of a trial's folder, by what it computes with these settings, a configuration as JSON: an older one with its number, of another study or
/// another proposal, stays aside.
pub fn run_name(settings: Value, corpus: &str, prefix: &str) -> String {
    format!("{prefix}-{}", key(&content(settings, corpus)))
}

/// What a trial computes, wherever its text lies: the fingerprint names all of it.
pub fn content(settings: Value, corpus: &str) -> Value {
    let mut json = essence(settings, corpus);
    (json["data"]["corpora"], json["data"]["valid"]) = (json!([]), json!(""));
    json
}

/// What a training in the folder `run` came to, of `steps` steps where it does not say how many; none where it ended as its loss was not a number.
fn ended(
    ended: Result<Value, Unfinished>,
    steps: u64,
    run: &Path,
    measure: &Measure,
) -> Result<Option<Ended>, Unfinished> {
    match ended {
        Ok(result) => {
            let rows = evaluations_of(run)?;
            if rows.is_empty() {
                let message = "it made no evaluation: its corpus has no validation split, or too short a one";
                return Err(Failure::new(BAD_DATA, message).into());
            }
            Ok(Some(Ended {
                step: result["step"].as_u64().unwrap_or(0),
                steps: result["steps"].as_u64().unwrap_or(steps),
                costs: Costs::of(&rows, measure),
            }))
        }
        Err(Unfinished::Failed { code, .. }) if code == i32::from(NOT_A_NUMBER) => Ok(None),
        Err(unfinished) => Err(unfinished),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fingerprint of the text says what is read, not where it lies.
    #[test]
    fn a_study_that_is_moved_with_its_text_stays_the_same() {
        let name = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
            let loaded = segue_families::MODELS.load(None, &overrides).unwrap();
            run_name(loaded.config.to_json(), "text", "trial")
        };
        let here = name(&["data.corpus=a", "data.valid=b"]);
        assert_eq!(here, name(&["data.corpus=c", "data.valid=d"]));
        assert_ne!(here, name(&["data.corpus=a", "data.valid=b", "train.seed=5"]));
    }
}
