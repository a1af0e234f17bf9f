//! Conversion of recurrent language models of PyTorch programs: what PyTorch computes with the same weights, the way back, the account, and
//! what is refused. `tests/peers/make_recurrent_checkpoints.py` made the files and the numbers, `make_awd_cases.py` those of programs' own classes.

mod state_dicts;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use segue_convert::{Conversion, ConvertOptions, RecurrentLayout, Target, check_text, convert, inspect};
use segue_engine::checkpoint::read_tensors;
use segue_families::parity;
use segue_foreign::{NamedTensor, TorchFile};
use segue_kernels::TrainError;
use serde_json::Value;
use tempfile::TempDir;

use crate::options;

fn fixture(name: &str) -> PathBuf {
    crate::fixture("recurrent").join(name)
}

fn converted(source: &Path) -> (TempDir, PathBuf, Conversion) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    let made = convert(source, &target, &options(Target::HuggingFace, &[]), |_, _| {});
    let made = made.unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    (dir, target, made)
}

fn refused(source: &Path, target: Target, overrides: &[&str]) -> TrainError {
    let dir = tempfile::tempdir().unwrap();
    let error = convert(source, &dir.path().join("model"), &options(target, overrides), |_, _| {}).err();
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "a failed conversion leaves {left:?}");
    error.unwrap_or_else(|| panic!("{} is not refused", source.display()))
}

/// A file, the program that it is of, and some of what it says of the model.
type Case = (&'static str, RecurrentLayout, &'static [(&'static str, &'static str)]);

const CASES: [Case; 11] = [
    (
        "word_language_model/lstm",
        RecurrentLayout::WordLanguageModel,
        &[("d_embed", "6"), ("d_model", "9"), ("tie_word_embeddings", "false"), ("input_dropout", "0.4")],
    ),
    ("word_language_model/tied", RecurrentLayout::WordLanguageModel, &[("tie_word_embeddings", "true")]),
    ("word_language_model/gru", RecurrentLayout::WordLanguageModel, &[("cell", "\"gru\""), ("n_layer", "2")]),
    (
        "word_language_model/tanh",
        RecurrentLayout::WordLanguageModel,
        &[("cell", "\"elman\""), ("n_layer", "1")],
    ),
    (
        "awd_lstm_lm/lstm",
        RecurrentLayout::AwdLstm,
        &[
            ("d_last", "6"),
            ("n_layer", "3"),
            ("weight_dropout", "0.5"),
            ("embedding_dropout", "0.1"),
            ("input_dropout", "0.35"),
            ("inter_layer_dropout", "0.25"),
            ("output_dropout", "0.4"),
            ("locked_dropout", "true"),
        ],
    ),
    ("awd_lstm_lm/untied", RecurrentLayout::AwdLstm, &[("weight_dropout", "0.0"), ("d_last", "0")]),
    ("awd_lstm_lm/split", RecurrentLayout::AwdLstm, &[("cutoffs", "[5,11,16]")]),
    ("awd_lstm_lm/gru", RecurrentLayout::AwdLstm, &[("cell", "\"gru\""), ("weight_dropout", "0.5")]),
    (
        "awd_lstm_lm/qrnn",
        RecurrentLayout::AwdLstm,
        &[("cell", "\"qrnn\""), ("window", "2"), ("cutoffs", "[6,14]"), ("weight_dropout", "0.1")],
    ),
    (
        "mos/mixture",
        RecurrentLayout::Mos,
        &[("mixture", "3"), ("d_embed", "6"), ("d_last", "8"), ("projection_dropout", "0.3")],
    ),
    (
        "mos/state",
        RecurrentLayout::Mos,
        &[("mixture", "2"), ("weight_dropout", "0.5"), ("output_dropout", "0.0")],
    ),
];

