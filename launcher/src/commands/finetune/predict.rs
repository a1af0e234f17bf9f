use std::path::{Path, PathBuf};
use std::time::Duration;

use segue_collectives::{Communicator, deadline};
use segue_configs::{Config, counted};
use segue_engine::Watch;
use segue_engine::checkpoint::{CHECKPOINTS, list};
use segue_kernels::{Compute, libtorch};
use segue_task::{
    HeadSpec, SplitScores, TaskFolder, TaskModel, answers, averaged, beats, check_measured, decide, score,
    write_answered,
};
use segue_tasks::{Kind, Split, TaskConfig, TaskData, TaskSplits};
use serde_json::{Value, json};

use super::collapse::warn_of_collapse;
use super::{FinetuneArgs, open_tasks, runs_of_seeds};
use crate::commands::device_of_rank;
use crate::failure::{BAD_CONFIG, Failure, NO_INPUT, USAGE};
use crate::folder::{Force, ResultFolder};
use crate::output::{Output, Unit};

/// Answers the task's splits with one model, with the mean of several, or with each checkpoint of a run. `folder`: the first
/// of the models.
pub fn run(
    args: &FinetuneArgs,
    mut config: Config,
    mut folder: TaskFolder,
    output: &Path,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    deadline::set(Duration::from_secs(config.train.deadline));
    folder.folder.notes.iter().for_each(|note| out.line(note));
    folder.folder.compute = device_of_rank(config.train.device, comm, out)?.allow_tf32(config.train.tf32);
    libtorch::start(config.train.threads);
    if config.task.name.contains(',') {
        let message = format!("--predict answers one task, and these are {}", config.task.name);
        return Err(Failure::new(USAGE, message + "\nhint: name one by --task, and give a command to each"));
    }
    let head = head_of(&folder, &config.task.name, &args.models[0])?.clone();
    if is_of_another_task(&head.task, &config.task.name) {
        let labels =
            if head.labels.is_empty() { "" } else { &format!(" and its labels, {}", head.labels.join(", ")) };
        out.line(&format!(
            "warning: {} was fine-tuned on {}: {} is read and answered with that head{labels}",
            args.models[0].display(),
            head.task,
            config.task.name
        ));
    }
    let labels = config.own.get::<TaskConfig>().labels.len();
    if labels == 0 {
        config.change(|task: &mut TaskConfig| task.labels = head.labels.clone());
    } else if labels != head.labels.len() {
        let message = format!(
            "task.labels names {}, and the model of {} answers with {}: {}",
            counted(labels, "label"),
            args.models[0].display(),
            head.labels.len(),
            head.labels.join(", ")
        );
        return Err(Failure::new(BAD_CONFIG, message));
    }
    let tokenizer = folder.folder.tokenizer()?;
    let test = !args.all_checkpoints;
    let (train, name, own) = (&config.train, &config.task.name, &config.own);
    let splits = TaskSplits { train: false, dev: true, test };
    let tasks = open_tasks(name, own, train.seed, &tokenizer, splits, &|line| out.line(line))?;
    libtorch::keep_freed_memory();
    let compute = folder.folder.compute;
    let first = Answering { head, tokenizer: tokenizer.fingerprint(), compute };
    if let Some(data) = tasks.iter().find(|data| data.kind != first.head.kind) {
        let kinds = [first.head.kind, data.kind].map(|kind| format!("{kind:?}").to_lowercase());
        let message = format!(
            "the head of {} is one of {}, and {} asks for {}",
            args.models[0].display(),
            kinds[0],
            data.name,
            kinds[1]
        );
        return Err(Failure::new(BAD_CONFIG, message));
    }
    let task = &*own.get::<TaskConfig>();
    let answerer = Answerer { tasks: &tasks, task, micro_batch: train.micro_batch, comm, out };
    if args.all_checkpoints {
        check_measured(task, &tasks)?;
        let results = ResultFolder::of_output_of_ranks(output, Force::new(args.force), comm)?;
        return every_checkpoint(&args.models, name, &first, &answerer, &results);
    }
    let mut models = vec![folder.load(task)?];
    for path in &args.models[1..] {
        models.push(load(path, name, &first, task, out)?);
    }
    let results = ResultFolder::of_output_of_ranks(output, Force::new(args.force), comm)?;
    let scores = answerer.answer(&models, &results)?;
    warn_of_collapse(&scores, &args.models[0], out);
    if comm.rank() == 0 {
        results.write("scores.json", &format!("{:#}\n", json!(scores)))?;
    }
    Ok(json!({ "output": output, "models": args.models, "scores": scores }))
}

