use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_tokenizer::Tokenizer;

use super::data::{Split, TaskData, TaskSplits};
use super::example::Kind;
use super::section::TaskConfig;
use super::sieve::Sieve;
use super::template::Template;

/// What a task is opened with.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) task: &'a TaskConfig,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) template: Template,
    pub(crate) splits: TaskSplits,
    /// What is drawn is drawn from it.
    pub(crate) seed: u64,
}

impl Request<'_> {
    pub(crate) fn name(&self) -> &str {
        self.name
    }

    /// The task's folder.
    pub(crate) fn folder(&self) -> &Path {
        Path::new(&self.task.data)
    }

    /// For files of no split.
    pub(crate) fn sieve(&self) -> Sieve {
        Sieve::new(self.task.skip_bad)
    }

    /// For the files of a split.
    pub(crate) fn sieve_of(&self, split: &str) -> Sieve {
        Sieve::of_split(self.task.skip_bad, split)
    }

    /// That none of the files that may hold a split is there.
    pub(crate) fn missing(&self, folder: &Path, names: &[&str]) -> DataError {
        let (first, others) = names.split_first().unwrap_or((&"", &[]));
        let or = if others.is_empty() { String::new() } else { format!(" (or {})", others.join(", ")) };
        let name = self.name();
        DataError::Missing {
            path: folder.join(first),
            why: format!(
                "the task `{name}` reads it{or}\nhint: set task.data to the folder with the task's files"
            ),
        }
    }
}

/// The first of some files that is there.
pub(crate) fn first_there(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Names of files: each stem with each extension.
pub(crate) fn named(stems: &[&str], extensions: &[&str]) -> Vec<String> {
    stems
        .iter()
        .flat_map(|stem| extensions.iter().map(move |extension| format!("{stem}.{extension}")))
        .collect()
}

/// What was asked of a task, with nothing read yet.
pub(crate) fn nothing_read(request: &Request<'_>, kind: Kind, labels: Vec<String>) -> TaskData {
    let (train, dev, test): (Option<Split>, _, _) = (None, Vec::new(), Vec::new());
    TaskData { name: request.name().into(), kind, labels, columns: None, train, dev, test }
}
