use std::time::Duration;

use segue_configs::Config;
use segue_dataloader::tasks::TaskData;
use segue_trainer::tasks::{SplitScores, TaskEvent};
use serde_json::json;

use super::predict::describe_scores;
use crate::failure::Failure;
use crate::output::{Output, Progress, Unit};
use crate::run_folder::{Record, describe_start};

/// Writes what happens to all places where people look. Errors of these files do not stop training; the first one is
/// the command's failure at its end.
pub struct TaskReporter<'a> {
    config: &'a Config,
    tasks: &'a [TaskData],
    rank: usize,
    out: &'a Output,
    attempt: u64,
    record: Option<Record>,
    bar: Option<Progress<'a>>,
    /// Steps and wall time since the last report.
    recent: (u64, Duration),
    problem: Option<Failure>,
}

impl<'a> TaskReporter<'a> {
    /// For one run.
    pub fn new(config: &'a Config, tasks: &'a [TaskData], rank: usize, out: &'a Output) -> Self {
        Self {
            config,
            tasks,
            rank,
            out,
            attempt: 1,
            record: None,
            bar: None,
            recent: (0, Duration::ZERO),
            problem: None,
        }
    }

    /// Takes note of what happens.
    pub fn report(&mut self, event: TaskEvent) {
        if let Err(failure) = self.write(event) {
            self.out.line(&format!("warning: {}", failure.message));
            self.problem.get_or_insert(failure);
        }
    }

    /// The first file that could not be written, if any.
    pub fn finish(self) -> Option<Failure> {
        self.problem
    }

    fn write(&mut self, event: TaskEvent) -> Result<(), Failure> {
        match event {
            TaskEvent::Started { started, fresh } => {
                self.attempt = started.attempt;
                if !fresh.is_empty() {
                    self.out.line(&format!("random weights for {}", fresh.join(", ")));
                }
                describe_start(&started, "examples", self.out);
                tracing::info!(rank = self.rank, step = started.step, attempt = started.attempt, "started");
                if self.rank == 0 {
                    self.record = Some(Record::open(self.config, started.step)?);
                    let bar = self.out.progress(started.steps, Unit::Steps, "fine-tune");
                    bar.resume_at(started.step);
                    self.bar = Some(bar);
                }
                Ok(())
            }
            TaskEvent::Step { report, task, due, elapsed } => {
                self.recent.0 += 1;
                self.recent.1 += elapsed;
                if let Some(bar) = &self.bar {
                    bar.set(report.step);
                }
                let Some(sum) = due else { return Ok(()) };
                let (steps, time) = std::mem::take(&mut self.recent);
                let loss = sum.nats / sum.targets;
                let per_s = (steps * self.config.train.lanes as u64) as f64 / time.as_secs_f64();
                let step = report.step;
                let text = format!("loss {loss:.4}, {per_s:.1} examples/s");
                if let Some(bar) = &self.bar {
                    bar.message(&text);
                }
                let of = if self.tasks.len() > 1 {
                    format!(" ({})", self.tasks[task].name)
                } else {
                    String::new()
                };
                self.out.line(&format!(
                    "step {step}/{}{of}: {text}, lr {:.2e}, gradient norm {:.3}",
                    self.config.train.steps, report.lr, report.grad_norm
                ));
                let Some(record) = &mut self.record else { return Ok(()) };
                record.row(&json!({
                    "kind": "train", "step": step, "attempt": self.attempt, "task": self.tasks[task].name,
                    "loss": loss, "lr": report.lr, "grad_norm": report.grad_norm, "examples_per_s": per_s,
                    "communication_exposed_s": report.communication_exposed.as_secs_f64(),
                }))?;
                let values = [("train/loss", loss), ("train/lr", report.lr), ("speed/examples_per_s", per_s)];
                record.scalars(step, &values)
            }
            TaskEvent::Evaluating { done, total } => {
                if let Some(bar) = &self.bar {
                    bar.message(&format!("evaluation {}/{total}", done.min(total)));
                }
                Ok(())
            }
            TaskEvent::Evaluated { step, scores, value, best } => self.evaluated(step, &scores, value, best),
            TaskEvent::Checkpointed { path } => {
                tracing::info!(rank = self.rank, path = %path.display(), "checkpointed");
                Ok(())
            }
        }
    }

    fn evaluated(
        &mut self,
        step: u64,
        scores: &[SplitScores],
        value: f64,
        best: bool,
    ) -> Result<(), Failure> {
        let mark = if best { ", best so far" } else { "" };
        for split in scores {
            self.out.line(&format!("step {step}: {}{mark}", describe_scores(split)));
        }
        let Some(record) = &mut self.record else { return Ok(()) };
        record.row(&json!({
            "kind": "eval", "step": step, "attempt": self.attempt, "value": value, "best": best, "scores": scores,
        }))?;
        for split in scores {
            for metric in &split.metrics {
                let tag = format!("{}/{}_{}", split.task, split.split, metric.name);
                record.scalars(step, &[(tag.as_str(), metric.value)])?;
            }
        }
        Ok(())
    }
}
