//! A golden file: what a run computed, and where.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use segue_tests::ROOT;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kernels::Machine;

/// What a run computed, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The family of kernels.
    pub kernels: String,
    /// The machine it ran on.
    pub machine: Machine,
    /// Fingerprints of the corpora it read.
    pub data: BTreeMap<String, String>,
    /// Loss of each step, in nats.
    pub losses: Vec<f64>,
    /// Each evaluation during training: its row of `metrics.jsonl` without `attempt`.
    pub evaluations: Vec<Value>,
    /// BLAKE3 of what the run left, by path in the run folder.
    pub blake3: BTreeMap<String, String>,
}

/// Of an evaluation: its losses, what follows from them, and what they are of.
const OF_LOSSES: [&str; 8] =
    ["loss", "nats", "bits_per_token", "bits_per_char", "bits_per_byte", "targets", "chars", "bytes"];

impl Record {
    /// Where the file of a run with a family of kernels lies.
    pub fn path(run: &str, kernels: &str) -> PathBuf {
        Path::new(ROOT).join(format!("tests/golden/{run}.{kernels}.json"))
    }

    /// Reads a golden file; why it could not be.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path)
            .map_err(|e| format!("no golden file for this family of kernels: {}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Writes a golden file.
    pub fn write(&self, path: &Path) {
        let text = serde_json::to_string_pretty(self).expect("a record is JSON");
        fs::write(path, text + "\n").expect("a golden file is written");
    }

    /// Whether `found` computed the same, wherever it ran. Rows of its evaluations may tell more than was recorded.
    pub fn same_results(&self, found: &Self) -> bool {
        let rows = self.evaluations.iter().zip(&found.evaluations);
        self.evaluations.len() == found.evaluations.len()
            && rows.into_iter().all(|(recorded, row)| apart(row, recorded).next().is_none())
            && (&self.kernels, &self.data, &self.losses, &self.blake3)
                == (&found.kernels, &found.data, &found.losses, &found.blake3)
    }

    /// Keys of evaluations that the other has not, or with another value.
    pub fn keys_apart(&self, found: &Self) -> Vec<String> {
        let rows = self.evaluations.iter().zip(&found.evaluations);
        let keys: BTreeSet<&String> = rows.flat_map(|(recorded, row)| apart(row, recorded)).collect();
        keys.into_iter().cloned().collect()
    }

    /// The largest relative difference between losses of the two, and between what else `OF_LOSSES` names of their evaluations; ∞ where the other has
    /// not as many.
    ///
    /// Scores of tasks are left out: one decision near a tie moves them by a step.
    pub fn distance(&self, other: &Self) -> f64 {
        let (ours, theirs) = (self.all_losses(self), other.all_losses(self));
        if ours.len() != theirs.len() {
            return f64::INFINITY;
        }
        let relative = |(a, b): (&f64, &f64)| {
            // The first loss of the moment game is 0.
            let distance = if a == b { 0.0 } else { ((a - b) / a).abs() };
            if distance.is_nan() { f64::INFINITY } else { distance }
        };
        ours.iter().zip(&theirs).map(relative).fold(0.0, f64::max)
    }

    /// Those that `recorded` has.
    fn all_losses(&self, recorded: &Self) -> Vec<f64> {
        let of_row = |(row, recorded): (&Value, &Value)| {
            let there = OF_LOSSES.iter().filter(|key| recorded[**key].is_number());
            there.filter_map(|key| row[*key].as_f64()).collect::<Vec<_>>()
        };
        let evaluated = self.evaluations.iter().zip(&recorded.evaluations).flat_map(of_row);
        self.losses.iter().copied().chain(evaluated).collect()
    }
}

/// Keys of `recorded` that `row` has not, or with another value.
fn apart<'a>(row: &'a Value, recorded: &'a Value) -> impl Iterator<Item = &'a String> {
    let keys = recorded.as_object().into_iter().flatten();
    keys.filter(|(key, value)| row.get(key) != Some(value)).map(|(key, _)| key)
}
