//! Conversion of XLNet: twins of other programs, round trips, heads, and what is refused.

mod check;
mod heads;
mod optimizer;
mod pieces;
mod vocabulary;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use segue_convert::{Conversion, ConvertOptions, Target, check_text, convert, inspect};
use segue_engine::checkpoint::{read_tensors, write_tensors};
use segue_foreign::{Bundle, BundleTensor, ElementType, write_bundle};
use segue_kernels::{Parameters, TrainError};
use segue_language::{ModelFolder, load_objective};
use segue_xlnet::XlnetConfig;
use segue_xlnet::load_xlnet;
use serde_json::{Value, json};
use tch::{Kind, Tensor};
use tempfile::TempDir;

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");

fn options(target: Target) -> ConvertOptions {
    ConvertOptions::new(target)
}

fn to(target: Target, source: &Path) -> Result<(TempDir, PathBuf, Conversion), TrainError> {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("made");
    let made = convert(source, &folder, &options(target), |_, _| {})?;
    Ok((dir, folder, made))
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Names, sizes and bits of a checkpoint of TensorFlow.
fn variables(path: &Path) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let bundle = Bundle::open(path).unwrap();
    let read = |entry: &segue_foreign::BundleEntry| {
        let tensor = bundle.tensor(entry).unwrap();
        (entry.name.clone(), (tensor.shape().to_vec(), tensor.to_bytes()))
    };
    bundle.entries().iter().map(read).collect()
}

fn small(untie_r: bool) -> XlnetConfig {
    XlnetConfig {
        vocab_size: 11,
        d_model: 6,
        n_layer: 3,
        n_head: 2,
        d_inner: 5,
        untie_r,
        layer_norm_eps: 1e-12,
        ..Default::default()
    }
}

/// A checkpoint of TensorFlow with random weights, written by hand from its names and shapes (anchors 3.1), with
/// the head's variables and a few of an optimizer's besides.
fn tensorflow(untie_r: bool, head: &[(&str, &[usize])]) -> TempDir {
    let mut shapes = shapes(untie_r, 11, 3);
    shapes.push(("model/transformer/word_embedding/lookup_table/Adam".into(), vec![11, 6]));
    shapes.push(("model/transformer/word_embedding/lookup_table/adam_v".into(), vec![11, 6]));
    shapes.push(("beta1_power".into(), vec![]));
    shapes.extend(head.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())));
    bundle(untie_r, 3, numbered(shapes))
}

/// Names and shapes of the program's variables, for `v` tokens and heads of width `w`.
fn shapes(untie_r: bool, v: usize, w: usize) -> Vec<(String, Vec<usize>)> {
    let (l, d, h, f) = (3, 6, 2, 5);
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("model/transformer/word_embedding/lookup_table".into(), vec![v, d]),
        ("model/transformer/seg_embed".into(), vec![l, 2, h, w]),
    ];
    for bias in ["r_w_bias", "r_r_bias", "r_s_bias"] {
        let shape = if untie_r { vec![l, h, w] } else { vec![h, w] };
        shapes.push((format!("model/transformer/{bias}"), shape));
    }
    for layer in 0..l {
        let mut add = |name: &str, shape: &[usize]| {
            shapes.push((format!("model/transformer/layer_{layer}/{name}"), shape.to_vec()));
        };
        for name in ["q", "k", "v", "r", "o"] {
            add(&format!("rel_attn/{name}/kernel"), &[d, h, w]);
        }
        for block in ["rel_attn", "ff"] {
            add(&format!("{block}/LayerNorm/gamma"), &[d]);
            add(&format!("{block}/LayerNorm/beta"), &[d]);
        }
        add("ff/layer_1/kernel", &[d, f]);
        add("ff/layer_1/bias", &[f]);
        add("ff/layer_2/kernel", &[f, d]);
        add("ff/layer_2/bias", &[d]);
    }
    shapes
}

