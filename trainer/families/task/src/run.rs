//! Fine-tuning as a family of runs: batches of examples, a mixture of tasks, scores.

use std::path::Path;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, ConfigError, ModelConfig, OwnSection, TrainConfig};
use segue_cost::RankMemory;
use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_dataloader::sections::SegmentConfig;
use segue_engine::checkpoint::WEIGHTS;
use segue_engine::{
    Begun, Event, Family, FamilyReader, KeepBest, Labels, Learner, Loss, LossAs, Measures, Outcome, Place,
    Prepared, Turn, Watch, fill, train,
};
use segue_family::Job;
use segue_kernels::noise::Noise;
use segue_kernels::{Compute, ParameterSpec, Parameters, TrainError};
use segue_language::encoders;
use segue_language::{ModelFolder, as_stored, read_weights};
use segue_tasks::{Example, ExampleOrder, Kind, Split, TaskConfig, TaskData, batches_of_pass};
use segue_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::{Value, json};
use tch::{Device, Tensor};

use super::adapter_folder::{ADAPTER, Added};
use super::adapters;
use super::answers::answers;
use super::batches::{example_order, mixture, training_examples};
use super::card::{Circumstances, model_card};
use super::chosen::{better, check_measured, chosen_by};
use super::class_loss;
use super::cost::beside;
use super::folder::start_task_from;
use super::front_matter::CARD;
use super::frozen;
use super::head_spec::heads;
use super::hub::{hugging_face_config, pipeline};
use super::mixture::Mixture;
use super::model::TaskModel;
use super::scoring::{SplitScores, decide, score};

/// Steps and warm-up of a run over the training examples of `tasks`, where `[task]` tells them in passes and shares. Refuses keys that count steps
/// and do not go with them.
pub fn resolve_schedule(config: &mut Config, tasks: &[TaskData]) -> Result<(), ConfigError> {
    if config.task.epochs > 0.0 {
        let examples = tasks.iter().filter_map(|data| data.train.as_ref()).map(|split| split.examples.len());
        let batches: usize = examples.map(|examples| batches_of_pass(examples, config.train.lanes)).sum();
        config.train.steps = ((config.task.epochs * batches as f64).ceil() as u64).max(1);
    }
    if config.task.warmup_share > 0.0 {
        config.schedule.warmup = (config.task.warmup_share * config.train.steps as f64).round() as u64;
    }
    config.check_steps()
}

/// Refuses what a run cannot train on `tasks`. `recompute`: whether its backward pass makes layers again.
pub fn check_training(
    model: &ModelConfig,
    task: &TaskConfig,
    recompute: bool,
    tasks: &[TaskData],
) -> Result<(), TrainError> {
    task.check()?;
    check_measured(task, tasks)?;
    class_loss::check(task, tasks)?;
    let (family, heads) = (encoders(model)?, heads(task, tasks));
    frozen::check(family, model, &heads, task)?;
    let ranks = tasks.iter().any(|data| data.kind == Kind::Ranking);
    Ok(adapters::check(task, recompute, ranks, &family.encoder_specs(model))?)
}

/// Fine-tuning whose tasks are read. The best model is kept in the run's folder `best`.
pub struct Finetuning<'a> {
    /// The tasks that share the model.
    pub tasks: &'a [TaskData],
    /// The folder of the model that `train.init_from` names, where it is open already.
    pub folder: Option<&'a ModelFolder>,
    /// The tokenizer that the tasks are read with.
    pub tokenizer: &'a Tokenizer,
    /// What the page beside the model says of how it came to be.
    pub circumstances: Circumstances,
}