/// Files that two programs' own classes were saved in, and what these classes compute.
const PROGRAMS: [Case; 3] = [
    (
        "awd_lstm_lm/program",
        RecurrentLayout::AwdLstm,
        &[
            ("d_embed", "6"),
            ("d_model", "10"),
            ("d_last", "6"),
            ("n_layer", "3"),
            ("tie_word_embeddings", "true"),
            ("weight_dropout", "0.5"),
            ("locked_dropout", "true"),
        ],
    ),
    ("awd_lstm_lm/program_split", RecurrentLayout::AwdLstm, &[("cutoffs", "[9]"), ("n_layer", "2")]),
    (
        "mos/program",
        RecurrentLayout::Mos,
        &[("mixture", "3"), ("d_model", "5"), ("d_last", "6"), ("projection_dropout", "0.3")],
    ),
];

/// Every file that is converted.
fn all() -> impl Iterator<Item = Case> {
    CASES.into_iter().chain(PROGRAMS)
}

fn file(name: &str) -> PathBuf {
    fixture(&format!("{name}.pt"))
}

/// Converts a file and compares with its numbers over so many linked segments: losses, log-probabilities and states to 1e-5, gradients of all
/// parameters to 1e-4.
fn computes_what_its_numbers_say((name, layout, facts): Case, segments: usize) {
    let (_dir, target, made) = converted(&file(name));
    let groups = parity(&target, &fixture(&format!("{name}.cases.safetensors")), segue_kernels::Compute::CPU);
    let groups = groups.unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(
        groups.len(),
        4 * segments,
        "{name}: losses, probabilities, states and gradients of each segment"
    );
    for group in &groups {
        assert!(group.holds(), "{name}: {group:?}");
        if group.name.ends_with("gradients") {
            assert_eq!(group.tensors, made.report.parameters.len(), "{name}: {group:?}");
        }
    }
    let worst = groups.iter().map(|group| group.error).fold(0.0, f64::max);
    println!("{name}: largest relative error {worst:.1e}");
    assert_eq!(made.report.source_kind, layout.name());
    let config = made.config.to_json();
    for (key, value) in facts {
        assert_eq!(config[key], serde_json::from_str::<Value>(value).unwrap(), "{name}: {key}");
    }
}

/// Rows S14, S15, S16.
#[test]
fn converted_models_compute_what_pytorch_computes() {
    CASES.into_iter().for_each(|case| computes_what_its_numbers_say(case, 3));
}

/// The numbers are those of salesforce/awd-lstm-lm and zihangdai/mos as they are published, not of a second writing of their equations.
#[test]
fn parity_holds_with_the_published_code_of_awd_lstm_and_of_its_mixture() {
    PROGRAMS.into_iter().for_each(|case| computes_what_its_numbers_say(case, 2));
}

#[test]
fn every_tensor_and_every_parameter_is_accounted_for() {
    for (name, ..) in all() {
        let (_dir, target, made) = converted(&file(name));
        assert_eq!(made.report.variables.len(), inspect(&file(name)).unwrap().variables.len(), "{name}");
        for variable in &made.report.variables {
            let placed = !variable.destinations.is_empty() && variable.fate != "skipped";
            assert!(placed || variable.reason.is_some(), "{name}: {variable:?}");
            assert_ne!(variable.fate, "unaccounted");
        }
        let weights = read_tensors(&target.join("model.safetensors")).unwrap().tensors;
        assert_eq!(weights.len(), made.report.parameters.len(), "{name}");
        for parameter in &made.report.parameters {
            assert!(
                !parameter.from.is_empty() && weights[&parameter.name].size() == parameter.shape,
                "{name}"
            );
        }
    }
    // What dropout left beside `weight_hh_l0_raw`, and the optimizer's.
    let skipped = |name: &str| {
        let (_dir, _, made) = converted(&file(name));
        let skipped = made.report.variables.into_iter().filter(|variable| variable.fate == "skipped");
        skipped.map(|variable| variable.name).collect::<Vec<_>>()
    };
    assert_eq!(skipped("mos/state"), ["rnns.0.module.weight_hh_l0", "rnns.1.module.weight_hh_l0"]);
    let of_lstm = skipped("awd_lstm_lm/lstm");
    assert!(!of_lstm.is_empty() && of_lstm.iter().all(|name| name.starts_with("optimizer.")), "{of_lstm:?}");
}

