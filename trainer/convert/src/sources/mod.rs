//! The programs whose checkpoints are converted, one module each.

mod facts;
mod hugging_face;
mod hugging_face_xlnet;
mod kimiyoung;
mod names;
mod nvidia;
mod place;
mod recurrent;
mod search;
mod source;
mod tensorflow;
mod tensorflow_xlnet;
mod tensors;

pub(super) use facts::Facts;
pub use recurrent::RecurrentLayout;
pub(super) use recurrent::{Cell, Matrices, Table};
pub use search::only_file;
pub use source::{Source, Values, Variable, detect, import_vocabulary};
pub(super) use tensorflow::rules as tensorflow_rules;
pub(super) use tensorflow_xlnet::{
    CHOICE, CLASSIFICATION, LABELS, REGRESSION, rules as tensorflow_xlnet_rules,
};
pub use tensors::Tensors;
