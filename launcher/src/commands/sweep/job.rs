//! One run of a sweep: training and evaluations, each recorded when it is done.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use segue_cluster::pool::Runner;
use segue_configs::Config;
use segue_configs::sweep::{Evaluation, Sweep};
use segue_dataloader::Corpus;
use segue_trainer::families;
use serde_json::{Value, json};

use super::super::child::{Unfinished, command, essence, fingerprint, key, training, write_whole};
use crate::failure::Failure;

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
    config: Config,
    /// The fingerprint of the data that `record` is named by, or why they cannot be read.
    data: Result<String, Failure>,
}

/// How a job ended: the number of evaluations, or why it did not.
pub type Outcome = Result<usize, Unfinished>;

/// Every run of a sweep. Seeds change slowest, so that a sweep cut short has whole columns. A cell whose data cannot be read fails when
/// its turn comes, like one whose training does; an error here where that befalls all of them.
pub fn all(sweep: &Sweep, output: &Path) -> Result<Vec<Job>, Failure> {
    let mut fingerprints: BTreeMap<String, Result<String, Failure>> = BTreeMap::new();
    let mut jobs = Vec::new();
    for &seed in &sweep.seeds {
        for (cell, description) in sweep.cells.iter().enumerate() {
            let config = sweep.config_of(description, seed)?;
            // What evaluates at attention lengths compares perplexities.
            if !description.evaluations.is_empty() {
                families::language(&config.model)?;
            }
            let data = match fingerprints.entry(read_by(&config)) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(place) => place.insert(fingerprint(&config, ORIGIN)).clone(),
            };
            let data = data.and_then(|data| match description.evaluations.first() {
                Some(evaluation) => has_split(&config, evaluation).map(|()| data),
                None => Ok(data),
            });
            let key = key(&essence(&config, data.as_deref().unwrap_or_default()));
            let name = format!("{}-s{seed}-{key}", description.slug());
            let run = output.join("runs").join(&name);
            let arguments = training(&sweep.recipe, sweep.overrides_of(description, seed), &run)?;
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
                config,
                data,
            });
        }
    }
    match jobs.iter().find_map(|job| job.data.as_ref().err()) {
        Some(failure) if jobs.iter().all(|job| job.data.is_err()) => Err(failure.clone()),
        _ => Ok(jobs),
    }
}

/// Refuses an evaluation on what the corpus does not have, before a training that leads to it.
fn has_split(config: &Config, evaluation: &Evaluation) -> Result<(), Failure> {
    let corpus = Path::new(&config.data.corpus);
    // Of several corpora, or of lines of a file, an evaluation asks for one.
    if !config.data.corpus.is_empty() {
        Corpus::open_lazily(corpus)?.tokens(evaluation.split.parse()?)?;
    }
    Ok(())
}

/// What else than the command may name a corpus.
const ORIGIN: &str = "sweep";

/// What the fingerprint of a configuration's data depends on, beside the data: families may read other files of one folder, or another part of them,
/// by keys of their own.
fn read_by(config: &Config) -> String {
    let json = config.to_json();
    json!([json["data"], json["model"]]).to_string()
}

impl Job {
    /// The job in words.
    pub fn name(&self) -> String {
        format!("{}, seed {}", self.label, self.seed)
    }

    /// Perplexity by attention length, once everything is done. Of a run that evaluates itself and has none: its accuracy.
    pub fn values(&self) -> Option<BTreeMap<usize, f64>> {
        let record = self.read();
        if self.evaluations.is_empty() {
            return Some([(self.init, Self::value_of_run(&record)?)].into());
        }
        let one = |e: &Evaluation| Some((e.attention, record["evaluations"][e.name()]["ppl"].as_f64()?));
        self.evaluations.iter().map(one).collect()
    }

