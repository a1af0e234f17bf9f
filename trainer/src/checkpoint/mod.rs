//! Checkpoints: folders that hold everything a run is, published whole or not at all.
//!
//! Layout, formats and guarantees are in `docs/checkpoints.md`.

mod average;
mod files;
mod manifest;
mod model_folder;
mod publish;
mod state;
mod task_folder;
mod tensors;
mod training;
mod writer;

pub use average::average;
pub(crate) use files::write_json;
pub use manifest::{MANIFEST, Manifest};
pub use model_folder::{ModelFolder, load_language_model, load_next_token, load_pretraining, load_xlnet};
pub(crate) use model_folder::{OUTPUT_BIAS, as_stored, hugging_face_config, is_of_a_head};
pub use publish::{find, find_and_set_aside, list};
pub use state::{LossSum, TaskProgress, TrainState};
pub use task_folder::{BEST, TaskFolder, best_of, start_task_from, write_task_folder};
pub use tensors::{TensorFile, read_tensors, write_tensors};
pub use training::{restore, restore_task, snapshot, snapshot_of_task, start_from};
pub use writer::Writer;
