//! Report of a conversion: the fate of every variable, and the origin of every parameter.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::optimizer::OptimizerState;

/// What became of a variable of the source.
#[derive(Debug, Clone, Serialize)]
pub struct VariableFate {
    /// Its name there, in the model where that lies deeper in a file.
    pub name: String,
    /// Type of its elements there.
    pub dtype: String,
    /// Sizes there.
    pub shape: Vec<usize>,
    /// `copied`, `transposed`, `reversed`, `sliced`, `joined`, `rearranged`, `tied` (equal to a parameter that is already there
    /// or that the configuration ties), `derived` (follows from the configuration), `noted` (a number of the
    /// optimizer's), `skipped`, `unaccounted`.
    pub fate: &'static str,
    /// Parameters that have its values.
    pub destinations: Vec<String>,
    /// Why it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a parameter's values come from.
#[derive(Debug, Clone, Serialize)]
pub struct ParameterOrigin {
    /// Its name here.
    pub name: String,
    /// Sizes here.
    pub shape: Vec<i64>,
    /// Variables of the source.
    pub from: Vec<String>,
    /// What was done to their values.
    pub by: &'static str,
}

/// What a source does not say, and what it was taken for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Guess {
    /// `model.KEY`, which `model.KEY=VALUE` sets right; or a key of a head in `config.json`.
    pub key: String,
    /// What it is in the result.
    pub value: Value,
    /// What is lacking, and where the value comes from.
    pub why: String,
}

/// The whole account; `conversion.json` holds it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What the source is: `hugging_face`, `kimiyoung`, `nvidia`, `tensorflow`, `word_language_model`, `awd_lstm_lm`, `mos` or `segue`.
    pub source_kind: &'static str,
    /// Where it lies.
    pub source: PathBuf,
    /// What was written.
    pub target: &'static str,
    /// Number of variables by fate.
    pub counts: BTreeMap<&'static str, usize>,
    /// Number of values in the model and its heads.
    pub parameters_count: usize,
    /// Facts that no weight shows: losses of precision, differences of meaning.
    pub notes: Vec<String>,
    /// What the source does not say, and what it was taken for.
    pub guesses: Vec<Guess>,
    /// The model's configuration.
    pub config: Value,
    /// The vocabulary: its file, size and kind, or why there is none.
    pub vocabulary: Value,
    /// The optimizer's state that came along, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<OptimizerState>,
    /// Every variable of the source.
    pub variables: Vec<VariableFate>,
    /// Every parameter of the model.
    pub parameters: Vec<ParameterOrigin>,
}

impl Report {
    /// Counts fates.
    pub(super) fn count(variables: &[VariableFate]) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for variable in variables {
            *counts.entry(variable.fate).or_insert(0) += 1;
        }
        counts
    }
}
