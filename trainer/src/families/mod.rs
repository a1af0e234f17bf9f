//! The kinds of runs there are, one folder each, and the one list of them.
//!
//! What is decided by the kind of a model is decided in [`FAMILIES`]: everything else asks the line it finds there.

pub mod language_model;
pub mod lstm;
pub mod moment_game;
pub mod planetoid;
pub mod reverse_copy;
pub mod task;
#[cfg(test)]
mod tests;
pub mod transfo_xl;
pub mod xlnet;

use std::sync::LazyLock;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelConfig, ModelSection, ModelType, Models};
use tch::Tensor;

use crate::cost::{Choices, Cost, Held, RankMemory, Work, largest_micro_batch};
use crate::engine::{Event, Outcome};
use crate::{Compute, ParameterSpec, TrainError};
use language_model::LanguageFamily;

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
    /// What else there is to it where it is a language model.
    pub language: Option<&'static dyn LanguageFamily>,
}

/// Every family, a line each. The first is what a recipe trains that names no model.
pub static FAMILIES: [&Entry; 6] = [
    &transfo_xl::FAMILY,
    &xlnet::FAMILY,
    &lstm::FAMILY,
    &moment_game::FAMILY,
    &planetoid::FAMILY,
    &reverse_copy::FAMILY,
];

/// The `[model]` sections of all families.
pub static MODELS: LazyLock<Models> =
    LazyLock::new(|| Models::new(FAMILIES.iter().map(|family| (family.section)()).collect()));

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

    /// Trains; see [`train`](crate::engine::train). A collective call.
    fn train(
        &self,
        config: &Config,
        compute: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError>;
}

/// The family of models of type `model_type`.
pub fn named(model_type: &str) -> Option<&'static Entry> {
    FAMILIES.iter().find(|family| (family.section)().name == model_type).copied()
}

/// The family of a model.
pub fn of(model: &ModelConfig) -> &'static Entry {
    match named(model.model_type()) {
        Some(family) => family,
        None => unreachable!("sections of models come from the list of families"),
    }
}

/// The section of a model, asked for by the family that it is of.
pub(crate) fn own<T: ModelSection>(model: &ModelConfig) -> &T {
    match model.get() {
        Some(section) => section,
        None => unreachable!("a family is asked for models of its own alone"),
    }
}

/// The family of a language model. Refuses any other.
pub fn language(model: &ModelConfig) -> Result<&'static dyn LanguageFamily, TrainError> {
    of(model).language.ok_or_else(|| {
        let languages = FAMILIES.iter().filter(|family| family.language.is_some());
        let names: Vec<&str> = languages.map(|family| (family.section)().name).collect();
        TrainError::Layout(format!(
            "model.model_type is `{}`, and this command needs a language model\nhint: language models are: {}",
            model.model_type(),
            names.join(", ")
        ))
    })
}

/// Parameters of the configured language model, without making them; none of another model.
pub fn specs(model: &ModelConfig) -> Vec<ParameterSpec> {
    of(model).language.map_or(Vec::new(), |family| family.specs(model))
}

/// Names under which Hugging Face also stores a parameter of the configured model: `(its name, ours)`.
pub fn aliases(model: &ModelConfig) -> Vec<(String, String)> {
    of(model).language.map_or(Vec::new(), |family| family.aliases(model))
}

/// Tensors that Hugging Face stores and that follow from the configuration alone.
pub fn buffers(model: &ModelConfig) -> Vec<(String, Tensor)> {
    of(model).language.map_or(Vec::new(), |family| family.buffers(model))
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

/// The largest `train.micro_batch` that `ranks` ranks with `bytes` of memory each can train `config` with, its lanes as they
/// are; none where not even the smallest fits.
pub fn fitting_micro_batch(
    config: &Config,
    ranks: usize,
    choices: &Choices,
    bytes: f64,
) -> Result<Option<usize>, TrainError> {
    let held = |config: &Config| Held::new(config, &work(config)?, ranks, choices);
    largest_micro_batch(config, ranks, bytes, held)
}
