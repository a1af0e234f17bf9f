//! When a run counts as that of its golden file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::record::Record;

/// How far losses of 50 steps may lie apart, relatively, on another machine than that of the file.
///
/// Kernels of another family, in libtorch, oneDNN and MKL at once, move them by at most 3e-7; a change of Adam's ε
/// by a factor of ten, or of β₁ by 0.001, by 1e-4 and more.
pub const TOLERANCE: f64 = 1e-5;

/// How a run differs from its golden file.
#[derive(Debug, Clone, PartialEq)]
pub enum Mismatch {
    /// The data differ, so that nothing else can be compared.
    Data {
        /// Corpora whose fingerprints differ.
        corpora: Vec<String>,
    },
    /// Other bits on another machine, all losses within the tolerance.
    Processor {
        /// The largest relative difference of losses.
        worst: f64,
        /// The file's processor.
        machine: String,
    },
    /// Another result.
    Result {
        /// The first step whose loss has other bits, counted from 1 within the file.
        step: Option<usize>,
        /// The largest relative difference of losses.
        worst: f64,
        /// Files of other content.
        files: Vec<String>,
        /// Keys of evaluations with another value.
        keys: Vec<String>,
        /// Whether the golden file was made on a machine like this one.
        same_machine: bool,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Data { corpora } => write!(f, "other data: {}", corpora.join(", ")),
            Self::Processor { worst, machine } => {
                write!(f, "other bits than on {machine}, losses up to {worst:.1e} away")
            }
            Self::Result { step, worst, files, keys, same_machine } => {
                match step {
                    Some(step) => write!(f, "another loss from recorded step {step} on, ")?,
                    None => write!(f, "the same losses of steps, ")?,
                }
                let machine = if *same_machine { "the same kind of machine" } else { "another machine" };
                write!(
                    f,
                    "up to {worst:.1e} away; other bytes in: {}; other values in evaluations: {}; recorded on {machine}",
                    files.join(", "),
                    keys.join(", ")
                )
            }
        }
    }
}

/// Holds `found` against `golden`.
pub fn compare(golden: &Record, found: &Record) -> Result<(), Mismatch> {
    if golden.same_results(found) {
        return Ok(());
    }
    let corpora = differing(&golden.data, &found.data);
    if !corpora.is_empty() {
        return Err(Mismatch::Data { corpora });
    }
    let worst = golden.distance(found);
    let same_machine = golden.machine == found.machine;
    let alike = golden.evaluations.len() == found.evaluations.len()
        && golden.kernels == found.kernels
        && golden.blake3.keys().eq(found.blake3.keys());
    if !same_machine && alike && worst <= TOLERANCE {
        return Err(Mismatch::Processor { worst, machine: golden.machine.processor.clone() });
    }
    let mut pairs = golden.losses.iter().zip(&found.losses);
    let step = pairs.position(|(a, b)| a.to_bits() != b.to_bits()).map(|i| i + 1);
    let files = differing(&golden.blake3, &found.blake3);
    Err(Mismatch::Result { step, worst, files, keys: golden.keys_apart(found), same_machine })
}

/// Names under which two tables differ.
fn differing(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Machine;

    fn record(processor: &str, loss: f64, hash: &str) -> Record {
        let table = |name: &str, value: &str| BTreeMap::from([(name.to_string(), value.to_string())]);
        Record {
            kernels: "avx2".into(),
            machine: Machine { processor: processor.into(), ..Machine::here() },
            data: table("corpus", "d"),
            losses: vec![5.0, loss],
            evaluations: Vec::new(),
            blake3: table("model.safetensors", hash),
        }
    }

    #[test]
    fn other_bits_pass_on_another_processor_alone_and_near_by_alone() {
        let golden = record("here", 4.0, "a");
        let passes_over = |found: Record| matches!(compare(&golden, &found), Err(Mismatch::Processor { .. }));
        let fails = |found: Record| matches!(compare(&golden, &found), Err(Mismatch::Result { .. }));
        assert_eq!(compare(&golden, &record("elsewhere", 4.0, "a")), Ok(()));
        assert!(fails(record("here", 4.000_001, "b")) && fails(record("here", 4.0, "b")));
        assert!(passes_over(record("elsewhere", 4.000_001, "b")));
        assert!(fails(record("elsewhere", 4.001, "b")) && fails(record("elsewhere", f64::NAN, "b")));
        let fewer = Record { losses: vec![5.0], ..record("elsewhere", 4.0, "b") };
        let without_files = Record { blake3: BTreeMap::new(), ..record("elsewhere", 4.0, "b") };
        assert!(fails(fewer) && fails(without_files));
        let from_zero =
            |processor, loss, hash| Record { losses: vec![0.0, loss], ..record(processor, loss, hash) };
        let apart = compare(&from_zero("here", 4.0, "a"), &from_zero("elsewhere", 4.000_001, "b"));
        assert!(matches!(apart, Err(Mismatch::Processor { .. })), "{apart:?}");
        let other_data = Record { data: BTreeMap::new(), ..golden.clone() };
        assert_eq!(compare(&golden, &other_data), Err(Mismatch::Data { corpora: vec!["corpus".into()] }));
    }

    #[test]
    fn evaluations_are_near_in_what_follows_from_losses_and_not_in_scores() {
        let evaluated = |machine: &str, bits: f64, score: f64| {
            let row = serde_json::json!({ "loss": 4.0, "bits_per_byte": bits, "accuracy": score });
            Record { evaluations: vec![row], ..record(machine, 4.0, "a") }
        };
        let result = |found: Record| compare(&evaluated("here", 6.0, 0.5), &found);
        assert!(matches!(result(evaluated("elsewhere", 6.000_01, 0.75)), Err(Mismatch::Processor { .. })));
        let Err(mismatch) = result(evaluated("elsewhere", 6.001, 0.5)) else {
            panic!("other bits of a byte pass")
        };
        assert!(mismatch.to_string().contains("other values in evaluations: bits_per_byte;"), "{mismatch}");
    }
}