/// Variables with values that are all different.
fn numbered(shapes: Vec<(String, Vec<usize>)>) -> Vec<BundleTensor> {
    let mut next = 0u32;
    let all = shapes.into_iter().map(|(name, shape)| {
        let values = (0..shape.iter().product::<usize>()).flat_map(|_| {
            next += 1;
            ((next % 1009) as f32 / 1024.0).to_le_bytes()
        });
        BundleTensor { bytes: values.collect(), name, dtype: ElementType::F32, shape }
    });
    all.collect()
}

/// Writes a checkpoint with the configuration beside it. `w`: width of a head.
fn bundle(untie_r: bool, w: usize, variables: Vec<BundleTensor>) -> TempDir {
    let table = variables.iter().find(|variable| variable.name.ends_with("lookup_table"));
    let v = table.unwrap().shape[0];
    let dir = tempfile::tempdir().unwrap();
    write_bundle(dir.path(), "xlnet_model.ckpt", variables).unwrap();
    let sizes = json!({
        "d_head": w, "d_inner": 5, "d_model": 6, "ff_activation": "gelu", "n_head": 2, "n_layer": 3, "n_token": v,
        "untie_r": untie_r,
    });
    fs::write(dir.path().join("xlnet_config.json"), sizes.to_string()).unwrap();
    dir
}

const OUTPUTS: [(&str, &[usize]); 2] =
    [("model/lm_loss/bias", &[11]), ("model/transformer/mask_emb/mask_emb", &[1, 1, 6])];

#[test]
fn a_checkpoint_that_tensorflow_wrote_becomes_its_twin_and_comes_back() {
    let fixtures = Path::new(SHARED).join("fixtures");
    if !fixtures.exists() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("no reference files at {}", fixtures.display()));
        return;
    }
    let (_first, folder, made) = to(Target::HuggingFace, &fixtures.join("xlnet_tiny_tf")).unwrap();
    let found = read_tensors(&folder.join("model.safetensors")).unwrap().tensors;
    let twin = read_tensors(&fixtures.join("xlnet_tiny/model.safetensors")).unwrap().tensors;
    assert_eq!(found.keys().collect::<Vec<_>>(), twin.keys().collect::<Vec<_>>());
    assert!(twin.iter().all(|(name, tensor)| found[name] == *tensor));
    assert_eq!(made.report.counts["skipped"], 1);
    let config = ModelFolder::open(&segue_families::MODELS, &folder).unwrap().config;
    let config = config.get::<XlnetConfig>().unwrap();
    assert_eq!(json!(config)["ff_activation"], "gelu_new");
    let (_second, back, _) = to(Target::TensorFlow, &folder).unwrap();
    let mut before = variables(&fixtures.join("xlnet_tiny_tf"));
    before.remove("global_step");
    assert_eq!(variables(&back), before);
    assert_eq!(
        json_of(&back.join("xlnet_config.json")),
        json_of(&fixtures.join("xlnet_tiny_tf/xlnet_config.json"))
    );
}

