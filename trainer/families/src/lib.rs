//! The families of models, and the one list of them.
//!
//! What is decided by the kind of a model is decided in [`FAMILIES`]: everything else asks the line it finds there.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use segue_configs::{ConfigError, ModelConfig, Models, advice};
use segue_engine::optim;
use segue_family::parity::{Cases, Group};
use segue_family::{Capability, Entry, Parity, Trained};
use segue_kernels::{Compute, TrainError, cards};
use segue_language::ModelFolder;

/// Every family, a line each. The first is what a recipe trains that names no model.
pub static FAMILIES: [&Entry; 10] = [
    &segue_transfo_xl::FAMILY,
    &segue_xlnet::FAMILY,
    &segue_lstm::FAMILY,
    &segue_moment_game::FAMILY,
    &segue_planetoid::FAMILY,
    &segue_reverse_copy::FAMILY,
    &segue_translation::FAMILY,
    &segue_pixel_cnn::FAMILY,
    &segue_complement_gan::FAMILY,
    &segue_latent::FAMILY,
];

/// The `[model]` sections of all families.
pub static MODELS: LazyLock<Models> = LazyLock::new(|| {
    Models::new(FAMILIES.iter().map(|family| (family.section)()).collect()).opened_by(open_model)
});

/// The language model that a task begins with: its configuration, and the folder that has it.
fn open_model(path: &Path) -> Result<(ModelConfig, PathBuf), ConfigError> {
    match ModelFolder::open(&MODELS, path) {
        Ok(folder) => Ok((folder.config, folder.path)),
        Err(error) => {
            Err(ConfigError::Model { message: advice::joined(&error, error.hint()), code: error.exit_code() })
        }
    }
}

/// The family of models of type `model_type`.
pub fn named(model_type: &str) -> Option<&'static Entry> {
    FAMILIES.iter().find(|family| (family.section)().name == model_type).copied()
}

/// A capability of the family of a model. Refuses a family without, and names those that have it.
pub fn need<T: Capability>(model: &ModelConfig) -> Result<&'static T, TrainError> {
    segue_family::need(model).map_err(|why| TrainError::Layout(format!("{why}\nhint: {}", those_with::<T>())))
}

/// The same of a model on disk.
pub fn need_of<T: Capability>(model: &Trained) -> Result<&'static T, TrainError> {
    segue_family::find(&model.config)
        .ok_or_else(|| model.is_not(&format!("{}\nhint: {}", T::OF, those_with::<T>())))
}

/// The families with a capability: what their models are called, and the capability of each.
pub fn with<T: Capability>() -> impl Iterator<Item = (&'static str, &'static T)> {
    FAMILIES.iter().filter_map(|family| Some(((family.section)().name, family.capability()?)))
}

/// Each capability of that type once, with the families that have it: several may share one.
pub fn shared<T: Capability>() -> Vec<(Vec<&'static str>, &'static T)> {
    let mut found: Vec<(Vec<&str>, &T)> = Vec::new();
    for (name, capability) in with::<T>() {
        match found.iter_mut().find(|(_, known)| std::ptr::eq(*known, capability)) {
            Some((names, _)) => names.push(name),
            None => found.push((vec![name], capability)),
        }
    }
    found
}

/// Advice for those who ask a family without a capability.
fn those_with<T: Capability>() -> String {
    let names: Vec<&str> = with::<T>().map(|(name, _)| name).collect();
    format!("choose a model of one of these types: {}", names.join(", "))
}

/// Runs the cases of a file through the model of `folder` and compares every tensor the file holds. Names of
/// cases and tensors are described beside the reference files. A tensor nobody recognises is an error.
pub fn parity(folder: &Path, cases: &Path, compute: Compute) -> Result<Vec<Group>, TrainError> {
    let model = Trained { compute, ..Trained::open(&MODELS, folder)? };
    let Parity(compare) = need_of(&model)?;
    let mut cases = Cases::open(cases)?.to(compute.device());
    compare(model, &mut cases)?;
    cases.finish()
}

/// All kernels for cards.
pub fn card_sources() -> impl Iterator<Item = &'static cards::Source> {
    segue_layers::card_sources().chain([&optim::LAMB, &optim::NORMS])
}

/// Those that cards were to work with and have not.
pub fn missing_kernels() -> Vec<cards::Missing> {
    cards::Missing::of(card_sources())
}
