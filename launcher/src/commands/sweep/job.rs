//! One run of a sweep: training and evaluations, each recorded when it is done.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use segue_cluster::pool::Runner;
use segue_configs::sweep::{Cell, Evaluation, Protocol, Sweep};
use segue_configs::{Config, TrainConfig};
use segue_dataloader::Corpus;
use segue_dataloader::sections::DataConfig;
use segue_language::Language;
use segue_report::PARAMETERS;
use serde_json::{Value, json};

use super::super::child::{Unfinished, command, essence, evaluations_of, key, note, training, write_whole};
use super::super::eval;
use super::super::finetune::{LEARNT_AND_SCORED, TaskRun};
use super::super::measure::{Inputs, Measure};
use super::evaluation::{loss_at, measures_of, value_of};
use crate::failure::{BAD_CONFIG, BAD_DATA, Failure, NOT_A_NUMBER};

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
    /// Protocols that it is evaluated by beside.
    pub protocols: Vec<Protocol>,
    /// The attention length of training.
    pub init: usize,
    /// Its run folder.
    pub run: PathBuf,
    /// What its processes write to stderr.
    pub log: PathBuf,
    record: PathBuf,
    arguments: Vec<String>,
    config: Config,
    /// What it reads, which `record` is named by, and what it is judged by; or why it cannot be read.
    inputs: Result<Inputs, Failure>,
}

/// How a job ended: the number of evaluations, or why it did not.
pub type Outcome = Result<usize, Unfinished>;

/// Every run of a sweep. Seeds change slowest, so that a sweep cut short has whole columns. A cell whose data cannot be read fails when
/// its turn comes, like one whose training does; an error here where that befalls all of them.
pub fn all(sweep: &Sweep, output: &Path) -> Result<Vec<Job>, Failure> {
    sweep.cells.iter().flat_map(|cell| &cell.protocols).try_for_each(check_options)?;
    let mut known: BTreeMap<(String, BTreeSet<&str>), Result<Inputs, Failure>> = BTreeMap::new();
    let mut jobs = Vec::new();
    for &seed in &sweep.seeds {
        for (cell, description) in sweep.cells.iter().enumerate() {
            let config = sweep.config_of(description, seed)?;
            // What `segue eval` evaluates are perplexities.
            if is_evaluated(description) {
                segue_families::need::<Language>(&config.model)?;
            }
            let splits = splits(description);
            let inputs = match known.entry((read_by(&config.to_json()), splits)) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(place) => {
                    let text = config.own.get::<DataConfig>();
                    let inputs = Inputs::of(config.clone())
                        .and_then(|inputs| check_splits(&text.corpus, &place.key().1).map(|()| inputs));
                    place.insert(inputs).clone()
                }
            };
            let data = inputs.as_ref().map_or("", |inputs| &inputs.fingerprint);
            let key = key(&content(config.to_json(), data, is_evaluated(description)));
            let (runs, record) = (output.join("runs"), output.join("results").join(format!("{key}.json")));
            let name = recorded_name(&record, &runs)
                .unwrap_or_else(|| format!("{}-s{seed}-{key}", description.slug()));
            let run = runs.join(&name);
            let overrides = sweep.overrides_of(description, seed);
            let arguments = training(&config.task, &config.train.init_from, &sweep.recipe, overrides, &run)?;
            jobs.push(Job {
                cell,
                label: description.label.clone(),
                seed,
                evaluations: description.evaluations.clone(),
                protocols: description.protocols.clone(),
                init: description.init,
                log: output.join("logs").join(format!("{name}.log")),
                record,
                run,
                arguments,
                config,
                inputs,
            });
        }
    }
    match jobs.iter().find_map(|job| job.inputs.as_ref().err()) {
        Some(failure) if jobs.iter().all(|job| job.inputs.is_err()) => Err(failure.clone()),
        _ => {
            check_comparable(&jobs)?;
            check_different(&jobs)?;
            Ok(jobs)
        }
    }
}

/// What all runs of a sweep are judged by.
pub fn measure_of(jobs: &[Job]) -> &Measure {
    jobs.iter().find(|job| job.inputs.is_ok()).map_or(&Measure::Loss, Job::measure)
}

/// Refuses cells that are judged by different measures.
fn check_comparable(jobs: &[Job]) -> Result<(), Failure> {
    let mut judged = jobs.iter().filter(|job| job.inputs.is_ok());
    let Some(first) = judged.next() else { return Ok(()) };
    let Some(other) = judged.find(|job| job.measure() != first.measure()) else { return Ok(()) };
    let [one, another] = [first, other].map(|job| format!("`{}` by {}", job.label, job.measure().name()));
    // Of one name they are fractions here and of a hundred there, as SQuAD's are.
    let hint = match first.measure().name() == other.measure().name() {
        true => "make a sweep of each: one is of 1, the other of 100",
        false => "make a sweep of each, or set task.metric",
    };
    let message = format!("cells cannot be compared: {one}, {another}\nhint: {hint}");
    Err(Failure::new(BAD_CONFIG, message))
}