#[test]
fn stacked_and_tied_biases_and_every_head_change_no_bit_on_the_way_there_and_back() {
    type Head = &'static [(&'static str, &'static [usize])];
    let heads: [(Head, &str, Option<usize>); 4] = [
        (
            &[
                ("model/sequnece_summary/summary/kernel", &[6, 6]),
                ("model/sequnece_summary/summary/bias", &[6]),
                ("model/classification_mnli_matched/logit/kernel", &[6, 3]),
                ("model/classification_mnli_matched/logit/bias", &[3]),
            ],
            "XLNetForSequenceClassification",
            Some(3),
        ),
        (
            &[("model/regression_sts-b/logit/kernel", &[6, 1]), ("model/regression_sts-b/logit/bias", &[1])],
            "XLNetForSequenceClassification",
            Some(1),
        ),
        (&[("logits/dense/kernel", &[6, 1]), ("logits/dense/bias", &[1])], "XLNetForMultipleChoice", None),
        (
            &[
                ("start_logits/dense/kernel", &[6, 1]),
                ("start_logits/dense/bias", &[1]),
                ("end_logits/dense_0/kernel", &[12, 6]),
                ("end_logits/dense_0/bias", &[6]),
                ("end_logits/LayerNorm/gamma", &[6]),
                ("end_logits/LayerNorm/beta", &[6]),
                ("end_logits/dense_1/kernel", &[6, 1]),
                ("end_logits/dense_1/bias", &[1]),
                ("answer_class/dense_0/kernel", &[12, 6]),
                ("answer_class/dense_0/bias", &[6]),
                ("answer_class/dense_1/kernel", &[6, 1]),
            ],
            "XLNetForQuestionAnswering",
            None,
        ),
    ];
    for (number, (head, architecture, labels)) in heads.into_iter().enumerate() {
        let untie_r = number % 2 == 0;
        let source = tensorflow(untie_r, &[head, &OUTPUTS].concat());
        let (_first, folder, made) = to(Target::HuggingFace, source.path()).unwrap();
        assert_eq!(made.report.counts["skipped"], 3, "{architecture}");
        let config = json_of(&folder.join("config.json"));
        assert_eq!(config["architectures"], json!([architecture]));
        assert_eq!(config["id2label"].as_object().map(|names| names.len()), labels);
        // Layers have their own biases, as Hugging Face looks for them, and the model loads.
        let stored = read_tensors(&folder.join("model.safetensors")).unwrap().tensors;
        assert!(
            stored.contains_key("transformer.layer.2.rel_attn.r_s_bias")
                && !stored.contains_key("transformer.r_s_bias")
        );
        load_xlnet(&ModelFolder::open(&segue_families::MODELS, &folder).unwrap()).unwrap();
        // Through a second folder, to see heads survive that.
        let (_second, again, _) = to(Target::HuggingFace, &folder).unwrap();
        let bytes = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
        assert!(bytes(&folder) == bytes(&again) && json_of(&again.join("config.json")) == config);
        let (_third, back, _) = to(Target::TensorFlow, &again).unwrap();
        let mut before = variables(source.path());
        before.retain(|name, _| {
            !name.ends_with("/Adam") && !name.ends_with("/adam_v") && name != "beta1_power"
        });
        assert_eq!(variables(&back), before, "{architecture}");
    }
}

#[test]
fn what_fine_tuning_has_lost_is_zero_and_said() {
    let source = tensorflow(true, &[]);
    let (_dir, folder, made) = to(Target::HuggingFace, source.path()).unwrap();
    let notes = made.report.notes.join("\n");
    assert!(notes.contains("lm_loss.bias") && notes.contains("transformer.mask_emb"), "{notes}");
    let stored = read_tensors(&folder.join("model.safetensors")).unwrap().tensors;
    assert_eq!(stored["lm_loss.bias"], Tensor::zeros([11], (Kind::Float, tch::Device::Cpu)));
    let listed = inspect(source.path()).unwrap();
    assert_eq!((listed.kind, listed.variables.len()), ("tensorflow", made.report.variables.len()));
}

/// A folder of Hugging Face's with random weights under `rename`d names.
fn hugging_face(config: &XlnetConfig, said: Value, rename: impl Fn(&str) -> Option<String>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let specs = segue_language::specs(&config.clone().into());
    let parameters = Parameters::initialise(specs, 4, Kind::Float);
    let pairs = parameters.specs().iter().zip(parameters.tensors());
    let tensors: Vec<(String, Tensor)> =
        pairs.filter_map(|(spec, tensor)| Some((rename(&spec.name)?, tensor.detach()))).collect();
    write_tensors(&dir.path().join("model.safetensors"), &tensors).unwrap();
    let mut all = json!({
        "model_type": "xlnet", "n_token": 11, "d_model": 6, "n_layer": 3, "n_head": 2, "d_inner": 5,
        "ff_activation": "gelu", "dropatt": 0.1, "init": "normal", "max_position_embeddings": 512,
    });
    all.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
    fs::write(dir.path().join("config.json"), all.to_string()).unwrap();
    dir
}

