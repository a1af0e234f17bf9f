use std::path::{Path, PathBuf};

use clap::Args;
use segue_collectives::Communicator;
use segue_configs::{FinetuneConfig, TrainConfig};
use segue_engine::Outcome;
use segue_engine::checkpoint::{BEST, METRICS};
use segue_kernels::TrainError;
use segue_publish::read_regular_text;
use segue_tasks::TaskConfig;
use serde_json::{Value, json};

use super::{Keys, at_least_one, check_set, dry_run, print_config};
use crate::failure::{BAD_CONFIG, Failure, NO_INPUT, PREEMPTED};
use crate::output::Output;
use crate::recipes;
use crate::training::{Place, Training, early_end, end_of};

/// Arguments of `segue pretrain`.
#[derive(Args)]
#[command(after_help = "\
    The same command goes on where a killed run stopped. SIGUSR1, SIGTERM or Ctrl-C stop it after a \
    checkpoint, with exit code 75.\n\n\
    Examples:\n  \
    segue pretrain --config configs/recipes/tiny.toml run.dir=runs/tiny \\\n      \
    data.corpus=corpora/mine\n  \
    mpirun -n 4 segue pretrain --config my.toml train.lanes=64 optim.lr=1e-3\n  \
    segue pretrain --config configs/recipes/enwik8-base.toml --dry-run --ranks 2")]
pub struct PretrainArgs {
    /// Recipe, a TOML file, or the name of one that comes with the program (`segue recipes`) [default: every key at its default].
    #[arg(long, value_name = "FILE|NAME", value_parser = recipes::parser())]
    config: Option<PathBuf>,
    /// Print the merged configuration as TOML, with the origin of each value, and exit; `changed`: only what a recipe, the command line or a model's folder sets.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    print_config: Option<Keys>,
    /// Print parameters, bytes per rank and operations of the recipe, next to what `[published]` says, and exit. Reads
    /// no data, unless the recipe leaves its vocabulary or the sizes of a graph to them, and makes no weights. Exit code 1 if
    /// `published.parameters` differs.
    #[arg(long)]
    dry_run: bool,
    /// Number of ranks to assume in a dry run [default: those of this job].
    #[arg(long, requires = "dry_run", value_parser = at_least_one)]
    ranks: Option<usize>,
    /// Overrides of the recipe, by dotted name. The value is TOML; what is not TOML is a string, and a key of a text
    /// takes the value as it stands.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Trains, and reports to stderr, `metrics.jsonl`, TensorBoard and logs.
pub fn run(args: PretrainArgs, json: bool, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    // Whoever names a task is told of the other command first, and then of keys that it does not read.
    let named = args.overrides.iter().rev().find_map(|text| text.strip_prefix("task.name="));
    refuse_task(named.unwrap_or_default())?;
    let loaded = segue_families::MODELS.load(args.config.as_deref(), &args.overrides)?;
    if let Some(keys) = args.print_config {
        return print_config(&loaded, keys, json, comm);
    }
    if args.dry_run {
        return dry_run::run(loaded.config, args.ranks.unwrap_or(comm.world_size()), out);
    }
    let mut config = loaded.config;
    check_pretraining(&config.task, &config.own.get())?;
    check_set(&[
        ("run.dir", config.run.dir.is_empty(), "run.dir=FOLDER"),
        ("data.corpus", lacks_corpus(&config.to_json()), "data.corpus=FOLDER"),
    ])?;
    let place = Place::find(&config.run, &config.train, comm)?;
    let job = (segue_family::of(&config.model).open)(&mut config)
        .map_err(|error| where_it_was(error, &config.run.dir, &config.own.to_json()["data"]))?;
    let unnamed = job.names().and_then(|names| config.model.unnamed_rows(names));
    unnamed.iter().for_each(|note| out.line(note));
    let training = Training::begin(place, &config, &*job, comm, out)?;
    let outcome = training.train(&config, &*job)?;
    Ok(summary(&config.run.dir, &config.train, config.eval.min_delta, &outcome, out))
}

/// Refuses a configuration of fine-tuning.
pub fn check_pretraining(task: &FinetuneConfig, own: &TaskConfig) -> Result<(), Failure> {
    refuse_task(&task.name)?;
    match key_of_a_task(task, own) {
        None => Ok(()),
        Some(key) => {
            let hint = "hint: train tasks with `segue finetune`, or leave it out";
            Err(Failure::new(BAD_CONFIG, format!("pre-training does not read task.{key}\n{hint}")))
        }
    }
}

/// Whether a configuration as JSON names no data although its family reads some.
pub fn lacks_corpus(config: &Value) -> bool {
    let data = &config["data"];
    data["corpus"].is_string()
        && !["corpus", "corpora", "drawn", "symbols"].iter().any(|key| names_data(&data[*key]))
}

/// Whether this value of a key of `[data]` names any.
fn names_data(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Number(count) => count.as_u64() != Some(0),
        _ => false,
    }
}