/// What a run of these settings, a configuration as JSON, and its evaluations compute. `segue eval` reads the best model of a run that keeps one;
/// what a run says itself is the same with and without.
fn content(settings: Value, data: &str, evaluated: bool) -> Value {
    let keeps_best = settings["checkpoint"]["best"] == true;
    let mut content = essence(settings, data);
    if keeps_best && evaluated {
        content["checkpoint"] = json!({ "best": true });
    }
    content
}

/// The name of the run folder that a record is of, from what its cell was called when it was trained. `None` without a record, or where the folder
/// is gone.
fn recorded_name(record: &Path, runs: &Path) -> Option<String> {
    let record = read(record);
    let name = Path::new(record["run"].as_str()?).file_name()?.to_str()?;
    runs.join(name).is_dir().then(|| name.to_string())
}

/// The record in a file, null where there is none that can be read: it is then made again.
fn read(record: &Path) -> Value {
    let text = segue_publish::read_regular_text(record).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The words of a protocol behind `segue eval`, for the model in a folder.
fn words_for(protocol: &Protocol, model: &str) -> Vec<String> {
    let (kind, options) = protocol.words.split_at(usize::from(!protocol.words[0].starts_with("--")));
    [kind, &[format!("--model={model}")], options].concat()
}

/// Refuses options that `segue eval` does not take, before a training that leads to them.
fn check_options(protocol: &Protocol) -> Result<(), Failure> {
    eval::check_words(&words_for(protocol, "MODEL")).map_err(|why| {
        let message = format!("[evaluate.protocols]: `segue eval {}`: {why}", protocol.name());
        Failure::new(BAD_CONFIG, message)
    })
}

/// Refuses two cells that compute the same: they would have one record, and train two runs for it.
fn check_different(jobs: &[Job]) -> Result<(), Failure> {
    let mut known: BTreeMap<&Path, &Job> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.inputs.is_ok()) {
        if let Some(other) = known.insert(&job.record, job) {
            let message = format!(
                "the cells `{}` and `{}` compute the same\nhint: leave one of them out; what [run], [log], [checkpoint] and [published] \
                 say makes no other cell",
                other.label, job.label
            );
            return Err(Failure::new(BAD_CONFIG, message));
        }
    }
    Ok(())
}

/// Whether other commands evaluate the runs of a cell.
fn is_evaluated(cell: &Cell) -> bool {
    !cell.evaluations.is_empty() || !cell.protocols.is_empty()
}

/// What these evaluate on.
fn splits(cell: &Cell) -> BTreeSet<&str> {
    let of_protocols = cell.protocols.iter().flat_map(Protocol::reads);
    cell.evaluations.iter().map(|evaluation| evaluation.split.as_str()).chain(of_protocols).collect()
}

/// Refuses evaluations on `splits` that the corpus of a run does not have, before a training that leads to them.
fn check_splits(corpus: &str, splits: &BTreeSet<&str>) -> Result<(), Failure> {
    // Of several corpora, or of lines of a file, an evaluation asks for one.
    if corpus.is_empty() || splits.is_empty() {
        return Ok(());
    }
    let corpus = Corpus::open_lazily(Path::new(corpus))?;
    for split in splits {
        corpus.tokens(split.parse()?)?;
    }
    Ok(())
}

/// What the inputs of a configuration depend on, beside the data: families may read other files of one folder, or another part of them, by keys of their own;
/// tasks read files in the tokens of a model, up to a length, and draw some examples.
fn read_by(settings: &Value) -> String {
    let mut of = json!([settings["data"], settings["model"]]);
    if settings["task"]["name"] != "" {
        of = json!([of, settings["task"], settings["train"]["init_from"], settings["train"]["segment"]]);
    }
    of.to_string()
}

impl Job {
    /// The job in words.
    pub fn name(&self) -> String {
        format!("{}, seed {}", self.label, self.seed)
    }

    /// Perplexity by attention length, once everything is done. Of a run that evaluates itself: what that is compared by.
    pub fn values(&self) -> Option<BTreeMap<usize, f64>> {
        let record = self.read();
        if self.evaluations.is_empty() {
            let all = self.protocols.iter().all(|protocol| record["protocols"][protocol.name()].is_object());
            return all
                .then(|| Some([(self.init, value_of(&record["train"], self.measure())?)].into()))
                .flatten();
        }
        let one = |e: &Evaluation| Some((e.attention, record["evaluations"][e.name()]["ppl"].as_f64()?));
        self.evaluations.iter().map(one).collect()
    }

