//! Files of `torch.save`: the zip container, the layout of 2019 before it, and a pickle alone.

mod container;
mod file;
mod names;
mod write;

pub use file::TorchFile;
pub use names::NamedTensor;
pub use write::{Saved, SavedTensor, write_torch};
