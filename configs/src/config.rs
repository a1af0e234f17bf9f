//! The configuration of a run: its sections, and what they say of each other.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::model::{KnownModels, Models, out_of_range};
use crate::{
    AdversarialConfig, AverageConfig, CheckpointConfig, ConfigError, DataConfig, EvalConfig, LogConfig,
    LossScaleConfig, ModelConfig, ObjectiveConfig, OptimConfig, PairsConfig, PublishedConfig, RecoveryConfig,
    RunConfig, ScheduleConfig, TaskConfig, TrainConfig, range,
};

/// Everything that describes a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The types of models that it was read with.
    pub(crate) models: KnownModels,
    /// Where the run lives.
    pub run: RunConfig,
    /// What it reads.
    pub data: DataConfig,
    /// How sequences of two segments are made of it.
    pub pairs: PairsConfig,
    /// How it steps.
    pub train: TrainConfig,
    /// What it trains.
    pub model: ModelConfig,
    /// What it is trained to do.
    pub objective: ObjectiveConfig,
    /// How far words move away in training.
    pub adversarial: AdversarialConfig,
    /// How gradients become updates.
    pub optim: OptimConfig,
    /// What losses are multiplied by before backward.
    pub loss_scale: LossScaleConfig,
    /// The learning rate over the steps.
    pub schedule: ScheduleConfig,
    /// Evaluation while training.
    pub eval: EvalConfig,
    /// The average of the weights over steps.
    pub average: AverageConfig,
    /// When state is written.
    pub checkpoint: CheckpointConfig,
    /// What is reported, and when.
    pub log: LogConfig,
    /// What is fine-tuned for.
    pub task: TaskConfig,
    /// What others report of this model.
    pub published: PublishedConfig,
    /// How a run goes on where it cannot go on as it began.
    pub recovery: RecoveryConfig,
    /// `[optim.NAME]` and `[schedule.NAME]` of the networks of a run that has several: what of each section is another
    /// value for that network.
    pub(crate) networks: BTreeMap<String, BTreeMap<String, Map<String, Value>>>,
}

impl Config {
    /// Every key at its default for this model.
    pub(crate) fn default_with(models: &'static Models, model: ModelConfig) -> Self {
        let defaults = models.find(model.model_type()).map(|known| known.run_defaults);
        let mut config = Self {
            models: KnownModels(models),
            run: RunConfig::default(),
            data: DataConfig::default(),
            pairs: PairsConfig::default(),
            train: TrainConfig::default(),
            model,
            objective: ObjectiveConfig::default(),
            adversarial: AdversarialConfig::default(),
            optim: OptimConfig::default(),
            loss_scale: LossScaleConfig::default(),
            schedule: ScheduleConfig::default(),
            eval: EvalConfig::default(),
            average: AverageConfig::default(),
            checkpoint: CheckpointConfig::default(),
            log: LogConfig::default(),
            task: TaskConfig::default(),
            recovery: RecoveryConfig::default(),
            published: PublishedConfig::default(),
            networks: BTreeMap::new(),
        };
        if let Some(defaults) = defaults {
            defaults(&mut config);
        }
        config
    }

    /// The types of models that it was read with.
    pub fn models(&self) -> &'static Models {
        self.models.0
    }

    /// The configuration of one of the networks of a run: `[optim]` and `[schedule]` are its own.
    pub fn of_network(&self, name: &str) -> Self {
        let mut own = self.clone();
        // Both were read before.
        if let Ok(optim) = serde_json::from_value(self.over("optim", name)) {
            own.optim = optim;
        }
        if let Ok(schedule) = serde_json::from_value(self.over("schedule", name)) {
            own.schedule = schedule;
        }
        own
    }

    /// The networks that have a section of their own beside `section`.
    pub fn networks_of(&self, section: &str) -> impl Iterator<Item = &str> {
        self.networks.get(section).into_iter().flat_map(|networks| networks.keys().map(String::as_str))
    }

    /// A section with what is another value for one network.
    pub(crate) fn over(&self, section: &str, network: &str) -> Value {
        let mut values = match section {
            "optim" => serde_json::to_value(&self.optim),
            _ => serde_json::to_value(&self.schedule),
        }
        .unwrap_or_default();
        if let Some(own) = self.networks.get(section).and_then(|networks| networks.get(network)) {
            for (key, value) in own {
                values[key] = value.clone();
            }
        }
        values
    }

    /// Micro-steps of one global step, over all ranks.
    pub fn micro_steps(&self) -> usize {
        self.train.lanes / self.train.micro_batch
    }

    /// Steps of the learning-rate schedule.
    pub fn schedule_steps(&self) -> u64 {
        if self.schedule.steps == 0 { self.train.steps } else { self.schedule.steps }
    }

    /// Whether a run that is evaluated by a loss keeps its best model in a folder of its own.
    pub fn keeps_best(&self) -> bool {
        self.checkpoint.best || self.eval.patience > 0 || self.average.fine_tuning > 0
    }

    /// Checks every range, and what sections say of each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let t = &self.train;
        range::check("train", t)?;
        range::check("optim", &self.optim)?;
        range::check("schedule", &self.schedule)?;
        range::check("eval", &self.eval)?;
        range::check("average", &self.average)?;
        range::check("checkpoint", &self.checkpoint)?;
        range::check("log", &self.log)?;
        range::check("objective", &self.objective)?;
        self.check_adversarial()?;
        self.check_recovery()?;
        self.check_optim()?;
        self.check_precision()?;
        if !t.lanes.is_multiple_of(t.micro_batch) {
            let why = format!("must be a multiple of train.micro_batch, which is {}", t.micro_batch);
            return Err(out_of_range("train.lanes", t.lanes, &why));
        }
        self.check_reading()?;
        self.check_average()?;
        self.check_large_batch()?;
        self.model.check()?;
        match self.task.name.is_empty() {
            true => self.model.check_run(self)?,
            false => {
                self.check_trained(&[])?;
                self.check_task()?;
            }
        }
        let mem_len = self.model.mem_len();
        if self.eval.same_length && (self.eval.mem_len == 0 || self.eval.mem_len < 0 && mem_len == 0) {
            return Err(out_of_range("eval.same_length", true, "needs a memory of at least 1"));
        }
        Ok(())
    }
}