    /// What it is judged by, where other commands do not.
    pub fn measure(&self) -> &Measure {
        self.inputs.as_ref().map_or(&Measure::Loss, |inputs| &inputs.measure)
    }

    /// Numbers of the evaluation that the run is compared by, by name, where it is one of its own, and those of its protocols.
    pub fn measures(&self) -> BTreeMap<String, f64> {
        if !self.evaluations.is_empty() {
            return BTreeMap::new();
        }
        let record = self.read();
        let mut measures = measures_of(&record["train"], self.measure());
        for protocol in &self.protocols {
            let result = &record["protocols"][protocol.name()];
            measures.extend(
                protocol.columns.iter().filter_map(|(name, place)| {
                    Some((name.clone(), protocol.unit.of(loss_at(result, place)?)))
                }),
            );
        }
        if !self.protocols.is_empty() {
            measures.extend(self.parameters().map(|count| (PARAMETERS.to_string(), count as f64)));
        }
        measures
    }

    /// Protocols that have no number for one of their columns: weights diverged as they adapted.
    pub fn diverged(&self) -> Vec<String> {
        let record = self.read();
        let lacks = |protocol: &&Protocol| {
            let result = &record["protocols"][protocol.name()];
            result.is_object() && protocol.columns.iter().any(|(_, place)| loss_at(result, place).is_none())
        };
        self.protocols.iter().filter(lacks).map(Protocol::name).collect()
    }

    /// Number of trained values; `None` where it cannot be counted.
    pub fn parameters(&self) -> Option<u64> {
        if !self.config.task.name.is_empty() {
            return TaskRun::open(self.config.clone(), None, LEARNT_AND_SCORED, &|_| ()).ok()?.parameters();
        }
        let mut config = self.config.clone();
        // A vocabulary is the corpus' where the configuration names none.
        (segue_family::of(&config.model).open)(&mut config).ok()?;
        Some(segue_family::cost(&config, 1).ok()?.parameters)
    }

    /// Whether a record has the training, and its value where no other evaluation is made of it.
    fn is_trained(&self, record: &Value) -> bool {
        record["train"].is_object()
            && (!self.evaluations.is_empty() || value_of(&record["train"], self.measure()).is_some())
    }

    /// Commands that are recorded.
    pub fn commands_done(&self) -> u64 {
        let record = self.read();
        let evaluations = self.evaluations.iter().filter(|e| record["evaluations"][e.name()].is_object());
        let protocols = self.protocols.iter().filter(|p| record["protocols"][p.name()].is_object());
        u64::from(self.is_trained(&record)) + (evaluations.count() + protocols.count()) as u64
    }

    /// Commands that it takes.
    pub fn commands(&self) -> u64 {
        1 + (self.evaluations.len() + self.protocols.len()) as u64
    }

