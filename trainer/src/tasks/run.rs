//! Fine-tuning from its first step, or from its last checkpoint, to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_collectives::Communicator;
use segue_collectives::consensus::any_rank;
use segue_configs::Config;
use segue_dataloader::Tokenizer;
use segue_dataloader::tasks::{Example, ExampleOrder, Kind, Split, TaskData};
use serde_json::json;

use super::answers::answers;
use super::card::{Circumstances, model_card};
use super::mixture::Mixture;
use super::model::{HeadSpec, TaskModel};
use super::scoring::{SplitScores, decide, score};
use crate::checkpoint::{self, BEST, LossSum, TrainState, Writer};
use crate::engine::{Started, StepReport, Updater, check_agreement, check_replicas, newest_checkpoint};
use crate::{Parameters, TrainError};

/// What happens while a model is fine-tuned. Every rank sees every event.
#[derive(Debug)]
pub enum TaskEvent {
    /// Everything is set up.
    Started {
        /// What the run is about.
        started: Started,
        /// Parameters of heads that the model folder had no use for: they start as they are drawn.
        fresh: Vec<String>,
    },
    /// A step is over.
    Step {
        /// What it did.
        report: StepReport,
        /// Number of the task it was of.
        task: usize,
        /// Loss since the last report, where one is due after this step.
        due: Option<LossSum>,
        /// Wall time of the step, with what checkpoints took of it.
        elapsed: Duration,
    },
    /// An evaluation goes on.
    Evaluating {
        /// Examples done.
        done: u64,
        /// All.
        total: u64,
    },
    /// The splits with known answers were scored.
    Evaluated {
        /// After this step.
        step: u64,
        /// Every such split of every task.
        scores: Vec<SplitScores>,
        /// What checkpoints are chosen by.
        value: f64,
        /// Whether it is the best so far.
        best: bool,
    },
    /// A checkpoint is on the disk (rank 0).
    Checkpointed {
        /// Its folder.
        path: PathBuf,
    },
}

/// How fine-tuning ended.
#[derive(Debug, Clone)]
pub struct TaskOutcome {
    /// Steps made.
    pub step: u64,
    /// Loss of the last step of this attempt.
    pub loss: Option<f64>,
    /// The best evaluation's step and value.
    pub best: Option<(u64, f64)>,
    /// Stopped by a request, with a checkpoint, before its end.
    pub preempted: bool,
    /// Stopped because nothing better came.
    pub stopped_early: bool,
}

/// Steps and warm-up of a run over `examples` training examples, where `[task]` tells them in passes and shares.
pub fn resolve_schedule(config: &mut Config, examples: usize) {
    if config.task.epochs > 0.0 {
        let steps = config.task.epochs * examples as f64 / config.train.lanes as f64;
        config.train.steps = (steps.ceil() as u64).max(1);
    }
    if config.task.warmup_share > 0.0 {
        config.schedule.warmup = (config.task.warmup_share * config.train.steps as f64).round() as u64;
    }
}

/// The heads that tasks need, in their order.
pub fn heads(tasks: &[TaskData]) -> Vec<HeadSpec> {
    let head =
        |data: &TaskData| HeadSpec { task: data.name.clone(), kind: data.kind, labels: data.labels.clone() };
    tasks.iter().map(head).collect()
}

/// Fine-tunes as `config` says: resumes from the newest whole checkpoint of the run folder, keeps the best
/// model in its folder `best`, and always leaves a checkpoint of the last step. `stop` is asked at every step; where
/// any rank says yes, all stop with a checkpoint. A collective call.
pub fn finetune(
    config: &Config,
    tasks: &[TaskData],
    tokenizer: &Tokenizer,
    circumstances: &Circumstances,
    comm: &dyn Communicator,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(TaskEvent),
) -> Result<TaskOutcome, TrainError> {
    let mut run = Run::open(config, tasks, tokenizer, circumstances, comm, on_event)?;
    let last = match config.train.stop_at {
        0 => config.train.steps,
        stop_at => stop_at.min(config.train.steps),
    };
    let mut outcome = TaskOutcome {
        step: 0,
        loss: None,
        best: None,
        preempted: false,
        stopped_early: run.out_of_patience(),
    };
    while run.state.step < last && !outcome.stopped_early {
        let report = run.step(on_event)?;
        outcome.loss = Some(report.loss);
        let step = run.state.step;
        let every = |n: u64| n > 0 && step.is_multiple_of(n);
        if every(config.train.check_replicas_every) && comm.world_size() > 1 {
            check_replicas(step, &run.model.parameters, comm)?;
        }
        outcome.preempted = any_rank(comm, stop())? && step < last;
        if !outcome.preempted && (step == config.train.steps || every(config.eval.every)) {
            run.evaluate(on_event)?;
            outcome.stopped_early = run.out_of_patience();
        }
        // After the evaluation: a checkpoint knows what it brought.
        if step == last || outcome.preempted || outcome.stopped_early || every(config.checkpoint.every) {
            run.checkpoint(on_event)?;
        }
        if outcome.preempted {
            break;
        }
    }
    run.finish(on_event)?;
    outcome.step = run.state.step;
    outcome.best = run.state.task.best.map(|best| (run.state.task.best_step, best));
    Ok(outcome)
}

