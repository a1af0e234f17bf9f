//! What a run on tasks reads before its first step: the model it begins with, and the tasks in the tokens of that.

use std::path::Path;

use segue_configs::{Config, OwnSections, check_unique, counted};
use segue_engine::checkpoint::{FileRecord, WEIGHTS};
use segue_language::{ModelFolder, encoders};
use segue_task::{
    BaseModel, Circumstances, Finetuning, LeadMetric, TaskModel, check_training, fingerprint, heads,
    note_on_adapters, resolve_schedule,
};
use segue_tasks::{Kind, Split, TaskConfig, TaskData, TaskSplits};
use segue_tokenizer::Tokenizer;

use crate::commands::check_set;
use crate::failure::{BAD_CONFIG, Failure, NO_INPUT};

/// What is learnt from and what is scored.
pub const LEARNT_AND_SCORED: TaskSplits = TaskSplits { train: true, dev: true, test: false };

/// A run on tasks whose data are open.
pub struct TaskRun {
    /// Its configuration, with the model's vocabulary, and with steps and warm-up where tasks are read to learn from.
    pub config: Config,
    /// The model it begins with.
    pub folder: ModelFolder,
    /// The tokenizer of that.
    pub tokenizer: Tokenizer,
    /// Its tasks.
    pub tasks: Vec<TaskData>,
}

impl TaskRun {
    /// Opens the model that `train.init_from` names and reads the tasks. `folder`: that model, where it is open. `tell` hears what was read.
    pub fn open(
        mut config: Config,
        folder: Option<ModelFolder>,
        splits: TaskSplits,
        tell: &dyn Fn(&str),
    ) -> Result<Self, Failure> {
        check_set(&[
            ("train.init_from", config.train.init_from.is_empty(), "train.init_from=MODEL"),
            ("task.data", config.own.get::<TaskConfig>().data.is_empty(), "task.data=FOLDER"),
        ])?;
        let folder = match folder {
            Some(folder) => folder,
            None => ModelFolder::open(&segue_families::MODELS, Path::new(&config.train.init_from))?,
        };
        folder.notes.iter().for_each(|note| tell(note));
        let tokenizer = folder.tokenizer()?;
        config.model.fit_vocabulary(tokenizer.vocab_size(), None)?;
        let Config { train, model, task, own, .. } = &config;
        let tasks = open_tasks(&task.name, own, train.seed, &tokenizer, splits, tell)?;
        if splits.train {
            check_training(model, &own.get(), train.recompute, &tasks)?;
            note_on_adapters(model, &own.get())?.iter().for_each(|note| tell(note));
            resolve_schedule(&mut config, &tasks)?;
            tell_of_small_passes(config.train.lanes, &tasks, tell);
        }
        Ok(Self { config, folder, tokenizer, tasks })
    }

    /// Fine-tuning on `hardware`.
    pub fn job(&self, hardware: String) -> Finetuning<'_> {
        Finetuning {
            tasks: &self.tasks,
            folder: Some(&self.folder),
            tokenizer: &self.tokenizer,
            circumstances: Circumstances { hardware, base: BaseModel::in_folder(&self.folder.path) },
        }
    }

    /// Hash of the inputs beside the configuration: the files of the tasks, the weights it begins with, and the tokenizer.
    pub fn fingerprint(&self) -> Result<String, Failure> {
        let weights = self.folder.path.join(WEIGHTS);
        // A folder that gives sizes and tokenizer alone needs none (`task.from_scratch`).
        let model = if weights.is_file() { FileRecord::of(&weights)?.blake3 } else { String::new() };
        let names = [fingerprint(&self.tasks), model, self.tokenizer.fingerprint()];
        Ok(blake3::hash(names.join(" ").as_bytes()).to_hex().to_string())
    }

    /// Number of values that it trains, the model's and its heads'. `None` where its model encodes no sequences.
    pub fn parameters(&self) -> Option<u64> {
        encoders(&self.config.model).ok()?;
        let task = self.config.own.get::<TaskConfig>();
        let (_, trained) = TaskModel::specs_apart(&self.config.model, &heads(&task, &self.tasks), &task);
        Some(trained.iter().map(|spec| spec.numel() as u64).sum())
    }

    /// What runs of its kind are compared by. Refuses tasks of which nothing is scored.
    pub fn lead_metric(&self) -> Result<LeadMetric, Failure> {
        let task = self.config.own.get::<TaskConfig>();
        LeadMetric::of(&task, &self.tasks)?.ok_or_else(|| {
            let message =
                format!("{} in {} has no split whose answers are known", self.config.task.name, task.data);
            Failure::new(BAD_CONFIG, format!("{message}, to compare runs by\nhint: add one, such as dev.tsv"))
        })
    }
}

fn tell_of_small_passes(lanes: usize, tasks: &[TaskData], tell: &dyn Fn(&str)) {
    for data in tasks {
        let examples = data.train.as_ref().map_or(0, |split| split.examples.len());
        if examples < lanes {
            tell(&format!(
                "{}: train.lanes is {lanes}, and a pass has {}: each step takes all of them",
                data.name,
                counted(examples, "example")
            ));
        }
    }
}

/// Reads the tasks that `named`, which is `task.name`, lists. `tell` hears of each split.
pub fn open_tasks(
    named: &str,
    own: &OwnSections,
    seed: u64,
    tokenizer: &Tokenizer,
    splits: TaskSplits,
    tell: &dyn Fn(&str),
) -> Result<Vec<TaskData>, Failure> {
    let mut tasks = Vec::new();
    let names = || named.split(',').map(str::trim);
    check_unique("task.name", names().map(String::from)).map_err(|why| Failure::new(BAD_CONFIG, why))?;
    for name in names() {
        let data = TaskData::open(name, own, seed, tokenizer, splits)?;
        if let Some(columns) = &data.columns {
            tell(&format!("{name}: {columns}"));
        }
        if data.train.is_none() && data.dev.is_empty() && data.test.is_empty() {
            let message =
                format!("there is nothing to answer for `{name}` in {}", own.get::<TaskConfig>().data);
            let hint = "the book (formats/tasks) lists the files that each task is read from";
            return Err(Failure::new(NO_INPUT, format!("{message}\nhint: {hint}")));
        }
        data.train.iter().chain(&data.dev).chain(&data.test).for_each(|split| describe(name, split, tell));
        tasks.push(data);
        if tasks.len() > 1 && tasks.iter().any(|data| data.kind == Kind::Ranking) {
            let message = "`ranking` cannot share an encoder with other tasks: documents are ranked by \
                words alone\nhint: fine-tune it in a run of its own";
            return Err(Failure::new(BAD_CONFIG, message));
        }
    }
    Ok(tasks)
}

/// Says how much a split holds, and what was left out of it.
fn describe(task: &str, split: &Split, tell: &dyn Fn(&str)) {
    tell(&format!("{task}: {}: {}", split.name, split.describe()));
    if split.cut() > 0 {
        let (cut, all) = (split.cut(), counted(split.examples.len(), "example"));
        tell(&format!("  {cut} of {all} are longer than train.segment, and cut off"));
    }
    split.skipped.notes.iter().for_each(|note| tell(&format!("  {note}")));
    if split.skipped.count > 0 {
        let count = split.skipped.count;
        // What is asked is answered wherever it can be read.
        let what = match split.name.as_str() {
            "train" => format!("skipped {count}"),
            _ => format!("{count} not scored"),
        };
        tell(&format!("warning: {task}: {}: {what}:", split.name));
        split.skipped.first.iter().for_each(|what| tell(&format!("  {what}")));
    }
}
