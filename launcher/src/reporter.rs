//! What happens while a run goes on, in all places where people look: the terminal, `metrics.jsonl`, TensorBoard, logs.

use std::iter;
use std::path::Path;
use std::time::Duration;

use segue_collectives::Communicator;
use segue_configs::{Config, counted};
use segue_engine::optim::NoiseScale;
use segue_engine::{Event, Labels, LossAs, LossSum, Measures, Outcome, Started, StepReport};
use segue_layers::AdversarialConfig;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Output, Progress, Unit};
use crate::pulse;
use crate::run_folder::Record;
use crate::trace::Window;

/// Writes what happens down. Errors of the files do not stop training; the first one is the command's failure at its end.
pub struct Reporter<'a> {
    config: &'a Config,
    out: &'a Output,
    comm: &'a dyn Communicator,
    rank: usize,
    attempt: u64,
    trace: Window,
    labels: Option<Labels>,
    record: Option<Record>,
    bar: Option<Progress<'a>>,
    /// What the bar says of the last steps.
    of_steps: String,
    recent: Interval,
    problem: Option<Failure>,
}

/// Sums over this attempt's steps since the last report.
#[derive(Default)]
struct Interval {
    steps: u64,
    work: f64,
    elapsed: Duration,
    data_wait: Duration,
    communication_exposed: Duration,
    checkpoint_stall: Duration,
}

/// The step that comes after what all ranks hear of together.
fn next_step(event: &Event) -> Option<u64> {
    match event {
        Event::Started(started) => Some(started.step + 1),
        Event::Step { report, .. } => Some(report.step + 1),
        Event::Skipped { step } => Some(step + 1),
        Event::RolledBack { to, .. } => Some(to + 1),
        _ => None,
    }
}

impl<'a> Reporter<'a> {
    /// For one run.
    pub fn new(config: &'a Config, comm: &'a dyn Communicator, out: &'a Output) -> Self {
        Self {
            config,
            out,
            comm,
            rank: comm.rank(),
            attempt: 1,
            trace: Window::of(&config.log, Path::new(&config.run.dir)),
            labels: None,
            record: None,
            bar: None,
            of_steps: String::new(),
            recent: Interval::default(),
            problem: None,
        }
    }

    /// Takes note of what happens.
    pub fn report(&mut self, event: Event) {
        let next = next_step(&event);
        if let Err(failure) = self.write(event) {
            self.out.line(&format!("warning: {}", failure.message));
            self.problem.get_or_insert(failure);
        }
        if let Some(next) = next {
            self.trace.at(next, self.attempt, self.comm);
        }
    }

    /// Takes note of how it ended, if it did not fail. Gives the first file that could not be written, if any.
    pub fn finish(mut self, outcome: Option<&Outcome>) -> Option<Failure> {
        let has_ended = |end: &Outcome| end.stopped_early.is_some() || end.step >= self.config.train.steps;
        let done = outcome.is_some_and(|end| has_ended(end) && !end.preempted);
        let finished = self.record.as_mut().map_or(Ok(()), |record| record.finish(done));
        // As above, a trace that is cut costs no run.
        let _ = self.trace.close();
        self.problem.or(finished.err())
    }