impl Job for Finetuning<'_> {
    fn memory(&self, config: &Config, ranks: usize) -> Result<RankMemory, TrainError> {
        let Config { train, model, average, optim, own, .. } = config;
        let task = own.get::<TaskConfig>();
        let (_, trained) = TaskModel::specs_apart(model, &heads(&task, self.tasks), &task);
        let beside = beside(model, &task, self.tasks)?;
        Ok(RankMemory::without_carry(train, average, optim, &trained, ranks)?.with(beside))
    }

    fn train(
        &self,
        config: &Config,
        compute: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let Self { tasks, folder, tokenizer, circumstances } = self;
        check_training(&config.model, &config.own.get(), config.train.recompute, tasks)?;
        let learner = TaskLearner::new(&config.train, &config.model, &config.own.get(), tasks, compute)?;
        let pipeline = pipeline(&config.model, learner.model.heads(), tokenizer);
        // Ranked documents are laid out in their own way, and no other program reads such a folder.
        let laid_out = tasks.iter().any(|data| data.kind != Kind::Ranking);
        let for_others =
            tokenizer.for_sequences(Some(config.own.get::<SegmentConfig>().segment)).filter(|_| laid_out);
        let tokenizer = Arc::new(for_others.unwrap_or_else(|| (*tokenizer).clone()));
        let family = Examples { config, tasks, folder: *folder, tokenizer, pipeline, circumstances };
        train(config, family, learner, comm, stop, on_event)
    }
}

/// A model with heads, trained on one task at a time. A batch is numbers of examples, one for each of the rank's lanes,
/// or fewer in the small batch of a pass.
struct TaskLearner<'a> {
    model: TaskModel,
    examples: Vec<&'a [Example]>,
    micro_batch: usize,
    mixture: Mixture,
    /// For each task: parameters that its steps train; `None` where all are.
    reached: Vec<Option<Vec<bool>>>,
}

impl<'a> TaskLearner<'a> {
    fn new(
        train: &TrainConfig,
        model: &ModelConfig,
        task: &TaskConfig,
        tasks: &'a [TaskData],
        compute: Compute,
    ) -> Result<Self, TrainError> {
        let heads = heads(task, tasks);
        let family = encoders(model)?;
        if !family.encodes_both_ways() && heads.iter().any(|head| head.kind == Kind::Span) {
            return Err(TrainError::OtherModel {
                path: train.init_from.clone().into(),
                what: "the model reads from left to right, so that it knows no question where it reads the \
                       paragraph\nhint: take an XLNet for this task"
                    .into(),
            });
        }
        let model = TaskModel::fresh(model, &heads, task, train, compute);
        let model = model.trained_on(task, tasks);
        let examples =
            tasks.iter().map(|data| training_examples(task, data)).collect::<Result<Vec<_>, _>>()?;
        let reached = |head: usize| {
            let reached = model.reached(head);
            reached.contains(&false).then_some(reached)
        };
        Ok(Self {
            reached: (0..tasks.len()).map(reached).collect(),
            mixture: mixture(train, task, tasks)?,
            micro_batch: train.micro_batch,
            examples,
            model,
        })
    }
}

impl Learner for TaskLearner<'_> {
    type Batch = Vec<usize>;
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.model.parameters)]
    }

    fn frozen(&self) -> Option<&Parameters> {
        Some(self.model.frozen())
    }

    fn turn(&mut self, step: u64) -> Turn {
        let (task, nth) = self.mixture.at(step);
        Turn { networks: vec![0], source: task, nth }
    }

    fn reached(&self, turn: &Turn, _: usize) -> Option<&[bool]> {
        self.reached[turn.source].as_deref()
    }

    fn start(&self, _: i64) {}

    fn loss(&self, turn: &Turn, batch: &Vec<usize>, micro_step: usize, (): &(), noise: &Noise) -> Loss<()> {
        let examples = self.examples[turn.source];
        // The last lanes of a small batch have no example.
        let own = batch.iter().skip(micro_step * self.micro_batch).take(self.micro_batch);
        let members: Vec<&Example> = own.map(|&number| &examples[number]).collect();
        if members.is_empty() {
            return Loss::nothing(1, self.model.parameters.options().1, ());
        }
        self.model.loss(turn.source, &members, Some(noise))
    }
}

/// Numbers of the examples of one rank's lanes, fewer where the batch is small, and how many examples all ranks have.
struct ExampleReader {
    order: ExampleOrder,
    lanes: std::ops::Range<usize>,
}

impl Reader for ExampleReader {
    type Batch = (Vec<usize>, usize);

    fn read(&mut self, nth: u64) -> Result<Self::Batch, DataError> {
        let (lanes, all) = (self.lanes.clone(), self.order.batch(nth));
        let own = all.iter().skip(lanes.start).take(lanes.len()).copied().collect();
        Ok((own, all.len()))
    }
}