    /// Perplexity of the run's own last evaluation, or its accuracy. A run that fine-tunes ends where nothing better came: its best evaluation
    /// counts.
    fn value_of_run(record: &Value) -> Option<f64> {
        let found = &record["train"]["evaluation"];
        let last = found["ppl"].as_f64();
        let best = last.and_then(|_| Some(found["stage"]["best"].as_f64()?.exp()));
        best.or(last).or_else(|| found["accuracy"].as_f64())
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
        let data = self.data.clone()?;
        let mut record = self.read();
        if !record["train"].is_object() {
            let result = command(runner, &self.arguments, &self.log).await?;
            if fingerprint(&self.config, ORIGIN)? != data {
                let why = "its data has changed since the sweep began\nhint: start the sweep again".into();
                return Err(Unfinished::Failed { code: 65, why, log: None });
            }
            record = json!({
                "cell": self.label, "seed": self.seed, "run": self.run, "train": result, "evaluations": {},
            });
            self.write(&record)?;
        }
        if Self::value_of_run(&record).is_none() && self.evaluations.is_empty() {
            let why = "its evaluation has no `ppl` and no `accuracy`, by which a sweep compares".into();
            return Err(Unfinished::Failed { code: 78, why, log: None });
        }
        for evaluation in &self.evaluations {
            if record["evaluations"][evaluation.name()].is_object() {
                continue;
            }
            let mut arguments = vec!["eval".to_string(), "--json".into()];
            arguments.push(format!("--model={}", self.run.display()));
            arguments.extend(evaluation.options.iter().cloned());
            let result = command(runner, &arguments, &self.log).await?;
            record["evaluations"][evaluation.name()] = result["evaluation"].clone();
            self.write(&record)?;
        }
        Ok(self.evaluations.len())
    }

    /// The record, null where there is none that can be read: it is then made again.
    fn read(&self) -> Value {
        let text = fs::read_to_string(&self.record).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn write(&self, record: &Value) -> Result<(), Failure> {
        write_whole(&self.record, &format!("{record:#}\n"))
    }
}

/// Measures of an evaluation that the table shows.
const MEASURES: [&str; 5] = ["loss", "ppl", "accuracy", "string_accuracy", "recall_at_k"];
/// The same evaluation without the memory.
const WITHOUT_MEMORY: &str = "without_memory";

/// Measures of an evaluation; those without a memory have that in their names. The best accuracy of any step is shown where the run tells it,
/// as published figures may be such.
fn collect_numbers(suffix: &str, evaluation: &Value, found: &mut BTreeMap<String, f64>) {
    for name in MEASURES {
        if let Some(value) = evaluation[name].as_f64() {
            found.insert(format!("{name}{suffix}"), value);
        }
    }
    if let Some(best) = evaluation["best"]["accuracy"].as_f64() {
        found.insert(format!("accuracy at best{suffix}"), best);
    }
    if evaluation[WITHOUT_MEMORY].is_object() {
        collect_numbers(" without memory", &evaluation[WITHOUT_MEMORY], found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_fine_tunes_counts_by_its_best_evaluation() {
        let value = |evaluation: Value| Job::value_of_run(&json!({ "train": { "evaluation": evaluation } }));
        assert_eq!(value(json!({ "ppl": 50.0 })), Some(50.0));
        assert_eq!(value(json!({ "ppl": 50.0, "stage": { "best": 3.0 } })), Some(3f64.exp()));
        assert_eq!(value(json!({ "accuracy": 0.5, "stage": { "best": 3.0 } })), Some(0.5));
    }

    #[test]
    fn measures_of_an_evaluation_are_those_with_and_without_a_memory() {
        let evaluation = json!({
            "loss": 3.0, "ppl": 20.0, "accuracy": 0.25, "targets": 17, "seconds": 2.0,
            "best": { "accuracy": 0.5, "step": 2 }, "without_memory": { "loss": 4.0, "ppl": 50.0, "accuracy": null },
        });
        let mut found = BTreeMap::new();
        collect_numbers("", &evaluation, &mut found);
        let expected = [
            ("loss", 3.0),
            ("ppl", 20.0),
            ("accuracy", 0.25),
            ("accuracy at best", 0.5),
            ("loss without memory", 4.0),
            ("ppl without memory", 50.0),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_string(), value)).into());
    }
}
