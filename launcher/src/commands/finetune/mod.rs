//! `segue finetune`: one run, several seeds, or the predictions of trained models.

mod collapse;
mod predict;
mod train;

use std::ops::ControlFlow::{self, Break, Continue};
use std::path::{Path, PathBuf};

use clap::Args;
use segue_collectives::Communicator;
use segue_configs::{Config, Loaded, check_unique};
use segue_engine::checkpoint::CHECKPOINTS;
use segue_language::ModelFolder;
use segue_task::{TaskFolder, answering_layers};
use segue_tasks::{Kind, TaskConfig, TaskData, TaskSplits};
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::{Keys, check_set, print_config};
use crate::failure::{BAD_CONFIG, Failure, NO_INPUT, USAGE, text_of};
use crate::output::Output;
use crate::recipes;

/// Arguments of `segue finetune`.
#[derive(Args)]
#[command(after_help = "\
    Tasks are listed in docs/book/src/reference/keys-task.md, the files they are read from in \
    docs/book/src/formats/tasks.md. The same command goes on where a killed run stopped. SIGUSR1, SIGTERM or Ctrl-C \
    stop it after a checkpoint, with exit code 75.\n\n\
    Examples:\n  \
    segue finetune --task sst2 --model runs/xlnet --data glue/SST-2 \\\n      \
    run.dir=runs/sst2\n  \
    mpirun -n 4 segue finetune --task mnli --model models/xlnet-base \\\n      \
    --data glue/MNLI --config configs/recipes/finetune-mnli.toml \\\n      \
    --seeds 1,2,3 run.dir=runs/mnli\n  \
    segue finetune --predict --task rte --model runs/rte/seed-1 \\\n      \
    --model runs/rte/seed-2 --data glue/RTE --output answers/rte")]
