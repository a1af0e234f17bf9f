//! What has been asked and told, as JSON lines. The file is published whole at every line, so that one that is cut is damage.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use segue_configs::study::SearchKind;
use serde::{Deserialize, Serialize};

use super::TunerError;

const VERSION: u32 = 1;

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was trained to its end.
    Done,
    /// It was given up after a turn; its loss is the best up to there.
    Stopped,
    /// Its loss was not a number.
    Infeasible,
}

/// A proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Its number, from 0.
    pub trial: usize,
    /// What proposed it.
    pub by: SearchKind,
    /// Its point in the unit cube.
    pub point: Vec<f64>,
    /// The settings there, by key.
    pub settings: BTreeMap<String, String>,
}

/// The end of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its number.
    pub trial: usize,
    /// How it ended.
    pub state: State,
    /// The lowest loss of its evaluations, in nats a target.
    pub loss: Option<f64>,
    /// The losses at the ends of its turns.
    pub turns: Vec<f64>,
}

impl Told {
    /// Of a trial with the lowest loss `loss`. One that is not a number makes it infeasible, whatever else it is.
    pub fn new(trial: usize, state: State, loss: f64, turns: Vec<f64>) -> Self {
        let finite = loss.is_finite() && state != State::Infeasible;
        let turns = turns.into_iter().take_while(|loss| loss.is_finite()).collect();
        let state = if finite { state } else { State::Infeasible };
        Self { trial, state, loss: finite.then_some(loss), turns }
    }
}

/// The best trial's settings with another seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rerun {
    /// The trial.
    pub trial: usize,
    /// The seed of training.
    pub seed: u64,
    /// The lowest loss of its evaluations; none where that was not a number.
    pub loss: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Study { version: u32, study: String },
    Ask(Asked),
    Tell(Told),
    Rerun(Rerun),
}

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
}

/// The journal of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    path: PathBuf,
    text: String,
    trials: Vec<Trial>,
    reruns: Vec<Rerun>,
}

impl Journal {
    /// Opens the journal at `path` of a study with `coordinates` parameters; a file that is not there is an empty one, and is made with
    /// the first line. `study` names all that proposals depend on: a journal with another name is refused.
    pub fn open(path: &Path, study: &str, coordinates: usize) -> Result<Self, TunerError> {
        let mut made =
            Self { path: path.into(), text: String::new(), trials: Vec::new(), reruns: Vec::new() };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let head = Line::Study { version: VERSION, study: study.into() };
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
                Line::Study { version: VERSION, study: other } if i == 0 => {
                    if other != study {
                        return Err(TunerError::OtherStudy { path: path.into() });
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
                let open = self.trials.get_mut(number).filter(|trial| trial.told.is_none());
                open.ok_or(format!("trial {number} is not pending"))?.told = Some(told);
            }
            Line::Rerun(rerun) => {
                if rerun.trial >= self.trials.len() {
                    return Err(format!("there is no trial {}", rerun.trial));
                }
                self.reruns.push(rerun);
            }
        }
        Ok(())
    }
}

fn line(line: &Line) -> String {
    // Numbers that are not finite become null.
    format!("{}\n", serde_json::to_value(line).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(trial: usize) -> Asked {
        let settings = BTreeMap::from([("optim.lr".to_string(), "0.1".to_string())]);
        Asked { trial, by: SearchKind::Random, point: vec![0.1 + 0.2, 1.0 / 3.0], settings }
    }

    #[test]
    fn m16_a_trial_without_a_loss_is_never_the_best() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&dir.path().join("j"), "s", 2).unwrap();
        let losses = [f64::NAN, 3.0, f64::NEG_INFINITY, 2.5, f64::INFINITY, 2.5];
        for (trial, loss) in losses.into_iter().enumerate() {
            journal.ask(asked(trial)).unwrap();
            assert_ne!(journal.best().map(|best| best.asked.trial), Some(trial), "pending");
            journal.tell(Told::new(trial, State::Done, loss, vec![1.0, loss])).unwrap();
            assert!(journal.best().is_none_or(|best| best.loss().unwrap().is_finite()));
        }
        assert_eq!(journal.best().unwrap().asked.trial, 3);
        let states: Vec<State> = journal.trials().iter().map(|t| t.told.as_ref().unwrap().state).collect();
        assert_eq!(states[0], State::Infeasible);
        assert_eq!(states.iter().filter(|state| **state == State::Done).count(), 3);
        // Of a state that says so, too.
        assert_eq!(Told::new(0, State::Infeasible, 1.0, Vec::new()).loss, None);
    }

    #[test]
    fn m16_a_journal_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let mut journal = Journal::open(&path, "s", 2).unwrap();
        for trial in 0..3 {
            journal.ask(asked(trial)).unwrap();
            assert_eq!(Journal::open(&path, "s", 2).unwrap(), journal);
        }
        journal.tell(Told::new(1, State::Stopped, 0.1 + 0.7, vec![1.0 / 3.0, 0.7])).unwrap();
        journal.rerun(Rerun { trial: 1, seed: 5, loss: None }).unwrap();
        let again = Journal::open(&path, "s", 2).unwrap();
        assert_eq!(again, journal);
        assert_eq!((again.pending(), again.curves().len(), again.reruns(1).len()), (vec![0, 2], 1, 1));
        assert!(matches!(Journal::open(&path, "other", 2), Err(TunerError::OtherStudy { .. })));
        // A last line without its end is one, and stays apart from the next.
        fs::write(&path, again.text.trim_end()).unwrap();
        let mut again = Journal::open(&path, "s", 2).unwrap();
        assert_eq!(again, journal);
        again.tell(Told::new(0, State::Done, 1.0, Vec::new())).unwrap();
        assert_eq!(Journal::open(&path, "s", 2).unwrap(), again);
    }

    #[test]
    fn a_damaged_journal_is_refused_with_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let mut journal = Journal::open(&path, "s", 2).unwrap();
        journal.ask(asked(0)).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let tell = |more: &str| format!("{good}{{\"event\":\"tell\",\"turns\":[],{more}}}\n");
        for (text, number, words) in [
            (good[..good.len() - 9].to_string(), 2, "EOF"),
            (good.lines().nth(1).unwrap().to_string(), 1, "not the first"),
            (format!("{good}{good}"), 3, "first line"),
            (good.replace("\"trial\":0", "\"trial\":7"), 2, "expected trial 0"),
            (good.replace("0.30000000000000004", "1.5"), 2, "in [0, 1]"),
            (tell("\"trial\":3,\"state\":\"done\",\"loss\":1.0"), 3, "not pending"),
            (tell("\"trial\":0,\"state\":\"done\",\"loss\":null"), 3, "neither"),
            (tell("\"trial\":0,\"state\":\"infeasible\",\"loss\":1.0"), 3, "infeasible"),
            (String::new(), 1, "missing"),
            (good.replace("\"version\":1", "\"version\":2"), 1, "first line"),
        ] {
            fs::write(&path, &text).unwrap();
            let error = Journal::open(&path, "s", 2).unwrap_err();
            assert_eq!(error.exit_code(), 65);
            let message = error.to_string();
            assert!(message.contains(&format!("line {number} of")) && message.contains(words), "{message}");
        }
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(Journal::open(&path, "s", 2).unwrap_err().exit_code(), 65);
    }
}
