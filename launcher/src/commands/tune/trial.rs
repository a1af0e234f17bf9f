//! One trial of a study, or one rerun of its best: training by turns, and the loss it comes to.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use segue_cluster::pool::Runner;
use segue_configs::study::{Stopping, Study};
use segue_configs::{Config, counted};
use segue_tuner::{Asked, Cause, Journal, MedianRule, Rerun, Search, State, Told, Training};
use serde_json::{Value, json};

use super::super::child::{Unfinished, command, essence, evaluations_of, key, training, with_log};
use super::best;
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
    /// The fingerprint of its corpus.
    pub corpus: &'a str,
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
        let evaluations = evaluations_of(run)?;
        let loss = |row: &Value| {
            Some((row["step"].as_u64()?, row.get("loss").map(|loss| loss.as_f64().unwrap_or(f64::NAN))?))
        };
        Ok(Self { rows: evaluations.iter().filter_map(loss).collect() })
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

    /// Whether a trial with these losses goes on no further: one is not a number, or even the lowest, be it within a turn, is above the median of
    /// `others` ([`Journal::curves`]).
    fn gives_up(&self, stop: &Stopping, others: &[Vec<f64>]) -> bool {
        let best = self.best();
        best.is_nan() || MedianRule(stop).stops(best, self.turns(stop.turn).len(), others)
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
        let (told, log) = match self.study.config_at(&asked.point) {
            Ok(config) => {
                let name = run_name(&config, self.corpus, &trial_name(asked.trial));
                (self.make(&asked, &config, &name, runner).await?, Some(self.log(&name)))
            }
            // The ends of each range were tried, but not all that may come together.
            Err(error) if i32::from(error.exit_code()) == REFUSED => {
                (Told::failed(asked.trial, Cause { code: REFUSED, why: error.to_string() }), None)
            }
            Err(error) => return Err(Failure::from(error).into()),
        };
        let words = match (told.state, told.loss) {
            (State::Done, Some(loss)) => format!("{loss:.4} nats"),
            (State::Stopped, Some(loss)) => {
                format!("given up after {} at {loss:.4} nats", counted(told.turns.len(), "turn"))
            }
            _ => no_loss(told.cause.as_ref(), log.as_deref()),
        };
        self.journal.borrow_mut().tell(told).map_err(Failure::from)?;
        let journal = self.journal.borrow();
        if journal.best().is_some_and(|best| best.asked.trial == asked.trial) {
            best::write(self.study, &journal, self.output)?;
        }
        Ok(words)
    }

    /// Trains a trial in the run folder `name`, as often as it fails and the study says.
    async fn make(
        &self,
        asked: &Asked,
        config: &Config,
        name: &str,
        runner: &Runner<'_, Outcome>,
    ) -> Result<Told, Unfinished> {
        let trained = Training { trial: asked.trial, seed: None };
        let train = async || self.train(asked, config, name, runner).await;
        let told = self.insist(trained, name, train).await?;
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
        config: &Config,
        name: &str,
        runner: &Runner<'_, Outcome>,
    ) -> Result<Told, Unfinished> {
        let train = &config.train;
        let end = if train.stop_at == 0 { train.steps } else { train.steps.min(train.stop_at) };
        let mut begun = 0;
        loop {
            begun += 1;
            let stop = self.study.stop.as_ref().filter(|stop| begun * stop.turn < end);
            let until = stop.map(|stop| begun * stop.turn);
            let overrides = until.map(|step| format!("train.stop_at={step}"));
            let ended = self.pretrain(&asked.point, overrides, name, runner).await?;
            let Some((step, losses)) = ended else {
                return Ok(Told::new(asked.trial, State::Infeasible, f64::NAN, Vec::new()));
            };
            let turns = self.study.stop.as_ref().map_or(Vec::new(), |stop| losses.turns(stop.turn));
            let best = losses.best();
            // One that ended before the turn did has its own reasons.
            let Some((stop, until)) = stop.zip(until).filter(|(_, until)| *until <= step && step < end)
            else {
                return Ok(Told::new(asked.trial, State::Done, best, turns));
            };
            // Where a study goes on that was killed: this turn was over before, and the trial did not end with it.
            if step > until {
                continue;
            }
            if losses.gives_up(stop, &self.journal.borrow().curves()) {
                return Ok(Told::new(asked.trial, State::Stopped, best, turns));
            }
        }
    }

    /// Trains at `point`, in the run folder `name`: the last step and the losses of evaluations, or none where they are no numbers.
    async fn pretrain(
        &self,
        point: &[f64],
        more: Option<String>,
        name: &str,
        runner: &Runner<'_, Outcome>,
    ) -> Result<Option<(u64, Losses)>, Unfinished> {
        let (run, log) = (self.run(name), self.log(name));
        let mut overrides = self.study.overrides_at(point);
        overrides.extend(more);
        let arguments = training(&self.study.recipe, overrides, &run)?;
        losses_of(command(runner, &arguments, &log).await, &run)
    }

    /// Trains the settings of `trial` with another seed, and writes down its loss.
    pub async fn rerun(&self, trial: usize, seed: u64, runner: &Runner<'_, Outcome>) -> Outcome {
        let point = self.journal.borrow().trials()[trial].asked.point.clone();
        let config = self.study.config_at(&point).map_err(Failure::from)?;
        let name = run_name(&config, self.corpus, &format!("{}-seed-{seed}", trial_name(trial)));
        let other = || Some(format!("train.seed={seed}"));
        let train = async || self.pretrain(&point, other(), &name, runner).await;
        let made = self.insist(Training { trial, seed: Some(seed) }, &name, train).await?;
        let (losses, cause) = made.map_or_else(|cause| (None, Some(cause)), |losses| (losses, None));
        let loss = losses.map(|(_, losses)| losses.best()).filter(|loss| loss.is_finite());
        let words = loss.map_or_else(
            || no_loss(cause.as_ref(), Some(&self.log(&name))),
            |loss| format!("{loss:.4} nats"),
        );
        self.journal.borrow_mut().rerun(Rerun { trial, seed, loss, cause }).map_err(Failure::from)?;
        Ok(words)
    }
}