pub struct FinetuneArgs {
    /// Task, or several that share an encoder, separated by commas: `task.name`.
    #[arg(long)]
    task: Option<String>,
    /// Model folder, checkpoint or run to begin with, of a fine-tuned run its best: `train.init_from`. With --predict
    /// the fine-tuned ones whose answers are averaged, more than once.
    #[arg(long = "model", value_name = "DIR")]
    models: Vec<PathBuf>,
    /// Folder of the task's files, or the parent folder of several tasks': `task.data`.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Recipe, a TOML file, or the name of one that comes with the program (`segue recipes`).
    #[arg(long, value_name = "FILE|NAME", value_parser = recipes::parser())]
    config: Option<PathBuf>,
    /// Seeds to train with, one run each in `RUN/seed-N`, and to compare in `RUN/summary.json`.
    #[arg(long, value_delimiter = ',', value_name = "N,..")]
    seeds: Vec<u64>,
    /// Use only sizes and tokenizer of the model folder, with random weights: `task.from_scratch`.
    #[arg(long)]
    from_scratch: bool,
    /// Skip and count bad lines and records, instead of failing: `task.skip_bad`.
    #[arg(long)]
    skip_bad: bool,
    /// Print the merged configuration, with the origin of each value, and exit; `changed`: only what a recipe, the command line or a model's folder sets.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    print_config: Option<Keys>,
    /// Predict and score with trained models, instead of training.
    #[arg(long, requires = "output")]
    predict: bool,
    /// With --predict and one run: score every checkpoint, predictions in `DIR/step-N`; of a run of several seeds those
    /// of all, in `DIR/seed-N/step-N`.
    #[arg(long, requires = "predict")]
    all_checkpoints: bool,
    /// With --predict: folder for predictions and `scores.json`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// With --predict: replace files that are there.
    #[arg(long, requires = "predict")]
    force: bool,
    /// Overrides of the recipe, by dotted name, as for `segue pretrain`.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Trains, or answers.
pub fn run(args: FinetuneArgs, json: bool, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let Some(first) = args.models.first() else {
        return Err(Failure::new(
            USAGE,
            "--model is not given\nhint: add --model DIR, a model folder, checkpoint or run to start from",
        ));
    };
    let first = &if args.all_checkpoints { first_run(first) } else { one_run(first, "--model ")? };
    // Opened once: a checkpoint is hashed whole, and may be as large as memory.
    match &args.output {
        Some(output) if args.predict => {
            let model = TaskFolder::open(&segue_families::MODELS, first)?;
            match prepare(load(&args, first, &model.folder)?, &args, json, comm)? {
                Break(printed) => Ok(printed),
                Continue(config) => predict::run(&args, config, model, output, comm, out),
            }
        }
        _ => {
            let model = ModelFolder::open(&segue_families::MODELS, first)?;
            match prepare(load(&args, first, &model)?, &args, json, comm)? {
                Break(printed) => Ok(printed),
                Continue(config) => train::run(&args, config, model, comm, out),
            }
        }
    }
}

/// Prints the configuration where that is all that was asked for, else gives it.
fn prepare(
    loaded: Loaded,
    args: &FinetuneArgs,
    json: bool,
    comm: &dyn Communicator,
) -> Result<ControlFlow<Value, Config>, Failure> {
    if let Some(keys) = args.print_config {
        return print_config(&loaded, keys, json, comm).map(Break);
    }
    Ok(Continue(loaded.config))
}

/// Layers of the configuration: what fine-tuning takes for granted, or the run the model is from where it was
/// fine-tuned; the model of `folder`, which `first` names; recipe; arguments.
fn load(args: &FinetuneArgs, first: &Path, folder: &ModelFolder) -> Result<Loaded, Failure> {
    let mut base = vec![(segue_configs::finetuning_defaults(), "fine-tuning".to_string())];
    if args.predict {
        base.extend(answering_layers(folder, first));
    }
    let mut model = folder.config.to_json();
    model["model_type"] = json!(folder.config.model_type());
    base.push((json!({ "model": model }), folder.path.join("config.json").display().to_string()));
    let mut overrides = vec![format!("train.init_from={}", text_of(first)?)];
    overrides.extend(args.task.iter().map(|task| format!("task.name={task}")));
    if let Some(data) = &args.data {
        overrides.push(format!("task.data={}", text_of(data)?));
    }
    overrides.extend(args.from_scratch.then(|| "task.from_scratch=true".to_string()));
    overrides.extend(args.skip_bad.then(|| "task.skip_bad=true".to_string()));
    overrides.extend(args.overrides.iter().cloned());
    let loaded = segue_families::MODELS.load_over(base, args.config.as_deref(), &overrides)?;
    let needed = [
        ("task.name", loaded.config.task.name.is_empty(), "--task NAME"),
        ("task.data", loaded.config.own::<TaskConfig>().data.is_empty(), "--data FOLDER"),
        (
            "run.dir",
            loaded.config.run.dir.is_empty() && !args.predict && args.print_config.is_none(),
            "run.dir=FOLDER",
        ),
    ];
    check_set(&needed)?;
    Ok(loaded)
}

/// The runs of a folder that holds one for each of several seeds; of any other, none.
fn runs_of_seeds(path: &Path) -> Vec<(u64, PathBuf)> {
    if path.join("config.json").exists() || path.join(CHECKPOINTS).exists() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let seed = |entry: std::fs::DirEntry| {
        let seed = entry.file_name().to_str()?.strip_prefix("seed-")?.parse().ok()?;
        Some((seed, entry.path()))
    };
    let mut runs: Vec<(u64, PathBuf)> = entries.filter_map(seed).collect();
    runs.sort();
    runs
}

/// The run to load a model from; of a folder with a run per seed, the first.
fn first_run(path: &Path) -> PathBuf {
    runs_of_seeds(path).into_iter().next().map_or_else(|| path.into(), |(_, run)| run)
}

/// The run to load a model from. A folder with a run per seed is refused with the path of one of them. `option`: what precedes a path on the
/// command line.
pub fn one_run(path: &Path, option: &str) -> Result<PathBuf, Failure> {
    let runs = runs_of_seeds(path);
    let Some((first, _)) = runs.first() else { return Ok(path.into()) };
    let names: Vec<String> = runs.iter().map(|(seed, _)| format!("seed-{seed}")).collect();
    let message = format!(
        "{path} holds a run for each of several seeds: {}\nhint: give one of them: {option}{path}/seed-{first}",
        names.join(", "),
        path = path.display()
    );
    Err(Failure::new(USAGE, message))
}

/// Reads the tasks that the configuration names.
fn open_tasks(
    config: &Config,
    tokenizer: &Tokenizer,
    splits: TaskSplits,
    out: &Output,
) -> Result<Vec<TaskData>, Failure> {
    let mut tasks = Vec::new();
    let names = || config.task.name.split(',').map(str::trim);
    check_unique("task.name", names().map(String::from)).map_err(|why| Failure::new(BAD_CONFIG, why))?;
    for name in names() {
        let mut own = config.clone();
        own.task.name = name.into();
        let data = TaskData::open(&own, tokenizer, splits)?;
        if let Some(columns) = &data.columns {
            out.line(&format!("{name}: {columns}"));
        }
        if data.train.is_none() && data.dev.is_empty() && data.test.is_empty() {
            let message =
                format!("there is nothing to answer for `{name}` in {}", own.own::<TaskConfig>().data);
            let hint = "docs/book/src/formats/tasks.md lists the files that each task is read from";
            return Err(Failure::new(NO_INPUT, format!("{message}\nhint: {hint}")));
        }
        for split in data.train.iter().chain(&data.dev).chain(&data.test) {
            out.line(&format!("{name}: {}: {}", split.name, split.describe()));
            split.skipped.notes.iter().for_each(|note| out.line(&format!("  {note}")));
            if split.skipped.count > 0 {
                let count = split.skipped.count;
                // What is asked is answered wherever it can be read.
                let what = match split.name.as_str() {
                    "train" => format!("skipped {count}"),
                    _ => format!("{count} not scored"),
                };
                out.line(&format!("warning: {name}: {}: {what}:", split.name));
                split.skipped.first.iter().for_each(|what| out.line(&format!("  {what}")));
            }
        }
        tasks.push(data);
        if tasks.len() > 1 && tasks.iter().any(|data| data.kind == Kind::Ranking) {
            let message = "`ranking` cannot share an encoder with other tasks: documents are ranked by \
                words alone\nhint: fine-tune it in a run of its own";
            return Err(Failure::new(BAD_CONFIG, message));
        }
    }
    Ok(tasks)
}