/// A run over the examples of tasks.
struct Examples<'a> {
    config: &'a Config,
    tasks: &'a [TaskData],
    /// The folder of the model that it begins with, where it is open already.
    folder: Option<&'a ModelFolder>,
    tokenizer: Arc<Tokenizer>,
    /// The public package's pipeline that answers with the folder, or why none does.
    pipeline: Result<&'static str, String>,
    circumstances: &'a Circumstances,
}

impl<'a> Family for Examples<'a> {
    type Learner = TaskLearner<'a>;
    type Cursor = ();

    fn fingerprint(&self) -> String {
        fingerprint(self.tasks)
    }

    fn data_key(&self) -> &'static str {
        "task.data"
    }

    fn labels(&self) -> Labels {
        Labels {
            doing: "fine-tune",
            step_of: "examples",
            per_step: self.config.train.lanes as u64,
            rate_of: "examples",
            loss_as: LossAs::Loss,
            group: None,
            sources: ("task", self.tasks.iter().map(|data| data.name.clone()).collect()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let order = example_order(&self.config.train, &self.config.own.get(), self.tasks, place.source)?;
        let reader = ExampleReader { order, lanes: place.layout.lane_range() };
        Ok(Box::new(reader.map(|(batch, all)| Prepared { work: Some(all as f64), ..Prepared::of(batch) })))
    }

    fn begin(&self, learner: &TaskLearner<'a>, from: &Path) -> Result<Begun, TrainError> {
        match self.folder {
            _ if self.config.own.get::<TaskConfig>().from_scratch => Ok(Begun::default()),
            // Whoever has opened it has told how it was found.
            Some(folder) => Ok(Begun { fresh: start_task_from(folder, &learner.model)?, ..Begun::default() }),
            None => {
                let folder = ModelFolder::open(self.config.models(), from)?;
                let fresh = start_task_from(&folder, &learner.model)?;
                Ok(Begun { fresh, ..Begun::with(&folder.path, folder.passed_over) })
            }
        }
    }

    fn evaluates(&self) -> bool {
        self.tasks.iter().any(|data| !data.dev.is_empty())
    }

    /// Scores every split with known answers.
    fn evaluate(
        &mut self,
        learner: &mut TaskLearner<'a>,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        let mut scores = Vec::new();
        for (head, data) in self.tasks.iter().enumerate() {
            for split in &data.dev {
                let found = evaluate_split(&learner.model, head, data, split, self.config, comm, watch)?;
                scores.push(found);
            }
        }
        if scores.is_empty() {
            return Ok(None);
        }
        Ok(Some(measures(&scores, &self.config.own.get::<TaskConfig>().metric)))
    }

    fn keeps_best(&self) -> Option<KeepBest> {
        let task = self.config.own.get::<TaskConfig>();
        Some(KeepBest { patience: task.patience, min_delta: task.min_delta })
    }

    fn beside_best(&self, measures: &Measures, step: u64) -> Vec<(String, Vec<u8>)> {
        // Of several weight sets the measures are those of the one that was chosen.
        let scores: Vec<SplitScores> = Vec::deserialize(&measures.row["scores"]).unwrap_or_default();
        let card = model_card(self.config, self.tasks, &scores, step, &self.pipeline, self.circumstances);
        vec![(CARD.into(), card.into_bytes())]
    }

    fn model_config(&self, learner: &TaskLearner<'a>) -> Value {
        let mut config = hugging_face_config(learner.model.config(), learner.model.heads());
        if learner.model.is_adapted() {
            config[ADAPTER] = json!(Added::of(&self.config.own.get(), self.circumstances.base.name()));
        }
        config
    }

    fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        Some(&self.tokenizer)
    }

    /// Also what stays as it is.
    fn stored(
        &self,
        learner: &TaskLearner<'a>,
        _: usize,
        weights: Vec<(String, Tensor)>,
    ) -> Vec<(String, Tensor)> {
        let frozen = learner.model.frozen();
        let frozen = frozen.specs().iter().zip(frozen.tensors());
        let on_host = |(spec, t): (&ParameterSpec, &Tensor)| (spec.name.clone(), t.to_device(Device::Cpu));
        let all = learner.model.together(frozen.map(on_host), weights).collect();
        as_stored(&self.config.model, learner.model.merged(all))
    }

    /// Also fills what stays as it is. Under adapters that is the model the run began with: a checkpoint holds it with what they add.
    fn read(&self, learner: &TaskLearner<'a>, _: usize, path: &Path) -> Result<Vec<Tensor>, TrainError> {
        let model = &learner.model;
        let specs: Vec<_> = model.weights().map(|(spec, _)| spec.clone()).collect();
        let stored = read_weights(path, &self.config.model, &specs)?;
        let (frozen, trained) = match model.is_adapted() {
            false => model.apart(stored),
            true => {
                let base = self.base_of(model, &specs, &stored, path)?;
                let (_, trained) = model.apart(stored);
                (base, trained)
            }
        };
        fill(model.frozen().tensors().iter().zip(frozen));
        Ok(trained)
    }
}

