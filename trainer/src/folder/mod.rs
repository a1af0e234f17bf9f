//! Model folders: a model on disk in Hugging Face's layout, with or without the rest of a checkpoint.

mod average;
mod model_folder;

pub use average::average;
pub use model_folder::{ModelFolder, load_language_model, load_next_token, load_pretraining, load_xlnet};
pub(crate) use model_folder::{
    OUTPUT_BIAS, as_stored, hugging_face_config, is_of_a_head, read_weights, start_from,
};
