//! One run of a sweep: training and evaluations, each recorded when it is done.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use segue_cluster::pool::{Ended, Runner};
use segue_configs::Config;
use segue_configs::sweep::{Evaluation, Sweep};
use segue_dataloader::Corpus;
use segue_trainer::families;
use serde_json::{Value, json};

use super::{append, write_whole};
use crate::failure::{Failure, PREEMPTED, text_of};

/// Digits of the hash in names of files.
const KEY_DIGITS: usize = 12;
/// Sections of a configuration that do not change what a run computes.
const FREE_SECTIONS: [&str; 4] = ["run", "log", "checkpoint", "published"];
/// Exit codes of a process that SIGINT or SIGTERM ended, by the shell's convention: evaluations have no better
/// answer to them.
const ENDED_BY_REQUEST: [i32; 2] = [128 + 2, 128 + 15];

/// One cell with one seed.
pub struct Job {
    /// Index of its cell.
    pub cell: usize,
    /// Label of its cell.
    pub label: String,
    /// Its seed.
    pub seed: u64,
    /// Its evaluations; none where it evaluates itself.
    pub evaluations: Vec<Evaluation>,
    /// The attention length of training.
    pub init: usize,
    /// Its run folder.
    pub run: PathBuf,
    /// What its processes write to stderr.
    pub log: PathBuf,
    record: PathBuf,
    arguments: Vec<String>,
}

/// How a job ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Trained and evaluated, with the number of evaluations.
    Done(usize),
    /// Stopped on request; the next sweep goes on.
    Stopped,
    /// A command failed.
    Failed {
        /// Its exit code.
        code: i32,
        /// What it said last, and where its log is.
        why: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Outcome::Done(evaluations) => write!(f, "trained, {evaluations} evaluations"),
            Outcome::Stopped => write!(f, "stopped"),
            Outcome::Failed { code, why } => write!(f, "failed with exit code {code}: {why}"),
        }
    }
}

/// Every run of a sweep. Seeds change slowest, so that a sweep cut short has whole columns.
pub fn all(sweep: &Sweep, output: &Path) -> Result<Vec<Job>, Failure> {
    let mut fingerprints = BTreeMap::new();
    let mut jobs = Vec::new();
    for &seed in &sweep.seeds {
        for (cell, description) in sweep.cells.iter().enumerate() {
            let config = sweep.config_of(description, seed)?;
            // A sweep compares perplexities.
            families::language(&config.model)?;
            if !fingerprints.contains_key(&config.data.corpus) {
                fingerprints.insert(config.data.corpus.clone(), fingerprint(&config)?);
            }
            let key = key(&config, &fingerprints[&config.data.corpus]);
            let name = format!("{}-s{seed}-{key}", description.slug());
            let run = output.join("runs").join(&name);
            let mut arguments = vec!["pretrain".into(), "--json".into()];
            arguments.push(format!("--config={}", text_of(&sweep.recipe)?));
            arguments.extend(sweep.overrides_of(description, seed));
            arguments.push(format!("run.dir={}", quoted(&run)?));
            jobs.push(Job {
                cell,
                label: description.label.clone(),
                seed,
                evaluations: description.evaluations.clone(),
                init: description.init,
                log: output.join("logs").join(format!("{name}.log")),
                record: output.join("results").join(format!("{key}.json")),
                run,
                arguments,
            });
        }
    }
    Ok(jobs)
}

fn fingerprint(config: &Config) -> Result<String, Failure> {
    if config.data.corpus.is_empty() {
        let message = "data.corpus is not set\nhint: add data.corpus=FOLDER to the command or the sweep";
        return Err(Failure::new(78, message));
    }
    Ok(Corpus::open(Path::new(&config.data.corpus))?.info().fingerprint.clone())
}

/// A path as a TOML text, so that one that looks like a number stays a path.
fn quoted(path: &Path) -> Result<String, Failure> {
    Ok(json!(text_of(path)?).to_string())
}

/// Names what a run computes: its configuration and the content of its corpus.
fn key(config: &Config, corpus: &str) -> String {
    let mut json = config.to_json();
    if let Some(sections) = json.as_object_mut() {
        sections.retain(|name, _| !FREE_SECTIONS.contains(&name.as_str()));
    }
    json["data"]["corpus"] = corpus.into();
    blake3::hash(json.to_string().as_bytes()).to_hex()[..KEY_DIGITS].to_string()
}

impl Job {
    /// The job in words.
    pub fn name(&self) -> String {
        format!("{}, seed {}", self.label, self.seed)
    }

    /// Perplexity by attention length, once everything is done.
    pub fn perplexity(&self) -> Option<BTreeMap<usize, f64>> {
        let record = self.read();
        if self.evaluations.is_empty() {
            return Some([(self.init, record["train"]["evaluation"]["ppl"].as_f64()?)].into());
        }
        let one = |e: &Evaluation| Some((e.attention, record["evaluations"][e.name()]["ppl"].as_f64()?));
        self.evaluations.iter().map(one).collect()
    }

