//! Keys that not every family reads. The loop of training reads all others for each of them.

use serde_json::Value;

use crate::{Config, Idle};

/// Why a key of other families is refused.
pub(crate) const NOT_READ: &str = "a run of this model does not read it";

/// Keys of the loop that are read by those families alone that say so, as own sections are.
const OF_FAMILIES: &[&str] = &[
    "task",
    "train.group",
    "train.recompute",
    "train.batch_warmup",
    "train.batch_warmup_from",
    "average.decide_by",
];

/// What fine-tuning reads of these, whatever its encoder reads when it is trained.
const OF_TASKS: &[&str] = &["task", "train.segment", "train.recompute"];

/// Whether a list of sections and keys has this key.
fn has(list: &[&str], key: &str) -> bool {
    list.iter().any(|of| key.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

impl Config {
    /// Whether a run of this configuration reads a key that it has, given by its dotted name.
    pub fn reads(&self, key: &str) -> bool {
        let own = self.model.reads();
        let reads = match self.task.name.is_empty() {
            true => has(own, key) && !self.waits_for_a_task(key),
            // An encoder may have no use for a key of training that others have.
            false => has(OF_TASKS, key) && (has(own, key) || !has(&["train.recompute"], key)),
        };
        reads || !(has(OF_FAMILIES, key) || self.owns(key))
    }

    /// Whether a key is read once a task is named: recipes for fine-tuning leave that to the command line.
    fn waits_for_a_task(&self, key: &str) -> bool {
        self.task.name.is_empty() && has(&["task"], key) && has(self.model.reads(), key)
    }

    /// All that a run reads of it, as JSON: [`Config::to_json`] without the keys that nothing reads.
    pub fn read_json(&self) -> Value {
        let mut all = self.to_json();
        for (section, keys) in all.as_object_mut().into_iter().flatten() {
            if let Value::Object(keys) = keys {
                keys.retain(|key, _| self.reads(&format!("{section}.{key}")));
            }
        }
        if let Value::Object(sections) = &mut all {
            sections.retain(|_, keys| keys.as_object().is_none_or(|keys| !keys.is_empty()));
        }
        all
    }

    /// Keys that this family does not read. What fine-tunes is named by a key of its own section.
    pub(crate) fn idle_of_families(&self) -> Vec<Idle> {
        let why = match self.task.name.is_empty() {
            true => NOT_READ,
            false => "belongs to pre-training: `segue finetune` does not read it",
        };
        let unread = |key: &String| !self.reads(key) && !self.waits_for_a_task(key) && key != "task.name";
        let keys = self.keys().into_iter().filter(unread);
        keys.map(|key| Idle::new(&key, &["model.model_type"], why)).collect()
    }

    /// Keys of fine-tuning where no task is named: a run that has trained without one has never read them.
    pub(crate) fn keys_that_wait_for_a_task(&self) -> Vec<String> {
        let all = self.keys().into_iter();
        all.filter(|key| self.waits_for_a_task(key) && key != "task.name").collect()
    }

    /// The dotted names of all keys.
    fn keys(&self) -> Vec<String> {
        let all = self.to_json();
        let sections = all.as_object().into_iter().flatten();
        let keys = |(section, keys): (&String, &Value)| -> Vec<String> {
            let names = keys.as_object().into_iter().flatten();
            names.map(|(key, _)| format!("{section}.{key}")).collect()
        };
        sections.flat_map(keys).collect()
    }
}