impl Examples<'_> {
    /// The encoder that adapters of a checkpoint, `stored` in `path`, were added to: that of `train.init_from`, if it is still the one.
    fn base_of(
        &self,
        model: &TaskModel,
        specs: &[ParameterSpec],
        stored: &[Tensor],
        path: &Path,
    ) -> Result<Vec<Tensor>, TrainError> {
        let from = match self.folder {
            Some(folder) => folder.path.clone(),
            None => ModelFolder::open(self.config.models(), Path::new(&self.config.train.init_from))?.path,
        };
        let encoder = model.encoder_specs();
        let base = read_weights(&from.join(WEIGHTS), &self.config.model, &encoder)?;
        let rest = specs.iter().zip(stored).skip(encoder.len());
        let named = |(spec, tensor): (&ParameterSpec, &Tensor)| (spec.name.clone(), tensor.shallow_clone());
        let merged = model.merged(encoder.iter().zip(&base).chain(rest).map(named).collect());
        // Another processor may round otherwise.
        let is_near = |(own, other): (&Tensor, &Tensor)| own.allclose(other, 1e-4, 1e-5, false);
        match merged.iter().map(|(_, tensor)| tensor).zip(stored).all(is_near) {
            true => Ok(base),
            false => Err(TrainError::OtherModel {
                path: from,
                what: format!(
                    "it is not the model that the adapters in {} were trained on, or task.adapter_alpha and task.adapter_on are other \
                     ones\nhint: name that model, --model DIR, with those keys",
                    path.display()
                ),
            }),
        }
    }
}

fn measures(scores: &[SplitScores], metric: &str) -> Measures {
    let lead = chosen_by(scores, metric);
    let of_split = |split: &SplitScores| {
        let tag = format!("{}/{}", split.task, split.split);
        let scalar = |metric: &super::scoring::Metric| (format!("{tag}_{}", metric.name), metric.value);
        let loss = split.loss.map(|loss| (format!("{tag}_loss"), loss));
        split.metrics.iter().map(scalar).chain(loss).collect::<Vec<_>>()
    };
    Measures {
        lead,
        better: better(metric),
        decide: None,
        tie: mean(scores.iter().map(|split| split.loss)),
        row: json!({ "value": lead, "scores": scores }),
        scalars: scores.iter().flat_map(of_split).collect(),
        lines: scores.iter().map(SplitScores::describe).collect(),
    }
}

/// Scores one split. A collective call.
pub fn evaluate_split(
    model: &TaskModel,
    head: usize,
    data: &TaskData,
    split: &Split,
    config: &Config,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<SplitScores, TrainError> {
    let scores = answers(model, head, &split.examples, config.train.micro_batch, comm, watch)?;
    let decided = decide(data, split, &scores, &config.own.get::<TaskConfig>());
    Ok(score(data, split, &scores, &decided))
}

/// The mean of all, where there are all.
fn mean(values: impl ExactSizeIterator<Item = Option<f64>>) -> Option<f64> {
    let n = values.len() as f64;
    values.sum::<Option<f64>>().map(|sum| sum / n)
}

/// Names the data of all tasks: what is learnt from and what is scored.
pub fn fingerprint(tasks: &[TaskData]) -> String {
    let mut hasher = blake3::Hasher::new();
    for data in tasks {
        for split in data.train.iter().chain(&data.dev) {
            hasher.update(format!("{} {} {}\n", data.name, split.name, split.fingerprint).as_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}
