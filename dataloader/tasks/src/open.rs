use segue_configs::{OwnSections, nearest_name};
use segue_data_error::DataError;
use segue_dataloader::sections::SegmentConfig;
use segue_tokenizer::Tokenizer;

use super::data::{TaskData, TaskSplits};
use super::request::Request;
use super::section::TaskConfig;
use super::template::Template;
use super::{adversarial, choice, conll, documents, dream, glue, race, squad, text};

type Open = fn(&Request<'_>) -> Result<TaskData, DataError>;

/// The tasks: a new one is a line here.
const TASKS: &[(&str, Open)] = &[
    ("cola", glue::open),
    ("sst2", glue::open),
    ("mrpc", glue::open),
    ("qqp", glue::open),
    ("stsb", glue::open),
    ("mnli", glue::open),
    ("qnli", glue::open),
    ("rte", glue::open),
    ("wnli", glue::open),
    ("ax", glue::open),
    ("adv-sst2", adversarial::open),
    ("adv-qqp", adversarial::open),
    ("adv-mnli", adversarial::open),
    ("adv-qnli", adversarial::open),
    ("adv-rte", adversarial::open),
    ("text", text::open),
    ("text-regression", text::open),
    ("agnews", text::open),
    ("imdb", text::open),
    ("yelp2", text::open),
    ("yelp5", text::open),
    ("dbpedia", text::open),
    ("amazon2", text::open),
    ("amazon5", text::open),
    ("race", race::open),
    ("race-high", race::open),
    ("race-middle", race::open),
    ("dream", dream::open),
    ("choice", choice::open),
    ("squad1", squad::open),
    ("squad2", squad::open),
    ("conll", conll::open),
    ("ranking", documents::open),
];

/// What opens the task of a name.
fn opener(name: &str) -> Result<Open, DataError> {
    TASKS.iter().find(|(known, _)| *known == name).map(|(_, open)| *open).ok_or_else(|| {
        let nearest = nearest_name(name, TaskData::names());
        let meant = nearest.map_or(String::new(), |nearest| format!("did you mean {nearest}? "));
        let names = TaskData::names().collect::<Vec<_>>().join(", ");
        DataError::Usage(format!(
            "task.name: unknown task `{name}`\nhint: {meant}known are {names}; use `text` for files of your own"
        ))
    })
}

impl TaskData {
    /// Reads and encodes the task `name` from the folder `task.data`. Sequences have at most `train.segment`
    /// tokens; examples are drawn from `seed`. The result does not depend on the number of threads.
    ///
    /// # Errors
    ///
    /// An unknown name is [`DataError::Usage`], a file that is not there [`DataError::Missing`], and what cannot be
    /// used in it [`DataError::BadLine`] or [`DataError::BadRecord`], unless `task.skip_bad` leaves it out.
    pub fn open(
        name: &str,
        own: &OwnSections,
        seed: u64,
        tokenizer: &Tokenizer,
        splits: TaskSplits,
    ) -> Result<TaskData, DataError> {
        let task = own.get::<TaskConfig>();
        let open = opener(name)?;
        if task.data.is_empty() {
            return Err(DataError::Usage(
                "task.data is not set\nhint: set it to the folder with the task's files".into(),
            ));
        }
        let template = Template::new(tokenizer, own.get::<SegmentConfig>().segment)?;
        let data = open(&Request { name, task: &task, tokenizer, template, splits, seed })?;
        Ok(data.set_apart())
    }

    /// Refuses a name that no task has.
    pub fn check_name(name: &str) -> Result<(), DataError> {
        opener(name).map(drop)
    }

    /// Names of the tasks.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TASKS.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_task_is_told_the_one_that_is_meant() {
        let told = |name: &str| TaskData::check_name(name).unwrap_err().hint().unwrap();
        assert!(told("mprc").starts_with("did you mean mrpc? known are cola, "), "{}", told("mprc"));
        assert!(told("zzz").starts_with("known are cola, "), "{}", told("zzz"));
        TaskData::check_name("mrpc").unwrap();
    }
}
