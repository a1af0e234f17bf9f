//! Files of `torch.save`: the zip container, the layout of 2019 before it, and a pickle alone.

mod container;
mod file;
mod names;

pub use file::TorchFile;
pub use names::NamedTensor;
