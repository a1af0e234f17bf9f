//! The kinds of runs there are, one folder each.

pub mod language_model;
