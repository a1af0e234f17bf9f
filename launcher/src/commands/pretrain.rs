use std::path::PathBuf;

use clap::Args;
use segue_collectives::Communicator;
use segue_configs::{Config, FinetuneConfig};
use segue_engine::Outcome;
use segue_tasks::TaskConfig;
use serde_json::{Value, json};

use super::{Keys, at_least_one, check_set, dry_run, print_config};
use crate::failure::{BAD_CONFIG, Failure, PREEMPTED};
use crate::output::Output;
use crate::recipes;
use crate::training::{Place, Training, early_end};

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
    refuse_task(&config.task.name)?;
    if let Some(key) = key_of_a_task(&config) {
        let hint = "hint: train tasks with `segue finetune`, or leave it out";
        return Err(Failure::new(BAD_CONFIG, format!("pre-training does not read task.{key}\n{hint}")));
    }
    let data = &config.to_json()["data"];
    let reads = data["corpus"].is_string();
    let named = ["corpus", "corpora"].iter().any(|key| match &data[*key] {
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        _ => false,
    });
    check_set(&[
        ("run.dir", config.run.dir.is_empty(), "run.dir=FOLDER"),
        ("data.corpus", reads && !named, "data.corpus=FOLDER"),
    ])?;
    let place = Place::find(&config, comm)?;
    let job = (segue_family::of(&config.model).open)(&mut config)?;
    let unnamed = job.names().and_then(|names| config.model.unnamed_rows(names));
    unnamed.iter().for_each(|note| out.line(note));
    let training = Training::begin(place, &config, &*job, comm, out)?;
    let outcome = training.train(&config, &*job)?;
    Ok(summary(&config, &outcome, out))
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

/// The first key of `[task]` that is not at its default.
pub fn key_of_a_task(config: &Config) -> Option<String> {
    let mut defaults = json!(FinetuneConfig::default());
    defaults.as_object_mut()?.extend(json!(TaskConfig::default()).as_object()?.clone());
    let all = config.to_json();
    let mut keys = all["task"].as_object()?.iter();
    keys.find(|(key, value)| defaults[*key] != **value).map(|(key, _)| key.clone())
}

fn summary(config: &Config, outcome: &Outcome, out: &Output) -> Value {
    if outcome.preempted {
        out.line(&format!(
            "stopped after step {} with a checkpoint; run the same command to resume",
            outcome.step
        ));
    } else {
        if let Some(why) = early_end(outcome, "eval.patience") {
            out.line(&why);
        }
        out.line(&format!(
            "step {} of {} is done; all files are in {}",
            outcome.step, config.train.steps, config.run.dir
        ));
    }
    json!({
        "run": config.run.dir,
        "step": outcome.step,
        "loss": outcome.loss,
        "evaluation": outcome.evaluation,
        "best": outcome.best.map(|(_, value)| value),
        "best_step": outcome.best.map(|(step, _)| step),
        "preempted": outcome.preempted,
        "exit_code": if outcome.preempted { PREEMPTED } else { 0 },
    })
}