    fn write(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Preparing { what, done, total } => {
                self.preparing(what, done, total);
                Ok(())
            }
            Event::Started(started) => self.started(&started),
            Event::Step { report, tokens, work, due, noise, elapsed, data_wait, checkpoint_stall } => {
                let recent = &mut self.recent;
                recent.steps += 1;
                recent.work += work;
                recent.elapsed += elapsed;
                recent.data_wait += data_wait;
                recent.communication_exposed += report.communication_exposed;
                recent.checkpoint_stall += checkpoint_stall;
                if let Some(bar) = &self.bar {
                    bar.set(report.step);
                }
                due.map_or(Ok(()), |sum| self.interval(&report, tokens, sum, noise))
            }
            Event::Evaluating { done, total } => {
                if let Some(bar) = &self.bar {
                    bar.message(&format!("evaluation {}/{total}", done.min(total)));
                }
                Ok(())
            }
            Event::Evaluated { step, measures, best } => self.evaluated(step, &measures, best),
            Event::Skipped { step } => {
                self.out.line(&format!("step {step}: left out, without an update"));
                tracing::info!(rank = self.rank, step, "left out");
                if let Some(bar) = &self.bar {
                    bar.set(step);
                }
                Ok(())
            }
            Event::Overflowed { step, scale } => {
                self.out.line(&format!(
                    "step {step}: gradients overflowed under a loss scale of {scale}, no update"
                ));
                tracing::info!(rank = self.rank, step, scale, "overflowed");
                Ok(())
            }
            Event::RolledBack { to, evaluated } => self.rolled_back(to, evaluated),
            Event::Warning { what } => {
                self.out.line(&format!("warning: {what}"));
                tracing::warn!(rank = self.rank, what, "warning");
                Ok(())
            }
            Event::Checkpointing => self.record.as_ref().map_or(Ok(()), Record::sync),
            Event::Checkpointed { path } => {
                tracing::info!(rank = self.rank, path = %path.display(), "checkpointed");
                Ok(())
            }
        }
    }

    /// Said in a line where no bar is drawn, and once.
    fn preparing(&mut self, what: &str, done: u64, total: u64) {
        let out = self.out;
        let bar = self.bar.get_or_insert_with(|| {
            out.line(&format!("before the first step: {what}"));
            out.progress(total, Unit::Steps, what)
        });
        bar.set_of(done.min(total), total);
    }

    fn started(&mut self, started: &Started) -> Result<(), Failure> {
        self.bar = None;
        self.attempt = started.attempt;
        self.labels = Some(started.labels.clone());
        describe_start(started, self.out);
        tracing::info!(
            rank = self.rank,
            step = started.step,
            attempt = started.attempt,
            world_size = started.world_size,
            optimizer_bytes = started.optimizer_bytes,
            "started"
        );
        if self.rank != 0 {
            return Ok(());
        }
        self.record = Some(self.open_record(started.step, started.evaluated)?);
        pulse::of_steps(started.steps);
        let bar = self.out.progress(started.steps, Unit::Steps, started.labels.doing);
        bar.resume_at(started.step);
        self.bar = Some(bar);
        Ok(())
    }

    fn open_record(&self, step: u64, evaluated: u64) -> Result<Record, Failure> {
        let Config { run, log, .. } = self.config;
        Record::open(Path::new(&run.dir), log, &self.config.to_json(), step, evaluated)
    }

    /// Rows of steps that are made again are taken back.
    fn rolled_back(&mut self, to: u64, evaluated: u64) -> Result<(), Failure> {
        self.out.line(&format!("back to step {to}"));
        tracing::warn!(rank = self.rank, to, "rolled back");
        self.recent = Interval::default();
        if self.record.take().is_some() {
            self.record = Some(self.open_record(to, evaluated)?);
        }
        if let Some(bar) = &self.bar {
            bar.resume_at(to);
        }
        Ok(())
    }

    /// Reports the steps since the last report.
    fn interval(
        &mut self,
        report: &StepReport,
        tokens: u64,
        sum: LossSum,
        noise: Option<NoiseScale>,
    ) -> Result<(), Failure> {
        let loss = sum.nats / sum.targets;
        let Some(labels) = self.labels.clone() else { return Ok(()) };
        let recent = std::mem::take(&mut self.recent);
        let seconds = recent.elapsed.as_secs_f64();
        let per_s = recent.work / seconds;
        let also = match labels.loss_as {
            LossAs::Loss => None,
            LossAs::Perplexity => Some(("ppl", loss.exp())),
            LossAs::Bits => Some(("bpc", loss / std::f64::consts::LN_2)),
        };
        let step = report.step;
        pulse::of_loss(loss);
        let told = also.map_or(String::new(), |(name, value)| format!(", {name} {value:.2}"));
        let digits = usize::from(also.is_none());
        let text = format!("loss {loss:.4}{told}, {per_s:.digits$} {}/s", labels.rate_of);
        if let Some(bar) = &self.bar {
            bar.message(&text);
        }
        self.of_steps.clone_from(&text);
        let (kind, names) = &labels.sources;
        let source = names.get(report.source);
        let of = source.filter(|_| names.len() > 1).map_or(String::new(), |name| format!(" ({name})"));
        self.out.line(&format!(
            "step {step}/{}{of}: {text}, lr {:.2e}, gradient norm {:.3}",
            self.config.train.steps, report.lr, report.grad_norm
        ));
        tracing::info!(rank = self.rank, step, loss, per_s, grad_norm = report.grad_norm, "step");
        let Some(record) = &mut self.record else { return Ok(()) };
        let rate = format!("{}_per_s", labels.rate_of);
        let mut row = json!({
            "kind": "train",
            "step": step,
            "attempt": self.attempt,
            "tokens": tokens,
            "loss": loss,
            "lr": report.lr,
            "grad_norm": report.grad_norm,
            &rate: per_s,
            "step_s": seconds / recent.steps as f64,
            "data_wait_s": recent.data_wait.as_secs_f64(),
            "communication_exposed_s": recent.communication_exposed.as_secs_f64(),
            "checkpoint_stall_s": recent.checkpoint_stall.as_secs_f64(),
        });
        if let Some((name, value)) = also {
            row[name] = json!(value);
        }
        if let Some(nats) = sum.adversarial {
            row["adversarial_loss"] = json!(nats / sum.targets);
            let scale =
                self.config.own.get::<AdversarialConfig>().scale_at(step, self.config.schedule_steps());
            row["adversarial_scale"] = json!(scale);
        }
        if let Some(name) = source {
            row[*kind] = json!(name);
        }
        if let Some(group) = labels.group {
            row["group"] = json!(group);
        }
        for (name, value) in noise.iter().flat_map(describe_noise) {
            row[name] = json!(value);
        }
        if let Some(scaled) = report.scaled {
            row["loss_scale"] = json!(scaled.scale);
            row["skipped"] = json!(scaled.skipped);
        }
        record.row(&row)?;
        record.lost()
    }

    fn evaluated(&mut self, step: u64, measures: &Measures, best: Option<bool>) -> Result<(), Failure> {
        // The bar would go on to tell of an evaluation that is over.
        if let Some(bar) = &self.bar {
            bar.message(&self.of_steps);
        }
        let mark = if best == Some(true) { ", the best so far" } else { "" };
        // Further lines belong to the first, such as examples of what it scores.
        for (line, mark) in measures.lines.iter().zip([mark].into_iter().chain(iter::repeat(""))) {
            self.out.line(&format!("step {step}: {line}{mark}"));
        }
        tracing::info!(rank = self.rank, step, value = measures.lead, "evaluated");
        let Some(record) = &mut self.record else { return Ok(()) };
        let mut row = json!({ "kind": "eval", "step": step, "attempt": self.attempt });
        if let Some(best) = best {
            row["best"] = json!(best);
        }
        merge(&mut row, &measures.row);
        if record.has(&row) {
            return record.lost();
        }
        record.row(&row)?;
        // A checkpoint may be on its way already that knows of this evaluation.
        record.sync()?;
        record.scalars(step, &measures.scalars)?;
        record.lost()
    }
}