/// Whether a head that answers a task was fine-tuned on another one. A folder from elsewhere may not say on which, and AX is answered by a model of
/// MNLI, as its authors have it.
fn is_of_another_task(head: &str, task: &str) -> bool {
    let is_ax = task.eq_ignore_ascii_case("ax") && head.eq_ignore_ascii_case("mnli");
    !head.is_empty() && !head.eq_ignore_ascii_case(task) && !is_ax
}

/// How the first of several models answers: examples are read for it, and answers are averaged place by place.
struct Answering {
    head: HeadSpec,
    tokenizer: String,
    compute: Compute,
}

/// One more model that answers the task `name` as the `first` does.
fn load(
    path: &Path,
    name: &str,
    first: &Answering,
    task: &TaskConfig,
    out: &Output,
) -> Result<TaskModel, Failure> {
    let mut folder = TaskFolder::open(&segue_families::MODELS, path)?;
    folder.folder.notes.iter().for_each(|note| out.line(note));
    folder.folder.compute = first.compute;
    let head = head_of(&folder, name, path)?;
    let refuse = |what: String| Err(Failure::new(BAD_CONFIG, format!("{} {what}", path.display())));
    if head.kind != first.head.kind {
        return refuse("has a head of another kind than the first model\nhint: give each such model a command of its own".into());
    }
    if head.labels != first.head.labels {
        let hint = "hint: where only names differ, change id2label in its config.json";
        let [own, asked] = [head, &first.head].map(|head| head.labels.join(", "));
        return refuse(format!("answers with `{own}`, and the first model with `{asked}`\n{hint}"));
    }
    if folder.folder.tokenizer()?.fingerprint() != first.tokenizer {
        return refuse(
            "has another tokenizer than the first model, whose ids it would be given\nhint: give it a command of its own".into(),
        );
    }
    Ok(folder.load(task)?)
}

/// The head for a task; a model of another task with one head answers with that, if its answers are of use: AX is
/// answered by a model of MNLI.
fn head_of<'a>(folder: &'a TaskFolder, task: &str, path: &Path) -> Result<&'a HeadSpec, Failure> {
    let own = folder.heads.iter().find(|head| head.task == task);
    let found = own.or_else(|| folder.heads.first().filter(|_| folder.heads.len() == 1));
    found.ok_or_else(|| {
        let known: Vec<&str> = folder.heads.iter().map(|head| head.task.as_str()).collect();
        let message = format!(
            "{} has heads for {}, not for {task}\nhint: name one of these by --task",
            path.display(),
            known.join(", ")
        );
        Failure::new(BAD_CONFIG, message)
    })
}

/// What answers are asked for, and how.
pub struct Answerer<'a> {
    /// The tasks.
    pub tasks: &'a [TaskData],
    /// How they are answered.
    pub task: &'a TaskConfig,
    /// Examples of one forward pass.
    pub micro_batch: usize,
    /// The ranks that share the examples.
    pub comm: &'a dyn Communicator,
    /// Where scores and progress are shown.
    pub out: &'a Output,
}

