//! Files of other programs, read without those programs: pickles (never executed), `torch.save` files, safetensors
//! files, TensorFlow checkpoints, TFRecord files, and the messages that the last two and SentencePiece models consist of.
//!
//! Everything here treats its input as hostile: sizes are checked against the bytes that are there before anything
//! is allocated, walks have a depth and a budget, and what is damaged ends with an error that says where.

mod bundle;
mod checksum;
mod pickle;
mod safetensors;
mod shared;
mod tensor;
mod tfrecord;
mod torch;
pub mod wire;

pub use self::safetensors::{
    SafetensorsEntry, SafetensorsFile, SafetensorsTensor, ShardIndex, write_safetensors,
};
pub use bundle::{Bundle, BundleEntry, BundleTensor, write_bundle};
pub use pickle::{Kind, Pickle, SparseMatrix, SparsePlaces, View};
pub use shared::SharedBytes;
pub use tensor::{ElementType, RawTensor};
pub use tfrecord::{Example, RecordFile, RecordFolder, RecordInfo, RecordSettings};
pub use torch::{NamedTensor, Saved, SavedTensor, TorchFile, write_torch};