/// The failure to open the data of the run in the folder `run`, as `[data]` now names them; where the run has read them from there before, with what
/// to do if they were moved.
fn where_it_was(error: TrainError, run: &str, now: &Value) -> Failure {
    let failure = Failure::from(error);
    let then = read_regular_text(Path::new(run).join("config.json")).unwrap_or_default();
    let then: Value = serde_json::from_str(&then).unwrap_or_default();
    let is_as_then = |key: &&str| names_data(&now[*key]) && then["data"][*key] == now[*key];
    let key = ["corpus", "corpora"].into_iter().find(is_as_then).filter(|_| failure.code == NO_INPUT);
    let hint = key.map(|key| {
        let place = &now[key];
        format!(
            "the data of the run {run} lay at {} before: where they were moved, add data.{key}=NEW to the same command",
            place.as_str().map_or(place.to_string(), String::from)
        )
    });
    Failure { hint: hint.or(failure.hint.clone()), ..failure }
}

fn refuse_task(name: &str) -> Result<(), Failure> {
    match name.is_empty() {
        true => Ok(()),
        false => {
            let message = format!("task.name is `{name}`\nhint: train tasks with `segue finetune`");
            Err(Failure::new(BAD_CONFIG, message))
        }
    }
}

/// Refuses settings of a task where none is named.
pub fn refuse_nameless_task(task: &FinetuneConfig, own: &TaskConfig) -> Result<(), Failure> {
    let Some(key) = key_of_a_task(task, own) else { return Ok(()) };
    let message = format!("task.{key} is of fine-tuning, and no task is named");
    let hint = "hint: add task.name=TASK train.init_from=MODEL task.data=FOLDER";
    Err(Failure::new(BAD_CONFIG, format!("{message}\n{hint}")))
}

/// The first key of `[task]` that is not at its default.
fn key_of_a_task(task: &FinetuneConfig, own: &TaskConfig) -> Option<String> {
    let section = |task: &FinetuneConfig, own: &TaskConfig| {
        let mut section = json!(task);
        section.as_object_mut()?.extend(json!(own).as_object()?.clone());
        Some(section)
    };
    let (all, defaults) = (section(task, own)?, section(&Default::default(), &Default::default())?);
    let mut keys = all.as_object()?.iter();
    keys.find(|(key, value)| defaults[*key] != **value).map(|(key, _)| key.clone())
}

/// Prints the end of the run in the folder `run`, and returns its result as JSON. `min_delta`: minimum improvement that resets the patience.
fn summary(run: &str, train: &TrainConfig, min_delta: f64, outcome: &Outcome, out: &Output) -> Value {
    if outcome.preempted {
        out.line(&format!(
            "stopped after step {} with a checkpoint; run the same command to resume",
            outcome.step
        ));
    } else {
        if let Some(why) = early_end(outcome, "eval.patience", min_delta) {
            out.line(&why);
        }
        out.line(&format!("{}; all files are in {run}", end_of(outcome.step, train)));
    }
    json!({
        "run": run,
        "step": outcome.step,
        "loss": outcome.loss,
        "evaluation": outcome.evaluation,
        "best": outcome.best.map(|(_, value)| value),
        "best_step": outcome.best.map(|(step, _)| step),
        "best_metrics": best_metrics(Path::new(run)),
        "preempted": outcome.preempted,
        "exit_code": if outcome.preempted { PREEMPTED } else { 0 },
    })
}

/// The evaluation of the best model of a run; null where none is kept.
fn best_metrics(run: &Path) -> Value {
    let text = read_regular_text(run.join(BEST).join(METRICS)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use segue_data_error::DataError;

    use super::*;

    /// A run that trained from that path gets the key to change; a new run gets the command that builds a corpus.
    #[test]
    fn a_corpus_that_was_moved_is_not_to_be_built_again() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().display().to_string();
        let missing = || -> TrainError {
            let why = "\nhint: make a corpus with `segue data build`".into();
            DataError::Missing { path: "old/corpus.json".into(), why }.into()
        };
        let config = |corpus: &str| {
            let overrides = [format!("run.dir={run}"), format!("data.corpus={corpus}")];
            segue_families::MODELS.load(None, &overrides).unwrap().config
        };
        let hint = |corpus: &str| {
            let data = &config(corpus).own.to_json()["data"];
            where_it_was(missing(), &run, data).hint.unwrap()
        };
        assert_eq!(hint("old"), "make a corpus with `segue data build`");
        std::fs::write(dir.path().join("config.json"), config("old").to_json().to_string()).unwrap();
        assert!(hint("old").contains("lay at old before") && hint("old").contains("data.corpus=NEW"));
        assert_eq!(hint("other"), "make a corpus with `segue data build`");
    }
}
