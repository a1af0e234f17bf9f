use std::path::{Path, PathBuf};

use segue_collectives::Communicator;
use segue_configs::Config;
use segue_tasks::{Kind, Split, TaskData, TaskSplits};
use segue_trainer::checkpoint::{CHECKPOINTS, list};
use segue_trainer::engine::Watch;
use segue_trainer::families::task::{
    HeadSpec, SplitScores, TaskFolder, TaskModel, answers, averaged, decide, score, write_answered,
};
use serde_json::{Value, json};

use super::{FinetuneArgs, open_tasks, runs_of_seeds};
use crate::failure::{Failure, USAGE};
use crate::folder::ResultFolder;
use crate::output::{Output, Unit};

/// Answers the task's splits with one model, with the mean of several, or with each checkpoint of a run. `folder`: the first
/// of the models.
pub fn run(
    args: &FinetuneArgs,
    mut config: Config,
    folder: TaskFolder,
    output: &Path,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    let head = head_of(&folder, &config.task.name, &args.models[0])?;
    if config.task.labels.is_empty() {
        config.task.labels = head.labels.clone();
    } else if config.task.labels.len() != head.labels.len() {
        let message = format!(
            "task.labels names {} labels, and the model of {} answers with {}: {}",
            config.task.labels.len(),
            args.models[0].display(),
            head.labels.len(),
            head.labels.join(", ")
        );
        return Err(Failure::new(78, message));
    }
    let tokenizer = folder.folder.tokenizer()?;
    let test = !args.all_checkpoints;
    let tasks = open_tasks(&config, &tokenizer, TaskSplits { train: false, dev: true, test }, out)?;
    let results = ResultFolder::create(output)?;
    if args.all_checkpoints {
        return every_checkpoint(&args.models, &tasks, &config, &results, comm, out);
    }
    let mut models = vec![folder.load(&config.task)?];
    for path in &args.models[1..] {
        models.push(load(path, &config)?);
    }
    let scores = answer_splits(&models, &tasks, &config, &results, comm, out)?;
    if comm.rank() == 0 {
        results.write("scores.json", &format!("{:#}\n", json!(scores)))?;
    }
    Ok(json!({ "output": output, "models": args.models, "scores": scores }))
}

fn load(path: &Path, config: &Config) -> Result<TaskModel, Failure> {
    let folder = TaskFolder::open(path)?;
    head_of(&folder, &config.task.name, path)?;
    Ok(folder.load(&config.task)?)
}

/// The head for a task; a model of another task with one head answers with that, if its answers are of use: AX is
/// answered by a model of MNLI.
fn head_of<'a>(folder: &'a TaskFolder, task: &str, path: &Path) -> Result<&'a HeadSpec, Failure> {
    let own = folder.heads.iter().find(|head| head.task == task);
    let found = own.or_else(|| folder.heads.first().filter(|_| folder.heads.len() == 1));
    found.ok_or_else(|| {
        let known: Vec<&str> = folder.heads.iter().map(|head| head.task.as_str()).collect();
        let message = format!("{} has heads for {}, not for {task}", path.display(), known.join(", "));
        Failure::new(78, message)
    })
}

/// Answers every split but the training one with the mean of `models`, writes the answers down and scores what can
/// be scored. A collective call.
pub fn answer_splits(
    models: &[TaskModel],
    tasks: &[TaskData],
    config: &Config,
    folder: &ResultFolder,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Vec<SplitScores>, Failure> {
    let mut all = Vec::new();
    for (number, data) in tasks.iter().enumerate() {
        if models.len() > 1 && data.kind == Kind::Span {
            return Err(Failure::new(
                USAGE,
                "spans of several models cannot be averaged\nhint: give one --model",
            ));
        }
        for split in data.dev.iter().chain(&data.test) {
            let scores = answer_split(models, tasks, number, split, config, folder, comm, out)?;
            if scores.count > 0 {
                out.line(&scores.describe());
                all.push(scores);
            }
        }
    }
    Ok(all)
}

#[expect(clippy::too_many_arguments)]
fn answer_split(
    models: &[TaskModel],
    tasks: &[TaskData],
    number: usize,
    split: &Split,
    config: &Config,
    folder: &ResultFolder,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<SplitScores, Failure> {
    let data = &tasks[number];
    let bar = out.progress(0, Unit::Steps, &format!("{} {}", data.name, split.name));
    let mut of_models = Vec::new();
    for model in models {
        let head = model.heads().iter().position(|head| head.task == data.name).unwrap_or(0);
        let group = config.train.micro_batch;
        let mut progress = |done, all| bar.set_of(done, all);
        of_models.push(answers(model, head, &split.examples, group, comm, &mut Watch::new(&mut progress))?);
    }
    drop(bar);
    let Some(scores) = averaged(&of_models) else {
        return Err(Failure::new(
            78,
            "the models' answers have different shapes: their heads have \
            different labels",
        ));
    };
    let decided = decide(data, split, &scores, &config.task);
    if comm.rank() == 0 {
        write_answered(data, split, &decided, folder.path())?;
    }
    Ok(score(data, split, &scores, &decided))
}

/// Scores each checkpoint of a run, or of those of several seeds.
fn every_checkpoint(
    models: &[PathBuf],
    tasks: &[TaskData],
    config: &Config,
    results: &ResultFolder,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    let [run] = models else {
        return Err(Failure::new(
            USAGE,
            "--all-checkpoints scores the checkpoints of one run\nhint: give one --model",
        ));
    };
    let of_seeds = runs_of_seeds(run).into_iter().map(|(seed, run)| (Some(seed), run));
    let mut runs: Vec<(Option<u64>, PathBuf)> = of_seeds.collect();
    if runs.is_empty() {
        runs.push((None, run.clone()));
    }
    let mut table = Vec::new();
    for (seed, run) in &runs {
        let (name, place) = match seed {
            Some(seed) => (format!("seed {seed}, "), results.path().join(format!("seed-{seed}"))),
            None => (String::new(), results.path().into()),
        };
        for (step, path) in list(&run.join(CHECKPOINTS))? {
            let model = load(&path, config)?;
            out.line(&format!("{name}step {step}:"));
            let folder = ResultFolder::create(&place.join(format!("step-{step:08}")))?;
            let scores = answer_splits(&[model], tasks, config, &folder, comm, out)?;
            let value = segue_trainer::families::task::chosen_by(&scores, &config.task.metric);
            let mut row = json!({ "step": step, "value": value, "scores": scores });
            if let Some(seed) = seed {
                row["seed"] = json!(seed);
            }
            table.push((value, row));
        }
    }
    let Some((_, best)) = table.iter().max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Err(Failure::new(66, format!("{} has no checkpoints", run.display())));
    };
    let of_seed = best["seed"].as_u64().map_or(String::new(), |seed| format!(" of seed {seed}"));
    out.line(&format!("the best step is {}{of_seed}", best["step"]));
    let mut result = json!({
        "run": run, "best_step": best["step"],
        "checkpoints": table.iter().map(|(_, row)| row).collect::<Vec<_>>(),
    });
    if !of_seed.is_empty() {
        result["best_seed"] = best["seed"].clone();
    }
    if comm.rank() == 0 {
        results.write("scores.json", &format!("{result:#}\n"))?;
    }
    Ok(result)
}
