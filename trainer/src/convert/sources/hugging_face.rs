//! Folders of Hugging Face's `transformers`, and this program's own.

use std::path::Path;

use segue_dataloader::Tokenizer;
use segue_dataloader::foreign::{SharedBytes, TorchFile};
use serde_json::{Map, Value, json};

use super::hugging_face_xlnet;
use super::source::{Source, Values, Variable, raw_variables};
use crate::TrainError;
use crate::convert::rules::{Operation, Rule, rule, skip};

pub const WEIGHTS: &str = "model.safetensors";
pub const PYTORCH_WEIGHTS: &str = "pytorch_model.bin";
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
    let (variables, values) = match path.extension().is_some_and(|extension| extension == "safetensors") {
        true => safetensors_variables(path)?,
        false => {
            let file = TorchFile::open(path)?;
            let damaged = |what| TrainError::Damaged { path: path.into(), what };
            raw_variables(file.tensors(file.root()).map_err(damaged)?)
        }
    };
    let is_xlnet = config.get("model_type") == Some(&json!("xlnet"));
    let pieces = if is_xlnet { hugging_face_xlnet::vocabulary(folder) } else { None };
    let vocabulary = match (Tokenizer::load(folder), pieces) {
        (_, Some(pieces)) => Some(pieces),
        (Ok(tokenizer), None) => Some((folder.into(), Ok(tokenizer))),
        (Err(_), None) => {
            VOCABULARIES.iter().map(|name| folder.join(name)).find(|path| path.is_file()).map(|path| {
                let tokenizer = Tokenizer::import(&path).map_err(|e| e.to_string());
                (path, tokenizer)
            })
        }
    };
    Ok(Source {
        kind: "hugging_face",
        path: path.into(),
        variables,
        values,
        head: if is_xlnet { hugging_face_xlnet::head(&config) } else { Map::new() },
        config,
        rules: if is_xlnet { hugging_face_xlnet::rules() } else { rules() },
        notes: Vec::new(),
        vocabulary,
    })
}

fn safetensors_variables(path: &Path) -> Result<(Vec<Variable>, Values), TrainError> {
    let bytes = SharedBytes::map(path)?;
    let damaged = |e: safetensors::SafeTensorError| TrainError::Damaged {
        path: path.into(),
        what: format!("not a safetensors file: {e}"),
    };
    let file = safetensors::SafeTensors::deserialize(&bytes).map_err(damaged)?;
    let mut tensors = file.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let variables = tensors.into_iter().enumerate().map(|(number, (name, view))| Variable {
        name,
        dtype: format!("{:?}", view.dtype()).to_lowercase(),
        shape: view.shape().to_vec(),
        number: Some(number),
    });
    let variables = variables.collect();
    drop(file);
    Ok((variables, Values::SafeTensors(bytes)))
}
