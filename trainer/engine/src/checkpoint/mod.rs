//! Checkpoints: folders that hold everything a run is, published whole or not at all. Tables of tensors and JSON: nothing
//! here knows what they mean.
//!
//! Layout and formats are in `docs/book/src/formats/runs.md`, rules in `docs/book/src/concepts/checkpoints.md`.

mod carry;
mod contents;
mod files;
mod locate;
mod manifest;
mod names;
mod publish;
mod tensors;
mod writer;

pub use carry::{CarryFiles, carry_file, first_lane};
pub use contents::{
    AVERAGES, Contents, OPTIMIZER, STATE, Scattered, ScatteredTensor, TABLES, TRAINING_WEIGHTS, WEIGHTS,
    file_of, holds_weights,
};
pub use files::{read_error, write_error, write_json};
pub use locate::{locate, unverified, verify_model};
pub use manifest::{FileRecord, FileRecords, MANIFEST, Manifest};
pub use names::{BEST, CHECKPOINTS, METRICS, STAGE};
pub use publish::{
    Check, Draft, Found, Stay, find, find_and_set_aside, find_due, find_up_to, list, replace, tidy_up,
};
pub use publish::{check_alone, publish_with_manifest, refusal};
pub use tensors::{TensorFile, publish_tensors, read_tensors, write_tensors};
pub use tensors::{bytes_of, check_finite, map_tensors, write_stored};
pub use writer::{Job, Writer};
