//! What has been asked and told, as JSON lines. The file is published whole at every line, so that one that is cut is damage.

mod identity;
mod lines;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use self::identity::differences;
pub use self::lines::{Asked, Cause, Identity, Rerun, State, Told, Training};
use self::lines::{Fail, Line};
use super::TunerError;

const VERSION: u32 = 1;

/// A proposal, and its end where it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The proposal.
    pub asked: Asked,
    /// Its end.
    pub told: Option<Told>,
}

impl Trial {
    /// Its loss, where it has one.
    pub fn loss(&self) -> Option<f64> {
        self.told.as_ref().and_then(|told| told.loss)
    }

    /// Why it has none, where it ended with an error.
    pub fn cause(&self) -> Option<&Cause> {
        self.told.as_ref().and_then(|told| told.cause.as_ref())
    }
}

/// The journal of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    path: PathBuf,
    text: String,
    trials: Vec<Trial>,
    reruns: Vec<Rerun>,
    /// Those since a training was begun anew.
    failures: Vec<Fail>,
}

impl Journal {
    /// Opens the journal at `path` of a study with `coordinates` parameters; a file that is not there is an empty one, and is made with
    /// the first line. `study` is all that proposals depend on: a journal of another is refused.
    pub fn open(path: &Path, study: &Identity, coordinates: usize) -> Result<Self, TunerError> {
        let mut made = Self {
            path: path.into(),
            text: String::new(),
            trials: Vec::new(),
            reruns: Vec::new(),
            failures: Vec::new(),
        };
        let text = match segue_publish::read_regular_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let Identity { name, of } = study.clone();
                let head = Line::Study { version: VERSION, study: name, of: Some(of) };
                made.text = line(&head);
                return Ok(made);
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let why = "it is not UTF-8".into();
                return Err(TunerError::Damaged { path: path.into(), line: 1, why });
            }
            Err(source) => return Err(TunerError::Read { path: path.into(), source }),
        };
        for (i, words) in text.lines().enumerate() {
            let damaged = |why: String| TunerError::Damaged { path: path.into(), line: i + 1, why };
            let read: Line = serde_json::from_str(words).map_err(|e| damaged(e.to_string()))?;
            match read {
                Line::Study { version: VERSION, study: other, of } if i == 0 => {
                    if other != study.name {
                        let differences = differences(of.as_ref(), &study.of);
                        return Err(TunerError::OtherStudy { path: path.into(), differences });
                    }
                }
                Line::Study { .. } => return Err(damaged("another first line is needed".into())),
                _ if i == 0 => return Err(damaged("it is not the first of a journal".into())),
                line => made.take(line, coordinates).map_err(damaged)?,
            }
        }
        if text.is_empty() {
            return Err(TunerError::Damaged { path: path.into(), line: 1, why: "it is missing".into() });
        }
        // An editor may have taken the last end of a line away.
        made.text = if text.ends_with('\n') { text } else { text + "\n" };
        Ok(made)
    }

    /// The trials, by number.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Trials without an end, by number.
    pub fn pending(&self) -> Vec<usize> {
        let open = |trial: &&Trial| trial.told.is_none();
        self.trials.iter().filter(open).map(|trial| trial.asked.trial).collect()
    }

    /// The trial with the lowest loss, the first of several; never one without a loss.
    pub fn best(&self) -> Option<&Trial> {
        let feasible = self.trials.iter().filter_map(|trial| Some((trial, trial.loss()?)));
        feasible.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(trial, _)| trial)
    }

    /// Losses at the ends of turns, of all trials that have ended with a loss.
    pub fn curves(&self) -> Vec<Vec<f64>> {
        let told = self.trials.iter().filter_map(|trial| trial.told.as_ref());
        told.filter(|told| told.loss.is_some()).map(|told| told.turns.clone()).collect()
    }

    /// What became of the settings of `trial` with other seeds.
    pub fn reruns(&self, trial: usize) -> Vec<Rerun> {
        self.reruns.iter().filter(|rerun| rerun.trial == trial).cloned().collect()
    }

    /// What a training has failed with so far, since it was begun anew.
    pub fn failures(&self, training: Training) -> Vec<Cause> {
        let own = self.failures.iter().filter(|fail| fail.training == training);
        own.map(|fail| fail.cause.clone()).collect()
    }

    /// The last trial that was trained, where it and those before it, `count` in all, failed alike: the error is not of their settings. Trials
    /// whose settings make no configuration do not count: those are of their settings alone. Never with a `count` of 0.
    pub fn hopeless(&self, count: usize) -> Option<&Trial> {
        let refused = |trial: &Trial| {
            let training = Training { trial: trial.asked.trial, seed: None };
            trial.cause().is_some() && self.failures(training).is_empty()
        };
        let trained = self.trials.iter().rev().filter(|trial| trial.told.is_some() && !refused(trial));
        let last: Vec<&Trial> = trained.take(count).collect();
        let cause = last.first()?.cause()?;
        let alike = last.iter().all(|trial| trial.cause().is_some_and(|other| other.is_like(cause)));
        (alike && last.len() == count).then_some(last[0])
    }

    /// Writes down a proposal, the next by number.
    pub fn ask(&mut self, asked: Asked) -> Result<(), TunerError> {
        self.add(Line::Ask(asked))
    }

    /// Writes down the end of a trial.
    pub fn tell(&mut self, told: Told) -> Result<(), TunerError> {
        self.add(Line::Tell(told))
    }

    /// Writes down the end of a rerun.
    pub fn rerun(&mut self, rerun: Rerun) -> Result<(), TunerError> {
        self.add(Line::Rerun(rerun))
    }

    /// Writes down that a training ended with an error.
    pub fn fail(&mut self, training: Training, cause: Cause) -> Result<(), TunerError> {
        self.add(Line::Fail(Fail { training, cause }))
    }

    /// Begins all trials anew that failed for good, and such reruns of the best: they are pending again. How many those are.
    pub fn retry(&mut self) -> Result<usize, TunerError> {
        let trials = self.trials.iter().filter(|trial| trial.cause().is_some());
        let mut failed: Vec<Training> =
            trials.map(|trial| Training { trial: trial.asked.trial, seed: None }).collect();
        let best = self.best().map(|best| best.asked.trial);
        let reruns = self.reruns.iter().filter(|rerun| rerun.cause.is_some() && Some(rerun.trial) == best);
        failed.extend(reruns.map(|rerun| Training { trial: rerun.trial, seed: Some(rerun.seed) }));
        failed.iter().try_for_each(|training| self.add(Line::Retry(*training)))?;
        Ok(failed.len())
    }

    fn add(&mut self, added: Line) -> Result<(), TunerError> {
        let words = line(&added);
        let coordinates = match &added {
            Line::Ask(asked) => asked.point.len(),
            _ => 0,
        };
        let mut next = self.clone();
        let number = self.text.lines().count() + 1;
        let damaged = |why| TunerError::Damaged { path: self.path.clone(), line: number, why };
        next.take(added, coordinates).map_err(damaged)?;
        next.text.push_str(&words);
        segue_publish::write_file(&self.path, next.text.as_bytes()).map_err(TunerError::Write)?;
        *self = next;
        Ok(())
    }

    /// Takes in a line, and says what speaks against it.
    fn take(&mut self, line: Line, coordinates: usize) -> Result<(), String> {
        match line {
            Line::Study { .. } => return Err("another first line is needed".into()),
            Line::Ask(asked) => {
                let inside = asked.point.iter().all(|x| (0.0..=1.0).contains(x));
                if asked.trial != self.trials.len() || asked.point.len() != coordinates || !inside {
                    return Err(format!(
                        "trial {} at {} coordinates, expected trial {} at {coordinates} in [0, 1]",
                        asked.trial,
                        asked.point.len(),
                        self.trials.len()
                    ));
                }
                self.trials.push(Trial { asked, told: None });
            }
            Line::Tell(told) => {
                let number = told.trial;
                if told.loss.is_some() == (told.state == State::Infeasible) {
                    return Err(format!("trial {number} has a loss and is infeasible, or neither"));
                }
                if told.loss.is_some() && told.cause.is_some() {
                    return Err(format!("trial {number} has a loss, and a cause that it has none"));
                }
                let open = self.trials.get_mut(number).filter(|trial| trial.told.is_none());
                open.ok_or(format!("trial {number} is not pending"))?.told = Some(told);
            }
            Line::Rerun(rerun) => {
                if rerun.trial >= self.trials.len() {
                    return Err(format!("there is no trial {}", rerun.trial));
                }
                self.reruns.push(rerun);
            }
            Line::Fail(fail) => {
                // A trial has no end then, and what is made again has one.
                let under_way = |trial: &Trial| trial.told.is_some() == fail.training.seed.is_some();
                if !self.trials.get(fail.training.trial).is_some_and(under_way) {
                    return Err(format!("nothing of trial {} is under way", fail.training.trial));
                }
                self.failures.push(fail);
            }
            Line::Retry(training) => self.begin_anew(training)?,
        }
        Ok(())
    }

    /// Forgets the end of a training that failed for good.
    fn begin_anew(&mut self, training: Training) -> Result<(), String> {
        let number = training.trial;
        let forgotten = match training.seed {
            None => {
                let trial = self.trials.get_mut(number).filter(|trial| trial.cause().is_some());
                trial.is_some_and(|trial| trial.told.take().is_some())
            }
            Some(seed) => {
                let before = self.reruns.len();
                self.reruns.retain(|r| (r.trial, r.seed) != (number, seed) || r.cause.is_none());
                self.reruns.len() < before
            }
        };
        self.failures.retain(|fail| fail.training != training);
        if forgotten { Ok(()) } else { Err(format!("nothing of trial {number} has failed for good")) }
    }
}

fn line(line: &Line) -> String {
    // Numbers that are not finite become null.
    format!("{}\n", serde_json::to_value(line).unwrap_or_default())
}

#[cfg(test)]
mod tests;