/// The training examples of one task.
struct Lesson<'a> {
    examples: &'a [Example],
    order: ExampleOrder,
    /// Parameters that its steps have to do with.
    reached: Vec<bool>,
}

struct Run<'a> {
    config: &'a Config,
    tasks: &'a [TaskData],
    comm: &'a dyn Communicator,
    tokenizer: Arc<Tokenizer>,
    circumstances: &'a Circumstances,
    // Before the model when dropped: it holds hooks on its parameters.
    updater: Updater<'a>,
    model: TaskModel,
    lessons: Vec<Lesson<'a>>,
    mixture: Mixture,
    state: TrainState,
    writer: Writer,
    stall: Duration,
}

impl<'a> Run<'a> {
    fn open(
        config: &'a Config,
        tasks: &'a [TaskData],
        tokenizer: &Tokenizer,
        circumstances: &'a Circumstances,
        comm: &'a dyn Communicator,
        on_event: &mut dyn FnMut(TaskEvent),
    ) -> Result<Self, TrainError> {
        let heads = heads(tasks);
        if config.model.transfo_xl().is_some() && heads.iter().any(|head| head.kind == Kind::Span) {
            return Err(TrainError::OtherModel {
                path: config.train.init_from.clone().into(),
                what: "a Transformer-XL reads from left to right, so that it knows no question where it reads the \
                       paragraph; take an XLNet for this task"
                    .into(),
            });
        }
        let specs = TaskModel::specs(&config.model, &heads);
        let parameters = Parameters::initialise(specs, config.train.seed, tch::Kind::Float);
        let count = parameters.count();
        let model = TaskModel::new(&config.model, &heads, &config.task, parameters);
        let mut updater = Updater::new(config, &model.parameters, comm)?;
        let data = fingerprint(tasks);
        let mut state = TrainState::start(config, &data, Vec::new(), comm.world_size());
        check_agreement(&state, comm)?;
        let mut fresh = Vec::new();
        let found = newest_checkpoint(&Path::new(&config.run.dir).join("checkpoints"), comm)?;
        let (resumed, refused) = match found {
            Some((path, refused)) => {
                let stored = checkpoint::restore_task(&path, config, &data, &model, &mut updater.optimizer)?;
                state.go_on_from(stored);
                (Some(path), refused)
            }
            None => {
                if !config.task.from_scratch {
                    fresh = checkpoint::start_task_from(Path::new(&config.train.init_from), &model)?;
                }
                (None, Vec::new())
            }
        };
        let lessons = lessons(config, tasks, &model)?;
        let sizes: Vec<usize> = lessons.iter().map(|lesson| lesson.examples.len()).collect();
        let started = Started {
            step: state.step,
            steps: config.train.steps,
            attempt: state.attempt,
            parameters: count,
            world_size: comm.world_size(),
            targets_per_step: config.train.lanes as u64,
            resumed,
            refused,
        };
        on_event(TaskEvent::Started { started, fresh });
        Ok(Self {
            mixture: Mixture::new(&sizes, config.train.seed),
            tokenizer: Arc::new(tokenizer.clone()),
            writer: Writer::start()?,
            stall: Duration::ZERO,
            config,
            tasks,
            comm,
            circumstances,
            updater,
            model,
            lessons,
            state,
        })
    }

    fn step(&mut self, on_event: &mut dyn FnMut(TaskEvent)) -> Result<StepReport, TrainError> {
        let began = Instant::now();
        let step = self.state.step + 1;
        let (task, nth) = self.mixture.at(step);
        let Lesson { examples, order, reached } = &mut self.lessons[task];
        let batch = order.batch(nth);
        let layout = &self.updater.layout;
        let (each, first) = (layout.micro_batch, layout.micro_steps.start);
        let model = &self.model;
        let reached = (self.tasks.len() > 1 || reached.contains(&false)).then_some(reached.as_slice());
        let report = self.updater.step(&model.parameters, step, reached, |i, noise| {
            let members: Vec<&Example> =
                batch[(first + i) * each..][..each].iter().map(|&number| &examples[number]).collect();
            model.loss(task, &members, Some(noise))
        })?;
        self.state.step = step;
        self.state.tokens += report.targets as u64;
        self.state.unreported.nats += report.loss * report.targets;
        self.state.unreported.targets += report.targets;
        let due = step.is_multiple_of(self.config.log.every) || step == self.config.train.steps;
        on_event(TaskEvent::Step {
            report,
            task,
            due: due.then(|| std::mem::take(&mut self.state.unreported)),
            elapsed: began.elapsed() + std::mem::take(&mut self.stall),
        });
        if let Some(path) = self.writer.poll()? {
            on_event(TaskEvent::Checkpointed { path });
        }
        Ok(report)
    }

