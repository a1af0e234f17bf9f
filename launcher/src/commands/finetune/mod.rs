//! `segue finetune`: one run, several seeds, or the predictions of trained models.

mod collapse;
mod predict;
mod task_run;
mod train;

use std::ops::ControlFlow::{self, Break, Continue};
use std::path::{Path, PathBuf};

use clap::Args;
use segue_collectives::Communicator;
use segue_configs::{Config, Loaded, ModelConfig};
use segue_engine::checkpoint::CHECKPOINTS;
use segue_language::{ModelFolder, encoders};
use segue_task::{TaskFolder, answering_layers, check_layers};
use segue_tasks::{TaskConfig, TaskData};
use serde_json::Value;

use self::task_run::open_tasks;
pub use self::task_run::{LEARNT_AND_SCORED, TaskRun};
use super::{Keys, at_least_one, check_set, dry_run, print_config};
use crate::failure::{Failure, NO_INPUT, USAGE, text_of};
use crate::output::Output;
use crate::recipes;

/// Arguments of `segue finetune`.
#[derive(Args, Default)]
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
    /// Print steps, parameters, bytes per rank and operations of the run, and exit. Reads the tasks, and makes no weights.
    #[arg(long, conflicts_with = "predict")]
    dry_run: bool,
    /// Number of ranks to assume in a dry run [default: those of this job].
    #[arg(long, requires = "dry_run", value_parser = at_least_one)]
    ranks: Option<usize>,
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
            match prepare(load(&args, first, &model.folder, false)?, &args, json, comm)? {
                Break(printed) => Ok(printed),
                Continue(config) => predict::run(&args, config, model, output, comm, out),
            }
        }
        _ => {
            let model = ModelFolder::open(&segue_families::MODELS, first)?;
            let trains = args.print_config.is_none() && !args.dry_run;
            match prepare(load(&args, first, &model, trains)?, &args, json, comm)? {
                Break(printed) => Ok(printed),
                Continue(config) if args.dry_run => {
                    let model =
                        Some(model).filter(|_| config.train.init_from == text_of(first).unwrap_or_default());
                    let run = TaskRun::open(config, model, LEARNT_AND_SCORED, &|line| out.line(line))?;
                    dry_run::of_task(&run, args.ranks.unwrap_or(comm.world_size()), out)
                }
                Continue(config) => train::run(&args, config, model, comm, out),
            }
        }
    }
}

/// What fine-tuning the model of `model` reads, with the model: for steps that leave no run.
pub fn configure(
    model: &Path,
    config: Option<&Path>,
    overrides: &[String],
) -> Result<(Config, ModelFolder), Failure> {
    let config = config.map(Path::to_path_buf);
    let args = FinetuneArgs { config, overrides: overrides.to_vec(), ..FinetuneArgs::default() };
    let first = one_run(model, "--model ")?;
    let folder = ModelFolder::open(&segue_families::MODELS, &first)?;
    Ok((load(&args, &first, &folder, false)?.config, folder))
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
/// fine-tuned; the model of `folder`, which `first` names; recipe; arguments. `leaves_run`: whether it needs a run folder.
fn load(
    args: &FinetuneArgs,
    first: &Path,
    folder: &ModelFolder,
    leaves_run: bool,
) -> Result<Loaded, Failure> {
    let mut base = vec![(segue_configs::finetuning_defaults(), "fine-tuning".to_string())];
    if args.predict {
        base.extend(answering_layers(folder, first));
    }
    base.push(segue_configs::model_layer(&folder.config, &folder.path));
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
        ("task.data", loaded.config.own.get::<TaskConfig>().data.is_empty(), "--data FOLDER"),
        ("run.dir", leaves_run && loaded.config.run.dir.is_empty(), "run.dir=FOLDER"),
    ];
    check_set(&needed)?;
    check_tasks(&loaded.config.task.name, &loaded.config.model, &loaded.config.own.get())?;
    refuse_file(Path::new(&loaded.config.own.get::<TaskConfig>().data))?;
    Ok(loaded)
}

/// Refuses tasks that there are not, and to freeze layers that the model has not: what is known before anything is read.
fn check_tasks(names: &str, model: &ModelConfig, task: &TaskConfig) -> Result<(), Failure> {
    names.split(',').try_for_each(|name| TaskData::check_name(name.trim()))?;
    // What ranks documents has another reason to freeze nothing.
    match names.split(',').any(|name| name.trim() == "ranking") {
        true => Ok(()),
        false => Ok(check_layers(encoders(model)?, model, task)?),
    }
}

/// Refuses a file in the place of the folder with the files of a task.
fn refuse_file(data: &Path) -> Result<(), Failure> {
    if !data.is_file() {
        return Ok(());
    }
    let message = format!("task.data is {}, a file, and a task is read from a folder", data.display());
    let folder = data.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hint = format!(
        "give the folder, `--data {}`, with files of the names that the task has (the book, formats/tasks), such as train.tsv",
        folder.display()
    );
    Err(Failure::new(NO_INPUT, format!("{message}\nhint: {hint}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patience_without_evaluations_is_refused() {
        let load = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            segue_families::MODELS.load(None, &keys)
        };
        let refused = load(&["task.name=sst2", "task.patience=3"]).unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("`task.patience` = 3 is invalid: counts evaluations"), "{message}");
        assert_eq!(refused.hint().as_deref(), Some("add eval.every=STEPS"));
        load(&["task.name=sst2", "task.patience=3", "eval.every=10"]).unwrap();
        load(&["task.name=sst2", "eval.every=10", "task.patience=3", "eval.every=0"]).unwrap();
    }

    #[test]
    fn a_file_of_a_task_is_not_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lines.tsv");
        std::fs::write(&file, "").unwrap();
        refuse_file(dir.path()).unwrap();
        let refused = refuse_file(&file).unwrap_err();
        assert_eq!(refused.code, NO_INPUT);
        assert!(refused.hint.unwrap().contains(&format!("`--data {}`", dir.path().display())));
    }
}
