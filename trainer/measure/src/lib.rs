//! Measures of predictions against what is right: pure functions on plain numbers and text.
//!
//! Each follows the public program that the field's figures are made with, named where the function is; the values
//! agree to 1e-9. Scores of translated and of generated text have a module of their own, [`translation`].

mod classification;
mod correlation;
mod ranking;
mod silhouette;
pub mod squad;
mod tagging;
pub mod translation;

pub use classification::{BinaryScores, accuracy, binary_scores, macro_f1, matthews_correlation};
pub use correlation::{pearson, spearman};
pub use ranking::{err_at, mean_over_queries, ndcg_at, reciprocal_rank};
pub use silhouette::mean_silhouette;
pub use tagging::{Entity, EntityScores, UnknownTag, entities, entity_scores};
