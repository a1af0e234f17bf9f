//! Conversion of checkpoints of other programs with Transformer-XL, XLNet and recurrent language models to a folder in Hugging Face's
//! layout, which is a model folder here too, and back to TensorFlow's and PyTorch's.
//!
//! Each source is a table of [`Rule`]s: a pattern of its variables' names, the name here, and what happens to the
//! values on the way. One routine applies a table, accounts for every variable on both sides and refuses to lose one.

mod apply;
mod check;
mod gates;
mod head;
mod inspect;
mod invert;
mod optimizer;
mod report;
mod rules;
mod run;
mod sources;
mod write;

pub use check::{CheckedPart, CheckedText, check_text};
pub use head::TensorFlowHead;
pub use inspect::{Listed, Listing, inspect};
pub use optimizer::{OptimizerState, SlotNames};
pub use report::{Guess, ParameterOrigin, Report, VariableFate};
pub use rules::{Operation, Rule};
pub use run::{Conversion, ConvertOptions, Target, convert};
pub use sources::RecurrentLayout;
pub use write::check_vacant;