impl Answerer<'_> {
    /// Answers every split but the training one with the mean of `models`, writes the answers down and scores what can
    /// be scored. A collective call.
    pub fn answer(&self, models: &[TaskModel], folder: &ResultFolder) -> Result<Vec<SplitScores>, Failure> {
        let mut all = Vec::new();
        for data in self.tasks {
            if models.len() > 1 && data.kind == Kind::Span {
                return Err(Failure::new(
                    USAGE,
                    "spans of several models cannot be averaged\nhint: give one --model",
                ));
            }
            for split in data.dev.iter().chain(&data.test) {
                let scores = self.answer_split(models, data, split, folder)?;
                if scores.count > 0 {
                    self.out.line(&scores.describe());
                    all.push(scores);
                }
            }
        }
        Ok(all)
    }

    fn answer_split(
        &self,
        models: &[TaskModel],
        data: &TaskData,
        split: &Split,
        folder: &ResultFolder,
    ) -> Result<SplitScores, Failure> {
        let Self { task, micro_batch, comm, out, .. } = *self;
        let groups = split.examples.len().div_ceil(micro_batch) as u64;
        let bar = out.progress(groups, Unit::Steps, &format!("{} {}", data.name, split.name));
        let mut of_models = Vec::new();
        for model in models {
            let head = model.heads().iter().position(|head| head.task == data.name).unwrap_or(0);
            let mut progress = |done, all| bar.set_of(done, all);
            let mut watch = Watch::new(&mut progress);
            of_models.push(answers(model, head, &split.examples, micro_batch, comm, &mut watch)?);
        }
        drop(bar);
        let Some(scores) = averaged(&of_models) else {
            return Err(Failure::new(
                BAD_CONFIG,
                "the models' answers have different shapes: their heads have different labels\nhint: give models with the same labels",
            ));
        };
        let decided = decide(data, split, &scores, task);
        if comm.rank() == 0 {
            write_answered(data, split, &decided, folder.path())?;
        }
        Ok(score(data, split, &scores, &decided))
    }
}

/// A checkpoint's value of the metric, and its row of the table.
type Scored<'a> = (f64, &'a Value);

/// Scores each checkpoint of a run, or of those of several seeds, on the task `name`.
fn every_checkpoint(
    models: &[PathBuf],
    name: &str,
    first: &Answering,
    answerer: &Answerer<'_>,
    results: &ResultFolder,
) -> Result<Value, Failure> {
    let Answerer { task, comm, out, .. } = *answerer;
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
        let (of_seed, place) = match seed {
            Some(seed) => (format!("seed {seed}, "), results.path().join(format!("seed-{seed}"))),
            None => (String::new(), results.path().into()),
        };
        for (step, path) in list(&run.join(CHECKPOINTS))? {
            let model = load(&path, name, first, task, out)?;
            out.line(&format!("{of_seed}step {step}:"));
            let folder = ResultFolder::create(&place.join(format!("step-{step:08}")))?;
            let scores = answerer.answer(&[model], &folder)?;
            warn_of_collapse(&scores, run, out);
            let value = segue_task::chosen_by(&scores, &task.metric);
            let mut row = json!({ "step": step, "value": value, "scores": scores });
            if let Some(seed) = seed {
                row["seed"] = json!(seed);
            }
            table.push((value, row));
        }
    }
    fn better<'a>(metric: &str, best: Scored<'a>, row: Scored<'a>) -> Scored<'a> {
        if beats(metric, row.0, best.0) { row } else { best }
    }
    let rows = table.iter().map(|(value, row)| (*value, row));
    let Some((value, best)) = rows.reduce(|best, row| better(&task.metric, best, row)) else {
        return Err(Failure::new(NO_INPUT, format!("{} has no checkpoints", run.display())));
    };
    let of_seed = best["seed"].as_u64().map_or(String::new(), |seed| format!(" of seed {seed}"));
    let best_step = if value.is_finite() { best["step"].clone() } else { Value::Null };
    out.line(&match best_step.is_null() {
        true => "the metric of no checkpoint is a number, so that none is the best".to_string(),
        false => format!("the best step is {best_step}{of_seed}"),
    });
    let mut result = json!({
        "run": run, "best_step": best_step,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_of_another_task_is_told_from_one_that_answers() {
        for (head, task, is) in [
            ("sst2", "rte", true),
            ("sst2", "SST2", false),
            ("mnli", "ax", false),
            ("ax", "mnli", true),
            ("", "rte", false),
        ] {
            assert_eq!(is_of_another_task(head, task), is, "{head}, {task}");
        }
    }
}
