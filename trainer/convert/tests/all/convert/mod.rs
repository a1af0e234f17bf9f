//! Conversion of checkpoints: what transformers computes with the same weights, round trips, and the account.

mod places;

use std::fs;
use std::path::{Path, PathBuf};

use segue_convert::{Conversion, ConvertOptions, Target, check_text, convert, inspect};
use segue_engine::checkpoint::read_tensors;
use segue_families::parity;
use segue_foreign::Bundle;
use segue_kernels::TrainError;
use segue_language::ModelFolder;
use tempfile::TempDir;

use crate::{fixture, options};

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");

/// Converts into a new folder; the memory length of the fixtures is given where the source does not say it.
fn converted(source: &Path) -> (TempDir, PathBuf, Conversion) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    let overrides: &[&str] =
        if source.to_string_lossy().contains("tensorflow") { &["model.mem_len=6"] } else { &[] };
    let made = convert(source, &target, &options(Target::HuggingFace, overrides), |_, _| {});
    let made = made.unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    (dir, target, made)
}

fn refused(source: &Path, overrides: &[&str]) -> TrainError {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    let error = convert(source, &target, &options(Target::HuggingFace, overrides), |_, _| {}).err();
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "a failed conversion leaves {left:?}");
    error.expect("it is refused")
}

fn count(made: &Conversion, fate: &str) -> usize {
    made.report.counts.get(fate).copied().unwrap_or(0)
}

/// Fates and how many variables had them.
type Fates = &'static [(&'static str, usize)];

/// Source, its reference numbers, and how many of its variables were carried in a way that matters.
const CASES: [(&str, &str, Fates); 11] = [
    ("hugging_face", "hugging_face/cases.safetensors", &[("copied", 38), ("tied", 5)]),
    ("kimiyoung", "kimiyoung/cases.safetensors", &[("reversed", 2), ("tied", 5)]),
    ("kimiyoung/one_table.pt", "kimiyoung/one_table.cases.safetensors", &[("reversed", 2), ("tied", 1)]),
    ("kimiyoung/characters.pt", "kimiyoung/characters.cases.safetensors", &[("tied", 1)]),
    ("kimiyoung/shaw.pt", "kimiyoung/shaw.cases.safetensors", &[("sliced", 3)]),
    ("kimiyoung/learned.pt", "kimiyoung/learned.cases.safetensors", &[("joined", 4), ("sliced", 1)]),
    ("nvidia", "nvidia/cases.safetensors", &[("reversed", 2), ("tied", 3), ("skipped", 13)]),
    (
        "tensorflow/wt103",
        "tensorflow/wt103/cases.safetensors",
        &[("transposed", 14), ("sliced", 2), ("skipped", 5)],
    ),
    ("tensorflow/lm1b", "tensorflow/lm1b/cases.safetensors", &[("transposed", 14), ("sliced", 2)]),
    ("tensorflow/enwik8", "tensorflow/enwik8/cases.safetensors", &[("transposed", 10)]),
    ("tensorflow/one_table", "tensorflow/one_table/cases.safetensors", &[("joined", 3), ("transposed", 12)]),
];

#[test]
fn converted_models_compute_what_the_other_packages_compute() {
    for (source, cases, fates) in CASES {
        let (_dir, target, made) = converted(&fixture(source));
        for group in parity(&target, &fixture(cases), segue_kernels::Compute::CPU).unwrap() {
            assert!(group.holds(), "{source}: {group:?}");
        }
        for (fate, expected) in fates {
            assert_eq!(count(&made, fate), *expected, "{source}: {fate} of {:?}", made.report.counts);
        }
    }
}

#[test]
fn every_variable_and_every_parameter_is_accounted_for() {
    for (source, ..) in CASES {
        let (_dir, target, made) = converted(&fixture(source));
        let listed = inspect(&fixture(source)).unwrap();
        assert_eq!(made.report.variables.len(), listed.variables.len(), "{source}");
        for variable in &made.report.variables {
            let placed = !variable.destinations.is_empty() && variable.fate != "skipped";
            assert!(placed || variable.reason.is_some(), "{source}: {variable:?}");
            assert_ne!(variable.fate, "unaccounted");
        }
        let weights = read_tensors(&target.join("model.safetensors")).unwrap().tensors;
        for parameter in &made.report.parameters {
            assert!(!parameter.from.is_empty() && weights[&parameter.name].size() == parameter.shape);
        }
        let written: serde_json::Value =
            serde_json::from_slice(&fs::read(target.join("conversion.json")).unwrap()).unwrap();
        assert_eq!(written, serde_json::to_value(&made.report).unwrap());
    }
}

#[test]
fn hugging_face_to_hugging_face_changes_no_bit() {
    let (_first, folder, _) = converted(&fixture("hugging_face"));
    let (_second, again, made) = converted(&folder);
    assert_eq!(count(&made, "copied") + count(&made, "derived"), made.report.variables.len());
    for name in ["model.safetensors", "config.json", "vocab.txt", "segue_tokenizer.json"] {
        assert_eq!(fs::read(folder.join(name)).unwrap(), fs::read(again.join(name)).unwrap(), "{name}");
    }
}

