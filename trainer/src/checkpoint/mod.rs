//! Checkpoints: folders that hold everything a run is, published whole or not at all.
//!
//! Layout, formats and guarantees are in `docs/checkpoints.md`.

mod average;
mod files;
mod manifest;
mod model_folder;
mod tensors;
mod training;
mod writer;

pub use average::average;
pub use manifest::{MANIFEST, Manifest};
pub(crate) use model_folder::hugging_face_config;
pub use model_folder::{ModelFolder, load_language_model};
pub use tensors::{TensorFile, read_tensors, write_tensors};
pub(crate) use training::write_json;
pub use training::{LossSum, TrainState, find, find_and_set_aside, list, restore, snapshot};
pub use writer::Writer;