/// What to say of a training without a loss.
fn no_loss(cause: Option<&Cause>, log: Option<&Path>) -> String {
    match cause {
        Some(Cause { code, why }) => {
            format!("no loss: it failed with exit code {code}: {}", with_log(why, log))
        }
        None => "no loss: it is not a number".into(),
    }
}

/// Trial `number` in names of folders.
pub fn trial_name(number: usize) -> String {
    format!("trial-{number:04}")
}

/// The name of a trial's folder, by what it computes: an older one with its number, of another study or another proposal, stays aside.
pub fn run_name(config: &Config, corpus: &str, prefix: &str) -> String {
    format!("{prefix}-{}", key(&content(config, corpus)))
}

/// What a trial computes, wherever its text lies: the fingerprint names all of it.
pub fn content(config: &Config, corpus: &str) -> Value {
    let mut json = essence(config, corpus);
    (json["data"]["corpora"], json["data"]["valid"]) = (json!([]), json!(""));
    json
}

/// The last step and the losses of a training that has ended; none where it ended as its loss was not a number.
fn losses_of(ended: Result<Value, Unfinished>, run: &Path) -> Result<Option<(u64, Losses)>, Unfinished> {
    match ended {
        Ok(result) => {
            let losses = Losses::read(run)?;
            if losses.rows.is_empty() {
                let message = "it made no evaluation: its corpus has no validation split, or too short a one";
                return Err(Failure::new(BAD_DATA, message).into());
            }
            Ok(Some((result["step"].as_u64().unwrap_or(0), losses)))
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
            run_name(&loaded.config, "text", "trial")
        };
        let here = name(&["data.corpus=a", "data.valid=b"]);
        assert_eq!(here, name(&["data.corpus=c", "data.valid=d"]));
        assert_ne!(here, name(&["data.corpus=a", "data.valid=b", "train.seed=5"]));
    }

    /// Row M16.
    #[test]
    fn the_lowest_loss_counts_and_none_where_one_is_not_a_number() {
        let losses = |values: &[(u64, f64)]| Losses { rows: values.to_vec() };
        let some = losses(&[(10, 3.0), (20, 2.0), (30, 2.5)]);
        assert_eq!((some.best(), some.turns(10), some.turns(20)), (2.0, vec![3.0, 2.0, 2.5], vec![2.0]));
        assert!(losses(&[(10, 1.0), (20, f64::NAN), (30, 2.0)]).best().is_nan());
        assert!(losses(&[]).best().is_nan());
    }

    /// Row M16.
    #[test]
    fn the_best_loss_within_a_turn_keeps_a_trial_from_being_given_up() {
        let (stop, others) = (Stopping { turn: 10, grace: 1, least: 1 }, [vec![5.0, 3.0]]);
        let given_up = |within: f64| {
            let rows = vec![(5, 9.0), (10, 9.0), (15, within), (20, 8.0)];
            Losses { rows }.gives_up(&stop, &others)
        };
        assert!(given_up(4.1) && given_up(f64::NAN));
        assert!(!given_up(4.0));
    }
}
