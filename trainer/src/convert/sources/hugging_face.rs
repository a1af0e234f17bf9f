//! Folders of Hugging Face's `transformers`, and this program's own.

use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

use super::hugging_face_xlnet;
use super::source::Source;
use super::tensors::Tensors;
use crate::TrainError;
use crate::convert::optimizer::ADAM;
use crate::convert::rules::{Operation, Rule, rule, skip};

pub const WEIGHTS: &str = "model.safetensors";
/// Names of weights, and of the lists of their pieces, in the order that the package looks for them.
pub const NAMES: [&str; 4] =
    [WEIGHTS, "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];
/// Adam's moments in a checkpoint of this program's.
const OPTIMIZER: &str = "optimizer.safetensors";
/// Files that only that package's tokenizers read.
const COMPANIONS: [&str; 3] = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"];
/// Vocabulary files of that package, newest first.
const VOCABULARIES: [&str; 3] = ["vocab.bin", "vocab.pkl", "vocab.txt"];

fn rules() -> Vec<Rule> {
    let mut rules = vec![
        skip("score.weight", "the head of a classifier; the model predicts tokens"),
        rule("transformer.r_w_bias", "transformer.r_w_bias", Operation::Copy),
        rule("transformer.r_r_bias", "transformer.r_r_bias", Operation::Copy),
        rule("crit.cluster_weight", "crit.cluster_weight", Operation::Copy),
        rule("crit.cluster_bias", "crit.cluster_bias", Operation::Copy),
        rule("crit.out_layers.{i}.weight", "crit.out_layers.{i}.weight", Operation::Copy),
        rule("crit.out_layers.{i}.bias", "crit.out_layers.{i}.bias", Operation::Copy),
        rule("crit.out_projs.{i}", "crit.out_projs.{i}", Operation::Copy),
        rule("transformer.layers.{i}.r_emb", "transformer.layers.{i}.r_emb", Operation::Copy),
    ];
    const SAME: [&str; 18] = [
        "transformer.word_emb.emb_layers.{i}.weight",
        "transformer.word_emb.emb_projs.{i}",
        "transformer.pos_emb.inv_freq",
        "transformer.layers.{i}.dec_attn.qkv_net.weight",
        "transformer.layers.{i}.dec_attn.o_net.weight",
        "transformer.layers.{i}.dec_attn.r_net.weight",
        "transformer.layers.{i}.dec_attn.r_w_bias",
        "transformer.layers.{i}.dec_attn.r_r_bias",
        "transformer.layers.{i}.dec_attn.r_emb",
        "transformer.layers.{i}.dec_attn.r_bias",
        "transformer.layers.{i}.dec_attn.layer_norm.weight",
        "transformer.layers.{i}.dec_attn.layer_norm.bias",
        "transformer.layers.{i}.pos_ff.CoreNet.0.weight",
        "transformer.layers.{i}.pos_ff.CoreNet.0.bias",
        "transformer.layers.{i}.pos_ff.CoreNet.3.weight",
        "transformer.layers.{i}.pos_ff.CoreNet.3.bias",
        "transformer.layers.{i}.pos_ff.layer_norm.weight",
        "transformer.layers.{i}.pos_ff.layer_norm.bias",
    ];
    rules.extend(SAME.map(|name| rule(name, name, Operation::Copy)));
    rules
}

/// Opens the weights `path` with the `config.json` beside them.
pub fn open(path: &Path) -> Result<Source, TrainError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let config_path = folder.join("config.json");
    let text = std::fs::read_to_string(&config_path)
        .map_err(|source| TrainError::Read { path: config_path.clone(), source })?;
    let mut config: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|e| TrainError::Damaged { path: config_path.clone(), what: e.to_string() })?;
    if config.get("tie_weight") == Some(&json!(false)) && !config.contains_key("tie_word_embeddings") {
        config.insert("tie_word_embeddings".into(), json!(false));
    }
    let mut tensors = Tensors::open(path)?;
    let optimizer = folder.join(OPTIMIZER);
    if optimizer.is_file() {
        tensors.add(&optimizer)?;
    }
    let files = std::mem::take(&mut tensors.files);
    let (variables, values) = tensors.into_parts();
    // Configurations of 2019 do not say which model it is.
    if !config.get("model_type").is_some_and(Value::is_string) {
        let is_xlnet = variables.iter().any(|variable| variable.name.ends_with("layer.0.rel_attn.q"));
        config.insert("model_type".into(), json!(if is_xlnet { "xlnet" } else { "transfo-xl" }));
    }
    let is_xlnet = config.get("model_type") == Some(&json!("xlnet"));
    let companions = COMPANIONS.iter().map(|name| folder.join(name)).filter(|path| path.is_file());
    let mut rules = match config.get("model_type").and_then(Value::as_str) {
        Some("xlnet") => hugging_face_xlnet::rules(),
        Some("transfo-xl") => rules(),
        // The package has no such model: its names are this program's own.
        _ => Vec::new(),
    };
    let own = rules.is_empty().then(|| rule("{*}", "{*}", Operation::Copy));
    rules.extend([skip("exp_avg.{*}", ADAM), skip("exp_avg_sq.{*}", ADAM)]);
    rules.extend(own);
    Ok(Source {
        kind: "hugging_face",
        path: path.into(),
        variables,
        values,
        head: if is_xlnet { hugging_face_xlnet::head(&config) } else { Map::new() },
        config,
        rules,
        notes: Vec::new(),
        unsaid: Vec::new(),
        vocabulary: vocabulary(folder, is_xlnet),
        companions: companions.collect(),
        files,
    })
}

/// The vocabulary of a folder: what this program or the package loads from it, else a file of an older one's.
fn vocabulary(folder: &Path, is_xlnet: bool) -> Option<(PathBuf, Result<Tokenizer, String>)> {
    let loaded = if is_xlnet { Tokenizer::load_of_xlnet(folder) } else { Tokenizer::load(folder) };
    let why = match loaded {
        Ok(tokenizer) => return Some((folder.into(), Ok(tokenizer))),
        Err(why) => why,
    };
    if let Some(path) = VOCABULARIES.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
        let tokenizer = Tokenizer::import(&path).map_err(|e| e.to_string());
        return Some((path, tokenizer));
    }
    match why {
        DataError::Missing { .. } => None,
        why => Some((folder.into(), Err(why.to_string()))),
    }
}