/// The tensors of a file by the names of the program, without the optimizer's and what dropout left behind.
fn tensors(path: &Path) -> BTreeMap<String, NamedTensor> {
    let file = TorchFile::open(path).unwrap();
    let all = file.tensors(file.root()).unwrap();
    let listed = all.iter().any(|named| named.name.starts_with("0."));
    let dict = all.iter().any(|named| named.name.starts_with("model."));
    let places = match (listed, dict) {
        (true, _) => ["0.", "1."],
        (_, true) => ["model.", "criterion."],
        _ => ["", ""],
    };
    let raw = all.iter().any(|named| named.name.ends_with("weight_hh_l0_raw"));
    let kept = all.into_iter().filter_map(|named| {
        let name = places.iter().find_map(|place| named.name.strip_prefix(place))?.to_string();
        (!raw || !name.ends_with("weight_hh_l0")).then_some((name, named))
    });
    kept.collect()
}

#[test]
fn there_and_back_changes_no_bit() {
    for (name, layout, _) in all() {
        let (dir, folder, _) = converted(&file(name));
        let back = dir.path().join("back");
        convert(&folder, &back, &options(Target::Recurrent(layout), &[]), |_, _| {})
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let (before, after) = (tensors(&file(name)), tensors(&back.join("model.pt")));
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{name}");
        for (key, old) in &before {
            let (old, new) = (&old.tensor, &after[key].tensor);
            assert_eq!((old.shape(), old.to_bytes()), (new.shape(), new.to_bytes()), "{name}: {key}");
        }
        let tied = |all: &BTreeMap<String, NamedTensor>| {
            all["encoder.weight"].tensor.shares_with(&all["decoder.weight"].tensor)
        };
        assert_eq!(tied(&before), tied(&after), "{name}");
        // And here again.
        let again = dir.path().join("again");
        convert(&back, &again, &options(Target::HuggingFace, &[]), |_, _| {}).unwrap();
        let read = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
        assert!(read(&folder) == read(&again), "{name}");
    }
}

#[test]
fn a_text_is_scored_alike_before_and_after() {
    let vocabulary = Some(fixture("corpus.pt"));
    for (name, layout, _) in all() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        let text = "aer w7é w14é nobody w21é ".repeat(40);
        let there = ConvertOptions { vocabulary: vocabulary.clone(), ..options(Target::HuggingFace, &[]) };
        convert(&file(name), &made, &there, |_, _| {}).unwrap();
        let checked = check_text(&file(name), &made, &there, &text, |_, _| {}).unwrap();
        assert!(checked.holds() && checked.targets == 199 && checked.layers.len() > 1, "{name}: {checked:?}");
        let (back, to) = (dir.path().join("back"), options(Target::Recurrent(layout), &[]));
        convert(&made, &back, &to, |_, _| {}).unwrap();
        let again = check_text(&made, &back, &to, &text, |_, _| {}).unwrap();
        assert!(again.holds() && again.loss == checked.loss, "{name}: {again:?}");
    }
}