/// The noise in the gradient by name: tr Σ / |G|² in targets, and both parts.
fn describe_noise(noise: &NoiseScale) -> Vec<(&'static str, f64)> {
    let parts = noise.parts();
    let scale = noise.targets().map(|targets| ("noise_scale", targets));
    [("noise_gradient", parts.square), ("noise_trace", parts.trace)].into_iter().chain(scale).collect()
}

fn merge(row: &mut Value, more: &Value) {
    if let (Some(row), Some(more)) = (row.as_object_mut(), more.as_object()) {
        row.extend(more.clone());
    }
}

/// Says where a run stands before its first step.
fn describe_start(started: &Started, out: &Output) {
    if !started.fresh.is_empty() {
        out.line(&format!("fresh weights for {}", started.fresh.join(", ")));
    }
    for refused in &started.refused {
        out.line(&format!("warning: skipped a checkpoint that does not verify: {refused}"));
    }
    if let Some(path) = &started.resumed {
        out.line(&format!("resuming from {}, attempt {}", path.display(), started.attempt));
    }
    for changed in &started.changed {
        out.line(&format!("warning: not the run it was from step {} on: {changed}", started.step));
    }
    if started.step >= started.steps {
        out.line(&format!("{} done; nothing is left to train", counted(started.step, "step")));
    }
    let Labels { per_step, step_of, group, .. } = &started.labels;
    let groups = group.map_or(String::new(), |group| format!(" in groups of {group}"));
    let way = match started.step > started.steps {
        true => format!("at step {}, past train.steps = {}", started.step, started.steps),
        false => format!("from step {} to {}", started.step, started.steps),
    };
    let parameters = match started.held {
        0 => format!("{} parameters", started.parameters),
        held => format!("{} trained of {} parameters", started.parameters, started.parameters + held),
    };
    out.line(&format!(
        "{parameters}, {per_step} {step_of} a step{groups}, {}, {way}",
        counted(started.world_size, "rank"),
    ));
}
