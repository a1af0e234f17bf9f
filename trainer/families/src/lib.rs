//! The families of models, and the one list of them.
//!
//! What is decided by the kind of a model is decided in [`FAMILIES`]: everything else asks the line it finds there.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use segue_configs::{ModelConfig, Models};
use segue_engine::optim;
use segue_family::Entry;
use segue_kernels::{TrainError, cards};
use segue_language::{Language, LanguageFamily};

/// Every family, a line each. The first is what a recipe trains that names no model.
pub static FAMILIES: [&Entry; 6] = [
    &segue_transfo_xl::FAMILY,
    &segue_xlnet::FAMILY,
    &segue_lstm::FAMILY,
    &segue_moment_game::FAMILY,
    &segue_planetoid::FAMILY,
    &segue_reverse_copy::FAMILY,
];

/// The `[model]` sections of all families.
pub static MODELS: LazyLock<Models> =
    LazyLock::new(|| Models::new(FAMILIES.iter().map(|family| (family.section)()).collect()));

/// The family of models of type `model_type`.
pub fn named(model_type: &str) -> Option<&'static Entry> {
    FAMILIES.iter().find(|family| (family.section)().name == model_type).copied()
}

/// The family of a language model. Refuses any other, and names those.
pub fn language(model: &ModelConfig) -> Result<&'static dyn LanguageFamily, TrainError> {
    segue_language::language(model).map_err(|why| {
        let languages = FAMILIES.iter().filter(|family| family.capability::<Language>().is_some());
        let names: Vec<&str> = languages.map(|family| (family.section)().name).collect();
        TrainError::Layout(format!("{why}\nhint: language models are: {}", names.join(", ")))
    })
}

/// All kernels for cards.
pub fn card_sources() -> impl Iterator<Item = &'static cards::Source> {
    segue_layers::card_sources().chain([&optim::LAMB, &optim::NORMS])
}

/// Those that cards were to work with and have not.
pub fn missing_kernels() -> Vec<cards::Missing> {
    cards::Missing::of(card_sources())
}
