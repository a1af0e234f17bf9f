//! What a task asks of the head that answers it.

use segue_tasks::{Kind, TaskConfig, TaskData, TaskSummary};

/// The head that one task needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadSpec {
    /// The task.
    pub task: String,
    /// What it answers.
    pub kind: Kind,
    /// Names of its labels; empty where answers are no labels.
    pub labels: Vec<String>,
    /// What a sequence is summed up by, where it is answered as a whole.
    pub summary: TaskSummary,
}

impl HeadSpec {
    /// Numbers that the head gives for what it answers.
    pub(super) fn outputs(&self) -> i64 {
        match self.kind {
            Kind::Classification | Kind::Tagging => self.labels.len() as i64,
            Kind::Regression | Kind::Choice | Kind::Span | Kind::Ranking => 1,
        }
    }
}

/// The heads that tasks need, in their order, as `config` wants them.
pub fn heads(config: &TaskConfig, tasks: &[TaskData]) -> Vec<HeadSpec> {
    let head = |data: &TaskData| HeadSpec {
        task: data.name.clone(),
        kind: data.kind,
        labels: data.labels.clone(),
        summary: config.summary,
    };
    tasks.iter().map(head).collect()
}