#[test]
fn what_no_model_here_computes_is_refused_with_its_reason() {
    let hf = Target::HuggingFace;
    let error = refused(&file("word_language_model/relu"), hf, &[]);
    assert!(error.exit_code() == 78 && error.to_string().contains("RNN_RELU"), "{error}");
    // Programs have no place for what others have.
    for (name, layout, why) in [
        ("awd_lstm_lm/split", RecurrentLayout::WordLanguageModel, "model.d_last"),
        ("awd_lstm_lm/lstm", RecurrentLayout::WordLanguageModel, "model.d_last"),
        ("awd_lstm_lm/qrnn", RecurrentLayout::WordLanguageModel, "model.cell"),
        ("awd_lstm_lm/lstm", RecurrentLayout::Mos, "model.mixture"),
        ("mos/state", RecurrentLayout::AwdLstm, "model.mixture"),
        ("word_language_model/tanh", RecurrentLayout::AwdLstm, "model.cell"),
    ] {
        let (_dir, folder, _) = converted(&file(name));
        let error = refused(&folder, Target::Recurrent(layout), &[]);
        assert!(error.exit_code() == 78 && error.to_string().contains(why), "{name}: {error}");
    }
    let (_dir, folder, _) = converted(&file("awd_lstm_lm/lstm"));
    assert!(refused(&folder, Target::TensorFlow, &[]).to_string().contains("lstm"));
}

/// A checkpoint with other bytes.
fn altered(name: &str, change: impl Fn(&mut Vec<u8>)) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.pt");
    let mut bytes = fs::read(file(name)).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

/// Replaces a text by one of the same length, wherever it stands.
fn replace(bytes: &mut [u8], old: &str, new: &str) {
    assert_eq!(old.len(), new.len());
    let places: Vec<usize> =
        (0..bytes.len() - old.len()).filter(|&at| bytes[at..].starts_with(old.as_bytes())).collect();
    assert!(!places.is_empty(), "{old} is not there");
    places.iter().for_each(|&at| bytes[at..at + new.len()].copy_from_slice(new.as_bytes()));
}

#[test]
fn damage_and_strangers_are_named() {
    let hf = Target::HuggingFace;
    // Truncated, in both layouts of torch.save.
    for name in ["awd_lstm_lm/lstm", "word_language_model/lstm"] {
        let (_dir, path) = altered(name, |bytes| bytes.truncate(bytes.len() * 2 / 3));
        let error = refused(&path, hf, &[]);
        assert!(error.exit_code() == 65 && error.to_string().contains("model.pt"), "{name}: {error}");
    }
    // A tensor under another name has no place, and its parameter is missing.
    let (_dir, path) =
        altered("word_language_model/tied", |bytes| replace(bytes, "decoder.bias", "decoder.boas"));
    let error = refused(&path, hf, &[]);
    assert!(error.exit_code() == 78 && error.to_string().contains("decoder.boas"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("--allow-skipped")));
    // A layer that lacks a tensor.
    let (_dir, path) =
        altered("word_language_model/tied", |bytes| replace(bytes, "rnn.bias_hh_l1", "rnn.bias_hh_l7"));
    assert!(refused(&path, hf, &[]).to_string().contains("rnn.bias_hh_l7"));
    // The archive before all of these.
    let (_dir, path) = altered("word_language_model/tied", |bytes| {
        *bytes = vec![0; 1024];
        bytes[257..262].copy_from_slice(b"ustar");
    });
    let error = refused(&path, hf, &[]);
    assert!(
        error.exit_code() == 65 && error.to_string().contains("tar file") && error.hint().is_some(),
        "{error}"
    );
}

/// Whatever befalls a byte of a checkpoint, it is read or refused.
#[test]
fn any_damage_is_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.pt");
    let names = ["awd_lstm_lm/qrnn", "mos/mixture", "word_language_model/tied"];
    let wholes = names.map(|name| fs::read(file(name)).unwrap());
    proptest!(ProptestConfig::with_cases(200), |(which in 0usize..3, at in any::<prop::sample::Index>(), byte in any::<u8>())| {
        let mut bytes = wholes[which].clone();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        fs::write(&path, &bytes).unwrap();
        let _ = inspect(&path);
        let _ = convert(&path, &dir.path().join("out"), &options(Target::HuggingFace, &[]), |_, _| {});
        let _ = fs::remove_dir_all(dir.path().join("out"));
    });
}
