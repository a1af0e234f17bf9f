//! Images and their classes, from the files in which data sets are published: [`idx`] (MNIST), CIFAR-10 as [`cifar_binary`] and
//! [`cifar_python`], [`svhn`] and a [`folder`] of PNG files. Nothing here knows tensors.
//!
//! [`open`] reads whichever of them a folder holds into an [`ImageSet`]; [`subset`] draws the images whose labels a semi-supervised
//! learner may read; [`grid`] writes images side by side. Every reader treats its input as hostile: a size that a file claims is held
//! against the bytes that are there before anything of that size is made.

mod bytes;
mod cifar;
pub mod folder;
pub mod grid;
#[cfg(test)]
mod hostile;
pub mod idx;
#[cfg(test)]
mod made;
mod mat;
mod open;
mod png_file;
mod set;
pub mod subset;

pub use cifar::{binary as cifar_binary, python as cifar_python};
pub use mat::svhn;
pub use open::{Split, Splits, open};
pub use set::{ImageSet, Labels, Shape};
