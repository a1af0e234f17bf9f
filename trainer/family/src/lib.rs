//! What a family of models is to the rest of the program: its entry in the list of families, its runs, and what they cost. It knows no
//! family.

mod average;
mod capability;
pub mod parity;
mod question;
mod trained;

use std::any::Any;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelConfig, ModelSection, ModelType};
use segue_cost::{Cost, RankMemory, Work};
use segue_engine::{Event, Outcome};
use segue_kernels::{Compute, TrainError};
use serde_json::Value;

pub use average::average;
pub use capability::{
    Capability, Evaluations, OpenWriter, Parity, Predicts, SplitToTranslate, TextStream, TranslatedPair,
    TranslatedSplit, Translates, TranslatesSplits, Translation, Translator, Words, Writer, Writes, Written,
    find, need,
};
pub use question::{Answer, Asked, Asker, Outputs, Question};
pub use trained::{Trained, read_network, read_tables, recorded};

/// What a family gives the program.
pub struct Entry {
    /// Its `[model]` section.
    pub section: fn() -> ModelType,
    /// Opens what a run reads, and fits the configuration to it.
    pub open: fn(&mut Config) -> Result<Box<dyn Job>, TrainError>,
    /// Takes the sizes that are those of the data, where the configuration leaves them open and names data, without opening what the cost of a
    /// run does not depend on.
    pub fit: fn(&mut Config) -> Result<(), TrainError>,
    /// What it trains, and what a micro-step of it takes.
    pub work: fn(&Config) -> Result<Work, TrainError>,
    /// What it can do beyond training, each a [`Capability`]; one of a type at most.
    pub capabilities: &'static [&'static (dyn Any + Send + Sync)],
}

impl Entry {
    /// Its capability of this type, if it has it.
    pub fn capability<T: Capability>(&self) -> Option<&'static T> {
        self.capabilities.iter().find_map(|capability| capability.downcast_ref())
    }
}

/// A run whose data is open.
pub trait Job {
    /// Checks what is cheap to check of the data on one rank for all, before they begin: that files are there and whole.
    fn check_data(&self) -> Result<(), TrainError> {
        Ok(())
    }

    /// Checks, before anything is trained, that evaluations will find a validation loss: what a search for settings goes by.
    fn check_validation(&self, config: &Config) -> Result<(), TrainError> {
        Err(TrainError::Layout(format!(
            "model.model_type is `{}`, whose evaluations have no validation loss to compare by\nhint: compare such runs with \
             `segue sweep`",
            config.model.model_type()
        )))
    }

    /// Bytes that one of `ranks` ranks holds. Fails where the ranks cannot share the micro-steps, as training would.
    fn memory(&self, config: &Config, ranks: usize) -> Result<RankMemory, TrainError> {
        Ok(cost(config, ranks)?.memory_per_rank)
    }

    /// Number of tokens of the vocabulary, where text is read.
    fn names(&self) -> Option<usize> {
        None
    }

    /// Names the data that a run comes to its result by, where the configuration does not say all of it.
    fn data(&self) -> String {
        String::new()
    }

    /// What lane `lane` learns from at step `step`, from 1, for people and for programs; `None` of a family that shows none.
    fn lane(&self, config: &Config, step: u64, lane: usize) -> Result<Option<ShownLane>, TrainError> {
        let _ = (config, step, lane);
        Ok(None)
    }

    /// Trains; see [`train`](segue_engine::train). A collective call.
    fn train(
        &self,
        config: &Config,
        compute: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError>;
}

/// What a lane learns from at a step.
pub struct ShownLane {
    /// Lines for people.
    pub lines: Vec<String>,
    /// The same for programs.
    pub value: Value,
}

/// The family of a model.
pub fn of(model: &ModelConfig) -> &'static Entry {
    match model.family().downcast_ref() {
        Some(family) => family,
        None => unreachable!("sections of models name the entries of their families"),
    }
}

/// The section of a model, asked for by the family that it is of.
pub fn own<T: ModelSection>(model: &ModelConfig) -> &T {
    match model.get() {
        Some(section) => section,
        None => unreachable!("a family is asked for models of its own alone"),
    }
}

/// Takes the sizes of a model that follow from its data by opening these, where `has_data` says that the configuration names some. `data`: what they are,
/// for the message where it does not, and sizes are not known otherwise.
pub fn fit_to_data(
    config: &mut Config,
    (has_data, is_known): (bool, bool),
    data: &str,
    open: fn(&mut Config) -> Result<Box<dyn Job>, TrainError>,
) -> Result<(), TrainError> {
    match has_data {
        true => open(config).map(drop),
        false if is_known => Ok(()),
        false => {
            let why =
                format!("the recipe takes its sizes from {data}\nhint: add data.corpus=FOLDER of {data}");
            Err(TrainError::Layout(why))
        }
    }
}

/// What a run costs on `ranks` ranks. `model.vocab_size` has to be known. Fails where the ranks cannot share the
/// micro-steps, as training would.
pub fn cost(config: &Config, ranks: usize) -> Result<Cost, TrainError> {
    Cost::new(config, &work(config)?, ranks)
}

/// What a run trains, and what a micro-step of it takes. `model.vocab_size` has to be known.
pub fn work(config: &Config) -> Result<Work, TrainError> {
    (of(&config.model).work)(config)
}