    /// Scores every split with known answers, and keeps the model where it is the best so far.
    fn evaluate(&mut self, on_event: &mut dyn FnMut(TaskEvent)) -> Result<(), TrainError> {
        let began = Instant::now();
        let mut scores = Vec::new();
        for (head, data) in self.tasks.iter().enumerate() {
            for split in &data.dev {
                let progress = |done, total| on_event(TaskEvent::Evaluating { done, total });
                scores.push(evaluate_split(
                    &self.model,
                    head,
                    data,
                    split,
                    self.config,
                    self.comm,
                    progress,
                )?);
            }
        }
        let step = self.state.step;
        let value = chosen_by(&scores, &self.config.task.metric);
        let best = !scores.is_empty() && self.state.task.observe(step, value);
        self.state.evaluated = step;
        if best && self.comm.rank() == 0 {
            let path = Path::new(&self.config.run.dir).join(BEST);
            let metrics = json!({ "step": step, "value": value, "scores": scores });
            let card = model_card(self.config, self.tasks, &scores, step, self.circumstances);
            let files = [
                ("metrics.json".to_string(), format!("{metrics:#}\n").into_bytes()),
                ("README.md".to_string(), card.into_bytes()),
            ];
            checkpoint::write_task_folder(&path, &self.model, &self.tokenizer, &files)?;
        }
        self.stall += began.elapsed();
        on_event(TaskEvent::Evaluated { step, scores, value, best });
        Ok(())
    }

    fn out_of_patience(&self) -> bool {
        let patience = self.config.task.patience;
        patience > 0 && self.state.task.since_best >= patience
    }

    fn checkpoint(&mut self, on_event: &mut dyn FnMut(TaskEvent)) -> Result<(), TrainError> {
        if self.comm.rank() > 0 {
            return Ok(());
        }
        let began = Instant::now();
        let run = Path::new(&self.config.run.dir);
        let (optimizer, tokenizer) = (&self.updater.optimizer, self.tokenizer.clone());
        let job =
            checkpoint::snapshot_of_task(run, self.config, &self.model, optimizer, &self.state, tokenizer);
        if let Some(path) = self.writer.submit(job)? {
            on_event(TaskEvent::Checkpointed { path });
        }
        self.stall += began.elapsed();
        Ok(())
    }

    fn finish(&mut self, on_event: &mut dyn FnMut(TaskEvent)) -> Result<(), TrainError> {
        if let Some(path) = self.writer.wait()? {
            on_event(TaskEvent::Checkpointed { path });
        }
        // No rank leaves before the last checkpoint is on the disk.
        self.comm.barrier()?;
        Ok(())
    }
}

fn lessons<'a>(
    config: &Config,
    tasks: &'a [TaskData],
    model: &TaskModel,
) -> Result<Vec<Lesson<'a>>, TrainError> {
    let lesson = |(head, data): (usize, &'a TaskData)| {
        let examples = data.train.as_ref().map(|split| split.examples.as_slice()).unwrap_or_default();
        if examples.is_empty() {
            let what = format!("the task {} has no training examples in {}", data.name, config.task.data);
            return Err(TrainError::Layout(format!("{what}; name the folder with its training file")));
        }
        let widths = examples.iter().map(|example| example.width() as u32).collect();
        // Tasks of one seed must not take their examples in one rhythm.
        let seed = config.train.seed.wrapping_add(head as u64);
        let order = ExampleOrder::new(widths, config.train.lanes, config.task.length_window, seed);
        Ok(Lesson { examples, order, reached: model.reached(head) })
    };
    tasks.iter().enumerate().map(lesson).collect()
}

/// Scores one split. A collective call.
pub fn evaluate_split(
    model: &TaskModel,
    head: usize,
    data: &TaskData,
    split: &Split,
    config: &Config,
    comm: &dyn Communicator,
    progress: impl FnMut(u64, u64),
) -> Result<SplitScores, TrainError> {
    let scores = answers(model, head, &split.examples, config.train.micro_batch, comm, progress)?;
    let decided = decide(data, split, &scores, &config.task);
    Ok(score(data, split, &decided))
}

/// The mean over splits of the metric that checkpoints are chosen by.
pub fn chosen_by(scores: &[SplitScores], metric: &str) -> f64 {
    let values = scores.iter().map(|scores| scores.metric(metric).unwrap_or(f64::NAN));
    values.sum::<f64>() / scores.len() as f64
}

/// Names the data of all tasks.
fn fingerprint(tasks: &[TaskData]) -> String {
    let mut hasher = blake3::Hasher::new();
    for data in tasks {
        for split in data.train.iter().chain(&data.dev) {
            hasher.update(format!("{} {} {}\n", data.name, split.name, split.fingerprint).as_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}