    /// Numbers of the run's own last evaluation, by name, where no other evaluation is made of it.
    pub fn measures(&self) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        if self.evaluations.is_empty() {
            let record = self.read();
            collect_numbers("", &record["train"]["evaluation"], &mut found);
        }
        found
    }

    /// Commands that are recorded.
    pub fn commands_done(&self) -> u64 {
        let record = self.read();
        let evaluations = self.evaluations.iter().filter(|e| record["evaluations"][e.name()].is_object());
        u64::from(record["train"].is_object()) + evaluations.count() as u64
    }

    /// Does what is not recorded yet.
    pub async fn work(&self, runner: &Runner<'_, Outcome>) -> Outcome {
        self.advance(runner).await.unwrap_or_else(|outcome| outcome)
    }

    async fn advance(&self, runner: &Runner<'_, Outcome>) -> Result<Outcome, Outcome> {
        let mut record = self.read();
        if !record["train"].is_object() {
            let result = self.command(runner, &self.arguments).await?;
            record = json!({
                "cell": self.label, "seed": self.seed, "run": self.run, "train": result, "evaluations": {},
            });
            self.write(&record)?;
        }
        for evaluation in &self.evaluations {
            if record["evaluations"][evaluation.name()].is_object() {
                continue;
            }
            let mut arguments = vec!["eval".to_string(), "--json".into()];
            arguments.push(format!("--model={}", self.run.display()));
            arguments.extend(evaluation.options.iter().cloned());
            let result = self.command(runner, &arguments).await?;
            record["evaluations"][evaluation.name()] = result["evaluation"].clone();
            self.write(&record)?;
        }
        Ok(Outcome::Done(self.evaluations.len()))
    }

    /// Runs this program with `arguments`; the JSON it ends with.
    async fn command(&self, runner: &Runner<'_, Outcome>, arguments: &[String]) -> Result<Value, Outcome> {
        let broken = |e: std::io::Error| self.failed(70, &format!("cannot start it: {e}"));
        let mut command = Command::new(std::env::current_exe().map_err(broken)?);
        command.args(arguments);
        let log = append(&self.log).map_err(broken)?;
        let ended = runner.run(command, log).await.map_err(broken)?;
        match ended {
            None => Err(Outcome::Stopped),
            Some(Ended { code: 0, stdout }) => {
                let last = stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
                last.ok_or_else(|| self.failed(70, "it exited without a result"))
            }
            Some(Ended { code, .. }) if code == i32::from(PREEMPTED) || ENDED_BY_REQUEST.contains(&code) => {
                Err(Outcome::Stopped)
            }
            Some(Ended { code, .. }) => Err(self.failed(code, &self.last_error())),
        }
    }

    fn failed(&self, code: i32, why: &str) -> Outcome {
        Outcome::Failed { code, why: format!("{why} (log: {})", self.log.display()) }
    }

    /// The last line of the log that tells of an error.
    fn last_error(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let messages = log.lines().map(|line| line.strip_prefix("segue: ").unwrap_or(line));
        messages.rev().find(|line| line.starts_with("error")).unwrap_or("no error message").to_string()
    }

    /// The record, null where there is none that can be read: it is then made again.
    fn read(&self) -> Value {
        let text = fs::read_to_string(&self.record).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn write(&self, record: &Value) -> Result<(), Outcome> {
        write_whole(&self.record, &format!("{record:#}\n"))
            .map_err(|failure| Outcome::Failed { code: i32::from(failure.code), why: failure.message })
    }
}

/// Measures of an evaluation that the table shows.
const MEASURES: [&str; 3] = ["loss", "ppl", "accuracy"];
/// The same evaluation without the memory.
const WITHOUT_MEMORY: &str = "without_memory";

/// Measures of an evaluation; those without a memory have that in their names.
fn collect_numbers(suffix: &str, evaluation: &Value, found: &mut BTreeMap<String, f64>) {
    for name in MEASURES {
        if let Some(value) = evaluation[name].as_f64() {
            found.insert(format!("{name}{suffix}"), value);
        }
    }
    if evaluation[WITHOUT_MEMORY].is_object() {
        collect_numbers(" without memory", &evaluation[WITHOUT_MEMORY], found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(keys: &[&str]) -> String {
        let overrides: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
        key(&segue_trainer::families::MODELS.load(None, &overrides).unwrap().config, "corpus")
    }

    #[test]
    fn measures_of_an_evaluation_are_those_with_and_without_a_memory() {
        let evaluation = json!({
            "loss": 3.0, "ppl": 20.0, "accuracy": 0.25, "targets": 17, "seconds": 2.0,
            "without_memory": { "loss": 4.0, "ppl": 50.0, "accuracy": null },
        });
        let mut found = BTreeMap::new();
        collect_numbers("", &evaluation, &mut found);
        let expected = [
            ("loss", 3.0),
            ("ppl", 20.0),
            ("accuracy", 0.25),
            ("loss without memory", 4.0),
            ("ppl without memory", 50.0),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_string(), value)).into());
    }

    #[test]
    fn results_are_named_by_what_they_depend_on() {
        assert_eq!(key_of(&[]), key_of(&["run.dir=elsewhere", "log.every=3", "data.corpus=moved"]));
        for change in ["train.steps=7", "train.seed=2", "model.d_inner=8", "optim.lr=1e-3"] {
            assert_ne!(key_of(&[]), key_of(&[change]), "{change}");
        }
    }
}