/// What a conversion has put beside a checkpoint of another program comes back with it.
#[test]
fn a_vocabulary_goes_along_to_another_program_and_back() {
    let (dir, folder, _) = converted(&fixture("hugging_face"));
    let [there, back] = ["tensorflow", "back"].map(|name| dir.path().join(name));
    convert(&folder, &there, &options(Target::TensorFlow, &[]), |_, _| {}).unwrap();
    convert(&there, &back, &options(Target::HuggingFace, &["model.mem_len=6"]), |_, _| {}).unwrap();
    for name in ["vocab.txt", "segue_tokenizer.json"] {
        assert_eq!(fs::read(folder.join(name)).unwrap(), fs::read(back.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn tensorflow_to_here_to_tensorflow_changes_no_bit() {
    for name in ["wt103", "lm1b", "enwik8", "one_table"] {
        let source = fixture("tensorflow").join(name);
        let (dir, folder, _) = converted(&source);
        let back = dir.path().join("back");
        convert(&folder, &back, &options(Target::TensorFlow, &[]), |_, _| {}).unwrap();
        let (before, after) = (Bundle::open(&source).unwrap(), Bundle::open(&back).unwrap());
        for entry in after.entries() {
            let old = before.entries().iter().find(|old| old.name == entry.name).unwrap();
            let (old, new) = (before.tensor(old).unwrap(), after.tensor(entry).unwrap());
            assert_eq!(
                (old.shape(), old.to_bytes()),
                (new.shape(), new.to_bytes()),
                "{name}: {}",
                entry.name
            );
        }
        let slots = before.entries().iter().filter(|old| !old.name.starts_with("transformer/"));
        let adam = before.entries().iter().filter(|old| old.name.contains("/Adam"));
        assert_eq!(after.entries().len() + slots.count() + adam.count(), before.entries().len());
    }
}

#[test]
fn a_checkpoint_that_tensorflow_wrote_equals_its_twin() {
    let folder = Path::new(SHARED).join("fixtures");
    if !folder.exists() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("no reference files at {}", folder.display()));
        return;
    }
    let bundle = Bundle::open(&folder.join("xlnet_tiny_tf")).unwrap();
    let twin = read_tensors(&folder.join("xlnet_tiny/model.safetensors")).unwrap().tensors;
    let bytes = |name: &str| {
        let entry = bundle.entries().iter().find(|entry| entry.name == name);
        bundle.tensor(entry.unwrap_or_else(|| panic!("{name}"))).unwrap()
    };
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
    };
    let mut compared = 0;
    let mut same = |theirs: String, slice: Option<usize>, transposed: bool, ours: String| {
        let found = bytes(&theirs);
        let all = floats(&found.to_bytes());
        let mut expected = twin[&ours].shallow_clone();
        if transposed {
            expected = expected.transpose(0, 1).contiguous();
        }
        let expected = Vec::<f32>::try_from(expected.reshape([-1])).unwrap();
        let start = slice.map_or(0, |i| i * expected.len());
        assert!(slice.is_some() || all.len() == expected.len());
        assert!(all[start..start + expected.len()] == expected, "{theirs}");
        compared += 1;
    };
    let copy = |same: &mut dyn FnMut(String, Option<usize>, bool, String), a: &str, b: &str| {
        same(format!("model/{a}"), None, false, b.into());
    };
    copy(&mut same, "transformer/word_embedding/lookup_table", "transformer.word_embedding.weight");
    copy(&mut same, "transformer/mask_emb/mask_emb", "transformer.mask_emb");
    copy(&mut same, "lm_loss/bias", "lm_loss.bias");
    let layers =
        (0..).take_while(|i| twin.contains_key(&format!("transformer.layer.{i}.rel_attn.q"))).count();
    for i in 0..layers {
        let (tf, here) = (format!("transformer/layer_{i}"), format!("transformer.layer.{i}"));
        for bias in ["r_w_bias", "r_r_bias", "r_s_bias", "seg_embed"] {
            same(format!("model/transformer/{bias}"), Some(i), false, format!("{here}.rel_attn.{bias}"));
        }
        for kernel in ["q", "k", "v", "r", "o"] {
            copy(&mut same, &format!("{tf}/rel_attn/{kernel}/kernel"), &format!("{here}.rel_attn.{kernel}"));
        }
        for part in ["rel_attn", "ff"] {
            copy(
                &mut same,
                &format!("{tf}/{part}/LayerNorm/gamma"),
                &format!("{here}.{part}.layer_norm.weight"),
            );
            copy(
                &mut same,
                &format!("{tf}/{part}/LayerNorm/beta"),
                &format!("{here}.{part}.layer_norm.bias"),
            );
        }
        for k in [1, 2] {
            same(
                format!("model/{tf}/ff/layer_{k}/kernel"),
                None,
                true,
                format!("{here}.ff.layer_{k}.weight"),
            );
            copy(&mut same, &format!("{tf}/ff/layer_{k}/bias"), &format!("{here}.ff.layer_{k}.bias"));
        }
    }
    assert_eq!(compared, twin.len());
}

#[test]
fn vocabularies_come_along() {
    for source in ["hugging_face", "kimiyoung", "nvidia"] {
        let (_dir, target, _) = converted(&fixture(source));
        let tokenizer = ModelFolder::open(&segue_families::MODELS, &target).unwrap().tokenizer().unwrap();
        assert_eq!((tokenizer.vocab_size(), tokenizer.token(2).as_deref()), (40, Some("w0é")), "{source}");
    }
}

#[test]
fn loss_on_a_text_is_that_of_the_source() {
    let (_first, folder, _) = converted(&fixture("hugging_face"));
    let (_second, again, _) = converted(&folder);
    let text = "w0é w7é w14é unheard-of";
    let checked = check_text(&folder, &again, &options(Target::HuggingFace, &[]), text, |_, _| {}).unwrap();
    assert_eq!((checked.targets, checked.holds()), (3, true));
    assert!(checked.loss.is_finite());
}

/// The TensorFlow fixture with other variables.
fn altered(change: impl Fn(&mut Vec<segue_foreign::BundleTensor>)) -> TempDir {
    let bundle = Bundle::open(&fixture("tensorflow/enwik8")).unwrap();
    let mut all = Vec::new();
    for entry in bundle.entries() {
        let tensor = bundle.tensor(entry).unwrap();
        all.push(segue_foreign::BundleTensor {
            name: entry.name.clone(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            bytes: tensor.to_bytes(),
        });
    }
    change(&mut all);
    let dir = tempfile::tempdir().unwrap();
    segue_foreign::write_bundle(dir.path(), "model.ckpt", all).unwrap();
    dir
}

#[test]
fn a_variable_without_a_place_is_an_error_unless_allowed() {
    let source = altered(|all| all[0].name = "transformer/unheard_of".into());
    let stranger = altered(|all| {
        let copy = |old: &segue_foreign::BundleTensor| segue_foreign::BundleTensor {
            name: "transformer/unheard_of".into(),
            dtype: old.dtype,
            shape: old.shape.clone(),
            bytes: old.bytes.clone(),
        };
        let extra = copy(&all[0]);
        all.push(extra);
    });
    let error = refused(stranger.path(), &[]);
    assert_eq!(error.exit_code(), 78);
    let hint = error.hint().unwrap();
    assert!(error.to_string().contains("unheard_of") && hint.contains("--allow-skipped"), "{error}\n{hint}");
    let dir = tempfile::tempdir().unwrap();
    let allowed = ConvertOptions { allow_skipped: true, ..options(Target::HuggingFace, &[]) };
    let made = convert(stranger.path(), &dir.path().join("m"), &allowed, |_, _| {}).unwrap();
    assert_eq!(count(&made, "unaccounted"), 1);
    // A parameter that is missing is never allowed.
    assert!(convert(source.path(), &dir.path().join("n"), &allowed, |_, _| {}).is_err());
}

#[test]
fn what_cannot_be_converted_is_refused_with_its_reason() {
    let cut = altered(|all| {
        let bias = all.iter_mut().find(|tensor| tensor.name.ends_with("layer_1/ff/layer_2/bias")).unwrap();
        (bias.shape, bias.bytes) = (vec![1], vec![0; 4]);
    });
    assert!(refused(cut.path(), &[]).to_string().contains(", expected ["));
    // A changed bit in a value is damage.
    let flipped = altered(|_| {});
    let data = flipped.path().join("model.ckpt.data-00000-of-00001");
    let mut bytes = fs::read(&data).unwrap();
    bytes[100] ^= 1;
    fs::write(&data, bytes).unwrap();
    let error = refused(flipped.path(), &[]);
    assert!(error.exit_code() == 65 && error.to_string().contains("checksum"), "{error}");
    let source = fixture("tensorflow/enwik8");
    assert_eq!(refused(&source, &["model.no_such_key=1"]).exit_code(), 78);
    assert_eq!(refused(&source, &["mem_len=1"]).exit_code(), 78);
    assert!(refused(&fixture("vocabularies/protocol2.pkl"), &[]).to_string().contains("config.json"));
    let empty = tempfile::tempdir().unwrap();
    let error = refused(empty.path(), &[]);
    assert!(error.exit_code() == 66 && error.to_string().contains("model.pt"), "{error}");
    // Nothing is written over.
    let taken = tempfile::tempdir().unwrap();
    fs::write(taken.path().join("file"), "").unwrap();
    let error = convert(&source, taken.path(), &options(Target::HuggingFace, &[]), |_, _| {}).err().unwrap();
    assert_eq!(error.exit_code(), 73);
}

#[test]
fn models_that_tensorflow_cannot_hold_are_refused() {
    let (dir, folder, _) = converted(&fixture("kimiyoung/shaw.pt"));
    let error = convert(&folder, &dir.path().join("tf"), &options(Target::TensorFlow, &[]), |_, _| {}).err();
    assert!(error.unwrap().to_string().contains("attn_type"));
}
