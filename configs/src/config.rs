//! The configuration of a run: its sections, and what they say of each other.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::model::WrongValue;
use crate::models::{KnownModels, Models};
use crate::own::OwnSections;
use crate::range::schema_of;
use crate::refusal::out_of_range;
use crate::section::Section;
use crate::{
    AverageConfig, CheckpointConfig, ConfigError, EvalConfig, FinetuneConfig, LogConfig, LossScaleConfig,
    ModelConfig, OptimConfig, PublishedConfig, RecoveryConfig, RisingRate, RunConfig, ScheduleConfig,
    TrainConfig, range,
};

/// Writes down all that follows from the list of sections, which is in the order of a recipe: [`Config`], its defaults, its JSON and what is
/// read back from that, the check of ranges, the reference. `[model]`, whose type is known at run time only, has its place in the list.
macro_rules! sections {
    (
        $($(#[$doc:meta])* $name:ident: $section:ty,)*
        [model]
        $($(#[$later_doc:meta])* $later:ident: $later_section:ty,)*
    ) => {
        /// Everything that describes a run.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            /// The types of models that it was read with.
            pub(crate) models: KnownModels,
            $($(#[$doc])* pub $name: $section,)*
            /// What it trains.
            pub model: ModelConfig,
            $($(#[$later_doc])* pub $later: $later_section,)*
            /// What its family alone reads.
            pub own: OwnSections,
            /// `[optim.NAME]` and `[schedule.NAME]` of the networks of a run that has several: what of each section is another
            /// value for that network.
            pub(crate) networks: Networks,
            /// Of a range test, its learning rates: they take the place of the schedule. No key sets it, and no record has it.
            pub rising: Option<RisingRate>,
        }

        impl Config {
            /// Each section at its own defaults.
            fn of_defaults(models: KnownModels, model: ModelConfig, own: OwnSections) -> Self {
                Self {
                    models,
                    $($name: Default::default(),)*
                    model,
                    $($later: Default::default(),)*
                    own,
                    networks: Networks::new(),
                    rising: None,
                }
            }

            /// All sections as one JSON object; what a run's `config.json` record and hash are made of.
            pub fn to_json(&self) -> Value {
                let mut all = Map::new();
                $(all.insert(stringify!($name).into(), json!(self.$name));)*
                all.insert("model".into(), self.model.to_typed_json());
                $(all.insert(stringify!($later).into(), json!(self.$later));)*
                self.own.add_to(&mut all);
                let mut all = Value::Object(all);
                for (section, networks) in &self.networks {
                    for (name, values) in networks {
                        all[section][name] = Value::Object(values.clone());
                    }
                }
                all
            }

            /// Reads what [`Config::to_json`] gave, with own sections and those of single networks taken out. `model` reads that of the
            /// model, and `wrong` says of which section a value is of the wrong type.
            pub(crate) fn of_json(
                models: KnownModels,
                all: &Value,
                own: OwnSections,
                networks: Networks,
                model: impl Fn(&Value) -> Result<ModelConfig, WrongValue>,
                wrong: impl Fn(&str, WrongValue) -> ConfigError,
            ) -> Result<Self, ConfigError> {
                Ok(Self {
                    models,
                    $($name: serde_path_to_error::deserialize(&all[stringify!($name)])
                        .map_err(|error| wrong(stringify!($name), error))?,)*
                    model: model(&all["model"]).map_err(|error| wrong("model", error))?,
                    $($later: serde_path_to_error::deserialize(&all[stringify!($later)])
                        .map_err(|error| wrong(stringify!($later), error))?,)*
                    own,
                    networks,
                    rising: None,
                })
            }

            /// Checks every number against the range at its key. Those of the model are its own to check.
            fn check_ranges(&self) -> Result<(), ConfigError> {
                $(range::check(stringify!($name), &self.$name)?;)*
                $(range::check(stringify!($later), &self.$later)?;)*
                self.own.check_ranges()
            }

            /// The JSON schemas of all sections of the loop, by their names.
            pub(crate) fn schemas() -> Vec<(&'static str, &'static Value)> {
                vec![
                    $((stringify!($name), schema_of::<$section>()),)*
                    $((stringify!($later), schema_of::<$later_section>()),)*
                ]
            }

            /// Every section of the loop as the reference describes it, with `models` in the place of `[model]`.
            pub(crate) fn described(&self, models: Vec<Section>) -> Vec<Section> {
                let mut all = vec![$(Section::of(stringify!($name), &self.$name),)*];
                all.extend(models);
                all.extend([$(Section::of(stringify!($later), &self.$later),)*]);
                all
            }
        }
    };
}

sections! {
    /// Where the run lives.
    run: RunConfig,
    /// How it steps.
    train: TrainConfig,
    [model]
    /// How gradients become updates.
    optim: OptimConfig,
    /// What losses are multiplied by before backward.
    loss_scale: LossScaleConfig,
    /// The learning rate over the steps.
    schedule: ScheduleConfig,
    /// Evaluation while training.
    eval: EvalConfig,
    /// The average of the weights over steps.
    average: AverageConfig,
    /// When state is written.
    checkpoint: CheckpointConfig,
    /// How a run goes on where it cannot go on as it began.
    recovery: RecoveryConfig,
    /// What is reported, and when.
    log: LogConfig,
    /// What is fine-tuned for.
    task: FinetuneConfig,
    /// What others report of this model.
    published: PublishedConfig,
}

/// What of a section is another value for a network, by section and network.
pub(crate) type Networks = BTreeMap<String, BTreeMap<String, Map<String, Value>>>;

impl Config {
    /// Every key at its default for this model.
    pub(crate) fn default_with(models: &'static Models, model: ModelConfig) -> Self {
        let known = models.find(model.model_type());
        let own = OwnSections::of_defaults(known.map_or(&[], |known| known.sections));
        let mut config = Self::of_defaults(KnownModels(models), model, own);
        if let Some(known) = known {
            (known.run_defaults)(&mut config);
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

    /// Steps of the learning-rate schedule.
    pub fn schedule_steps(&self) -> u64 {
        if self.schedule.steps == 0 { self.train.steps } else { self.schedule.steps }
    }

    /// Whether a run that is evaluated by a loss keeps its best model in a folder of its own.
    pub fn keeps_best(&self) -> bool {
        self.checkpoint.best || self.eval.patience > 0 || self.average.fine_tuning > 0
    }

    /// Gives tables of positions room, where the recipe leaves their size open.
    pub(crate) fn fit_positions(&mut self) {
        self.model.fit_positions(&self.own);
    }

    /// Checks what a run that trains the model asks of its family's sections and the others.
    pub fn check_run(&self) -> Result<(), ConfigError> {
        self.check_own()?;
        self.model.check_run(self)
    }

    /// Checks every range, and what sections say of each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let t = &self.train;
        self.check_ranges()?;
        self.check_recovery()?;
        self.check_optim()?;
        self.check_precision()?;
        if !t.lanes.is_multiple_of(t.micro_batch) {
            let why = format!("must be a multiple of train.micro_batch, which is {}", t.micro_batch);
            return Err(out_of_range("train.lanes", t.lanes, &why));
        }
        if !t.holds_whole_groups() {
            let why = format!(
                "must divide train.micro_batch, which is {}: a group is whole inside one micro-step",
                t.micro_batch
            );
            return Err(out_of_range("train.group", t.group, &why));
        }
        self.model.check()?;
        self.check_average()?;
        self.check_large_batch()?;
        if self.task.name.is_empty() { self.check_run() } else { Ok(()) }
    }
}
