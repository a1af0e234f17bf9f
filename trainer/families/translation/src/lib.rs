//! Translation by a Transformer (Vaswani et al. 2017), with the adversarial softmax (Wang, Gong and Liu 2019). See `README.md` beside this file.

mod config;
mod cost;
mod data;
mod decoding;
mod evaluate;
mod folder;
mod keys;
mod layer;
mod model;
mod names;
mod objective;
mod parity;
mod rows;
mod search;
mod shown;
mod side;
mod split;
mod trained;

use segue_family::{Entry, Parity};
use segue_language::Names;

pub use keys::{DataConfig, LeadingMeasure, ObjectiveConfig, TranslationConfig, TranslationEvalConfig};
pub use model::{Transformer, specs};
pub use objective::{PairTensors, Translator};
pub use search::Search;

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: segue_configs::ModelType::of::<TranslationConfig>,
    open: data::open,
    fit: data::fit,
    work: data::work,
    capabilities: &[
        &trained::TRANSLATES,
        &split::TRANSLATES_SPLITS,
        &Names(&names::Marian),
        &Parity(parity::run),
    ],
};