    /// Does what is not recorded yet.
    pub async fn work(&self, runner: &Runner<'_, Outcome>) -> Outcome {
        let data = self.inputs.clone()?.fingerprint;
        let mut record = self.read();
        // Records outlive run folders: what is yet to be evaluated has to be trained again.
        let lost = self.commands_done() < self.commands() && !self.run.is_dir();
        if lost && record["train"].is_object() {
            // Until that ends there is no training on record: where it is stopped, the next start goes on with it and evaluates no half of it.
            record[BEFORE] = record["train"].take();
            record["run"] = json!(self.run);
            self.write(&record)?;
        }
        if !self.is_trained(&record) {
            record = self.train(&data, runner).await?;
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
        for protocol in &self.protocols {
            if !record["protocols"][protocol.name()].is_object() {
                record["protocols"][protocol.name()] = self.evaluate(protocol, runner).await?;
                self.write(&record)?;
            }
        }
        Ok(self.evaluations.len() + self.protocols.len())
    }

    /// What a protocol says of the run. Weights that diverge as they adapt are a result, of which the table has a dash.
    async fn evaluate(&self, protocol: &Protocol, runner: &Runner<'_, Outcome>) -> Result<Value, Unfinished> {
        // `--json` stands before `eval`, which takes a protocol or options of its own, not both.
        let mut arguments = vec!["--json".to_string(), "eval".into()];
        arguments.extend(words_for(protocol, &self.run.display().to_string()));
        match command(runner, &arguments, &self.log).await {
            Err(Unfinished::Failed { code, why, .. })
                if protocol.adapts() && code == i32::from(NOT_A_NUMBER) =>
            {
                Ok(json!({ DIVERGED: why }))
            }
            result => result,
        }
    }

    /// Trains on the data with the fingerprint `data`, and records it.
    async fn train(&self, data: &str, runner: &Runner<'_, Outcome>) -> Result<Value, Unfinished> {
        let mut result = command(runner, &self.arguments, &self.log).await?;
        if Inputs::of(self.config.clone())?.fingerprint != data {
            let why = "its data has changed since the sweep began\nhint: start the sweep again".into();
            return Err(Unfinished::Failed { code: i32::from(BAD_DATA), why, log: None });
        }
        if result["evaluation"].is_null() {
            // A run that keeps its best model, and had ended before, does not evaluate again.
            result["evaluation"] = evaluations_of(&self.run)?.pop().unwrap_or_default();
        }
        // Of a run whose folder is gone, evaluations may be on record: a training that came to the same has the same.
        let known = self.read();
        let before = if known[BEFORE].is_object() { &known[BEFORE] } else { &known["train"] };
        let same = came_to_the_same(&self.config.train, before, &result);
        let kept = |name: &str| if same && known[name].is_object() { known[name].clone() } else { json!({}) };
        let any = |name: &str| known[name].as_object().is_some_and(|found| !found.is_empty());
        if !same && (any("evaluations") || any("protocols")) {
            note(
                &self.log,
                "nothing shows that this training came to the weights of the one on record, whose evaluations are made again",
            )?;
        }
        let record = json!({
            "cell": self.label, "seed": self.seed, "run": self.run, "train": result, "evaluations": kept("evaluations"),
            "protocols": kept("protocols"),
        });
        if !self.is_trained(&record) {
            let why = match self.measure() {
                Measure::Loss => {
                    "its evaluation has no `ppl` and no `accuracy`, by which a sweep compares".into()
                }
                measure => format!("none of its evaluations has a finite {}", measure.name()),
            };
            return Err(Unfinished::Failed { code: i32::from(BAD_CONFIG), why, log: None });
        }
        self.write(&record)?;
        Ok(record)
    }

    fn read(&self) -> Value {
        read(&self.record)
    }

    fn write(&self, record: &Value) -> Result<(), Failure> {
        write_whole(&self.record, &format!("{record:#}\n"))
    }
}

/// In a record, while a run whose folder is gone is trained again: what the training that its evaluations are of came to.
const BEFORE: &str = "trained_before";

/// Whether two trainings of a configuration came to the same weights, as far as numbers on record tell. Under a limit of time they never do: other steps
/// than the last may have been left out.
fn came_to_the_same(config: &TrainConfig, before: &Value, now: &Value) -> bool {
    let numbers =
        |train: &Value| (train["step"].clone(), train["loss"].clone(), measures_of(train, &Measure::Loss));
    config.time_limit <= 0.0 && before.is_object() && numbers(before) == numbers(now)
}

/// In a record, in place of a protocol's result: why weights that adapted have none.
const DIVERGED: &str = "diverged_as_it_adapted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_came_to_the_same_where_its_numbers_do_and_no_clock_ends_it() {
        let config = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            segue_families::MODELS.load(None, &keys).unwrap().config.train
        };
        let came = |loss: f64, of_evaluation: f64| json!({ "step": 9, "loss": loss, "evaluation": { "loss": of_evaluation, "seconds": loss } });
        let (plain, timed) = (config(&[]), config(&["train.time_limit=60"]));
        let same = |config: &TrainConfig, now: Value| came_to_the_same(config, &came(2.0, 3.0), &now);
        assert!(same(&plain, came(2.0, 3.0)) && !same(&timed, came(2.0, 3.0)));
        assert!(!same(&plain, came(2.1, 3.0)) && !same(&plain, came(2.0, 3.1)));
        let mut shorter = came(2.0, 3.0);
        shorter["step"] = json!(8);
        assert!(!same(&plain, shorter) && !came_to_the_same(&plain, &Value::Null, &came(2.0, 3.0)));
    }

    /// `segue eval` reads the best model where there is one; records of runs that say themselves how they did keep their names.
    #[test]
    fn runs_that_keep_their_best_model_have_other_evaluations() {
        let [plain, best] = [false, true].map(|best| {
            let overrides = [format!("checkpoint.best={best}")];
            segue_families::MODELS.load(None, &overrides).unwrap().config.to_json()
        });
        let content = |settings: &Value, evaluated| content(settings.clone(), "data", evaluated);
        assert_ne!(content(&best, true), content(&plain, true));
        assert_eq!(content(&plain, true), essence(plain.clone(), "data"));
        assert_eq!(content(&best, false), essence(plain, "data"));
    }
}