#[test]
fn old_configurations_and_names_of_the_base_model_are_read() {
    let config = small(true);
    let said = json!({"untie_r": true, "mem_len": null, "model_type": null});
    let base = hugging_face(&config, said, |name| name.strip_prefix("transformer.").map(String::from));
    let (_dir, folder, made) = to(Target::HuggingFace, base.path()).unwrap();
    assert!(made.report.notes.iter().any(|note| note.contains("gelu_new")), "{:?}", made.report.notes);
    assert_eq!((made.config.mem_len(), made.config.vocab_size()), (0, 11));
    let (base, here) = (base.path().join("model.safetensors"), folder.join("model.safetensors"));
    let (before, after) = (read_tensors(&base).unwrap().tensors, read_tensors(&here).unwrap().tensors);
    assert_eq!(before.len() + 1, after.len());
    assert!(before.iter().all(|(name, tensor)| after[&format!("transformer.{name}")] == *tensor));
}

#[test]
fn layers_with_biases_of_their_own_are_not_tied_whatever_the_configuration_says() {
    let source = hugging_face(&small(true), json!({"untie_r": false}), |name| Some(name.into()));
    let (_dir, folder, made) = to(Target::HuggingFace, source.path()).unwrap();
    assert!(made.report.notes.iter().any(|note| note.contains("untie_r")));
    assert!(made.config.get::<XlnetConfig>().unwrap().untie_r);
    for folder in [source.path(), &folder] {
        assert!(
            ModelFolder::open(&segue_families::MODELS, folder)
                .unwrap()
                .config
                .get::<XlnetConfig>()
                .unwrap()
                .untie_r
        );
    }
}

#[test]
fn loss_on_a_text_is_that_of_the_source() {
    let source = hugging_face(&small(true), json!({}), |name| Some(name.into()));
    fs::write(source.path().join("vocab.txt"), "a\nb\nc\nd\n<unk>\n<eos>\n").unwrap();
    let (_first, folder, _) = to(Target::HuggingFace, source.path()).unwrap();
    let (_second, again, _) = to(Target::HuggingFace, &folder).unwrap();
    let checked = check_text(&folder, &again, &options(Target::HuggingFace), "a c b d a", |_, _| {}).unwrap();
    assert!(checked.targets >= 4 && checked.holds() && checked.loss.is_finite());
}

#[test]
fn contradictions_are_refused_with_what_is_wrong() {
    let refused = |source: &TempDir| to(Target::HuggingFace, source.path()).err().expect("it is refused");
    let source = tensorflow(true, &OUTPUTS);
    let path = source.path().join("xlnet_config.json");
    let mut said = json_of(&path);
    said["n_head"] = json!(3);
    fs::write(&path, said.to_string()).unwrap();
    let error = refused(&source);
    assert!(error.exit_code() == 65 && error.to_string().contains("n_head is 3"), "{error}");
    said["n_head"] = json!(2);
    said["ff_activation"] = json!("swish");
    fs::write(&path, said.to_string()).unwrap();
    assert!(refused(&source).to_string().contains("swish"));
    fs::remove_file(&path).unwrap();
    let (_dir, _, made) = to(Target::HuggingFace, source.path()).unwrap();
    let guess = made.report.guesses.iter().find(|guess| guess.key == "model.ff_activation").unwrap();
    assert!(guess.value == "gelu_new" && guess.why.contains("xlnet_config.json"), "{guess:?}");
    let two: [(&str, &[usize]); 2] =
        [("model/regression_a/logit/bias", &[1]), ("model/classification_b/logit/bias", &[2])];
    assert!(refused(&tensorflow(true, &two)).to_string().contains("two heads"));
    let stranger: [(&str, &[usize]); 1] = [("model/transformer/unheard_of", &[1])];
    assert!(refused(&tensorflow(true, &stranger)).to_string().contains("unheard_of"));
}
