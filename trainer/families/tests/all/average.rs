//! Averages of checkpoints as a new model.

use std::fs;
use std::path::{Path, PathBuf};

use segue_configs::ModelConfig;
use segue_engine::checkpoint::{MANIFEST, WEIGHTS, read_tensors, write_json, write_tensors};
use segue_families::MODELS;
use segue_family::average;
use segue_language::{ModelFolder, Objective, hugging_face_config};
use segue_tokenizer::Tokenizer;
use segue_transfo_xl::{LanguageModel, TransfoXlConfig, load_language_model};
use tch::{Device, Kind, Tensor};

fn config(d_inner: usize) -> ModelConfig {
    let shape =
        TransfoXlConfig { vocab_size: 256, d_model: 8, n_head: 2, d_inner, n_layer: 1, ..Default::default() };
    shape.into()
}

fn write_model(folder: &Path, config: &ModelConfig, seed: u64) {
    fs::create_dir_all(folder).unwrap();
    let model = LanguageModel::new(config.get().unwrap(), seed, Kind::Float);
    let parameters = model.parameters();
    let pairs = parameters.specs().iter().zip(parameters.tensors());
    let weights: Vec<_> = pairs.map(|(spec, t)| (spec.name.clone(), t.detach())).collect();
    write_tensors(&folder.join(WEIGHTS), &weights).unwrap();
    write_json(&folder.join("config.json"), &hugging_face_config(config)).unwrap();
    Tokenizer::bytes().save(folder).unwrap();
}

#[test]
fn weights_are_the_mean_of_the_sources() {
    let dir = tempfile::tempdir().unwrap();
    let sources: Vec<PathBuf> = (1..=3).map(|i| dir.path().join(format!("m{i}"))).collect();
    for (i, source) in sources.iter().enumerate() {
        write_model(source, &config(12), i as u64);
    }
    let output = dir.path().join("mean");
    average(&MODELS, &sources, &output).unwrap();
    let values = |folder: &Path| -> Vec<f32> {
        let tensors = read_tensors(&folder.join(WEIGHTS)).unwrap().tensors;
        let weight = &tensors["transformer.layers.0.dec_attn.qkv_net.weight"];
        Vec::<f32>::try_from(weight.reshape([-1])).unwrap()
    };
    let [a, b, c] = [0, 1, 2].map(|i| values(&sources[i]));
    for (i, found) in values(&output).into_iter().enumerate() {
        let by_hand = (f64::from(a[i]) + f64::from(b[i]) + f64::from(c[i])) / 3.0;
        assert_eq!(found, by_hand as f32);
    }
    assert!(output.join(MANIFEST).exists());
    let folder = ModelFolder::open(&MODELS, &output).unwrap();
    assert_eq!(folder.tokenizer().unwrap().fingerprint(), Tokenizer::bytes().fingerprint());
    load_language_model(&folder).unwrap();
    // What is there already is left alone.
    assert_eq!(average(&MODELS, &sources, &output).unwrap_err().exit_code(), 73);
}

#[test]
fn models_of_other_shapes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sources = [dir.path().join("a"), dir.path().join("b")];
    write_model(&sources[0], &config(12), 1);
    write_model(&sources[1], &config(16), 1);
    let error = average(&MODELS, &sources, &dir.path().join("mean")).unwrap_err();
    assert!(error.exit_code() == 78 && error.to_string().contains("configuration"), "{error}");
    assert_eq!(average(&MODELS, &[], &dir.path().join("mean")).unwrap_err().exit_code(), 78);
    assert!(!dir.path().join("mean").exists());
}

/// As of one that was damaged, or that another program has written.
#[test]
fn tensors_that_have_no_mean_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sources = [dir.path().join("a"), dir.path().join("b")];
    sources.iter().for_each(|source| write_model(source, &config(12), 1));
    let mean = dir.path().join("mean");
    let refused = |name: &str, tensor: Option<Tensor>| {
        let path = sources[1].join(WEIGHTS);
        let before = read_tensors(&path).unwrap().tensors;
        let mut changed: Vec<_> =
            before.iter().filter(|(own, _)| *own != name).map(|(own, t)| (own.clone(), t.copy())).collect();
        changed.extend(tensor.map(|tensor| (name.to_string(), tensor)));
        write_tensors(&path, &changed).unwrap();
        let error = average(&MODELS, &sources, &mean).unwrap_err();
        write_tensors(&path, &before.into_iter().collect::<Vec<_>>()).unwrap();
        assert!(!mean.exists());
        (error.exit_code(), error.to_string())
    };
    let name = "transformer.layers.0.dec_attn.qkv_net.weight";
    let ones = |shape: &[i64]| Tensor::ones(shape, (Kind::Float, Device::Cpu));
    for (name, tensor, code, words) in [
        (name, None, 78, "has no tensor `transformer"),
        (name, Some(ones(&[2, 2])), 78, "[2, 2]"),
        (name, Some(ones(&[24, 8]) / 0.0), 65, "not finite"),
        ("another", Some(ones(&[1])), 78, "`another`, which the first model lacks"),
    ] {
        let (found, said) = refused(name, tensor);
        assert!(found == code && said.contains(words), "{found}: {said}");
    }
    average(&MODELS, &sources, &mean).unwrap();
}
