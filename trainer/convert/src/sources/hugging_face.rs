//! Folders of Hugging Face's `transformers`, and this program's own.

use std::path::{Path, PathBuf};

use segue_configs::ModelSection;
use segue_data_error::DataError;
use segue_kernels::TrainError;
use segue_publish::read_regular_text;
use segue_tokenizer::Tokenizer;
use segue_transfo_xl::TransfoXlConfig;
use segue_translation::TranslationConfig;
use segue_xlnet::XlnetConfig;
use serde_json::{Map, Value};

use super::facts::Facts;
use super::hugging_face_xlnet;
use super::place::{self, Place};
use super::search::folder_of;
use super::source::Source;
use super::tensors::Tensors;
use crate::optimizer::ADAM;
use crate::rules::{Operation, Rule, rule, skip};

pub const WEIGHTS: &str = "model.safetensors";
/// Names of weights, and of the lists of their pieces, in the order that the package looks for them.
pub const NAMES: [&str; 4] =
    [WEIGHTS, "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];
/// Adam's moments in a checkpoint of this program's.
pub const OPTIMIZER: &str = "optimizer.safetensors";
/// Files that only that package's tokenizers read; pieces are read here too, where no tokens are added to them.
const COMPANIONS: [&str; 4] =
    ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "spiece.model"];
/// Keys of a Transformer-XL's `config.json` that no tensor shows and that change what is computed or trained.
const TOLD: &[&str] =
    &["clamp_len", "dropatt", "dropout", "layer_norm_epsilon", "mem_len", "pre_lnorm", "same_length"];
/// The same of a Marian model.
const TOLD_OF_MARIAN: &[&str] = &[
    "activation_function",
    "decoder_attention_heads",
    "dropout",
    "encoder_attention_heads",
    "eos_token_id",
    "pad_token_id",
    "scale_embedding",
];
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
    let folder = folder_of(path);
    let config_path = folder.join("config.json");
    let text = read_regular_text(&config_path)
        .map_err(|source| TrainError::Read { path: config_path.clone(), source })?;
    let config: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|e| TrainError::Damaged { path: config_path.clone(), what: e.to_string() })?;
    let other = |what: String| TrainError::OtherModel { path: config_path.clone(), what };
    check_keys(&config).map_err(other)?;
    let mut facts = Facts::of(config);
    let mut tensors = Tensors::open(path)?;
    unwrap(&mut tensors, &mut facts).map_err(|what| TrainError::OtherModel { path: path.into(), what })?;
    let optimizer = folder.join(OPTIMIZER);
    if optimizer.is_file() && path != optimizer {
        tensors.add(&optimizer)?;
    }
    // Configurations of 2019 do not say which model it is.
    if !facts.config.get("model_type").is_some_and(Value::is_string) {
        let is_xlnet = tensors.variables.iter().any(|variable| variable.name.ends_with(place::XLNET));
        let model = if is_xlnet { XlnetConfig::TYPE } else { TransfoXlConfig::TYPE };
        facts.guess("model_type", model, "config.json does not say; told by the names of the tensors");
    }
    let model_type = facts.config["model_type"].as_str().unwrap_or_default().to_string();
    let is_xlnet = model_type == XlnetConfig::TYPE;
    if is_xlnet {
        facts.head = hugging_face_xlnet::head(&facts.config);
    }
    let (mut rules, told) = match model_type.as_str() {
        XlnetConfig::TYPE => (hugging_face_xlnet::rules(), hugging_face_xlnet::TOLD),
        TransfoXlConfig::TYPE => (rules(), TOLD),
        // The package's names are this program's own.
        TranslationConfig::TYPE => (Vec::new(), TOLD_OF_MARIAN),
        // The package has no such model, and its names are this program's own.
        _ => (Vec::new(), &[][..]),
    };
    let untold: Vec<&str> = told.iter().filter(|key| !facts.config.contains_key(**key)).copied().collect();
    facts.leave(&untold, "config.json does not say; what the package means then");
    let own = rules.is_empty().then(|| rule("{*}", "{*}", Operation::Copy));
    rules.extend([skip("exp_avg.{*}", ADAM), skip("exp_avg_sq.{*}", ADAM), place::OPTIMIZER]);
    rules.extend(own);
    let companions = COMPANIONS.iter().map(|name| folder.join(name)).filter(|path| path.is_file());
    Ok(Source {
        vocabulary: vocabulary(folder, is_xlnet),
        companions: companions.collect(),
        ..Source::of_tensors("hugging_face", path, tensors, facts, rules)
    })
}

/// Refuses what the package can be told and no model here computes.
fn check_keys(config: &Map<String, Value>) -> Result<(), String> {
    let is_number = |key: &str| config.get(key).and_then(Value::as_i64).is_some_and(|value| value > 0);
    let is_filled = |key: &str| match config.get(key) {
        Some(Value::Object(entries)) => !entries.is_empty(),
        other => other.is_some_and(|value| !value.is_null()),
    };
    let refused = [
        ("sample_softmax", is_number("sample_softmax"), "it was trained with a sampled softmax"),
        ("ext_len", is_number("ext_len"), "its memory lags behind the segment"),
        ("pruned_heads", is_filled("pruned_heads"), "heads of its attention are cut out"),
        ("quantization_config", is_filled("quantization_config"), "its weights are quantised"),
    ];
    match refused.into_iter().find(|(_, is_set, _)| *is_set) {
        Some((key, _, what)) => {
            Err(format!("{key} is {}: {what}, which no model here computes", config[key]))
        }
        None => Ok(()),
    }
}

/// Gives the tensors the names of the package's classes, wherever a program has put the model.
fn unwrap(tensors: &mut Tensors, facts: &mut Facts) -> Result<(), String> {
    for mark in place::MARKS {
        let names = tensors.variables.iter().map(|variable| variable.name.as_str());
        if let Some(found) = Place::of(names, mark, "models", |_| true)? {
            let found = found.before("transformer.");
            tensors.rename(&found);
            facts.place = found;
            break;
        }
    }
    Ok(())
}

/// A vocabulary, if the file `other` has the same.
fn agree(tokenizer: Tokenizer, other: &Path) -> Result<Tokenizer, String> {
    let theirs = Tokenizer::import(other).map_err(|e| e.to_string())?;
    let sizes = (tokenizer.vocab_size(), theirs.vocab_size());
    let name = other.file_name().unwrap_or_default().display();
    match (0..sizes.0.min(sizes.1) as u32).find(|id| tokenizer.token(*id) != theirs.token(*id)) {
        Some(id) => {
            let [own, other] = [&tokenizer, &theirs].map(|one| one.token(id).unwrap_or_default());
            Err(format!("the id {id} is `{other}` in {name}, and `{own}` in the vocabulary beside it"))
        }
        None if sizes.0 != sizes.1 => {
            Err(format!("{name} has {} entries, and the vocabulary beside it {}", sizes.1, sizes.0))
        }
        None => Ok(tokenizer),
    }
}

/// The vocabulary of a folder: what this program or the package loads from it, else a file of an older one's.
fn vocabulary(folder: &Path, is_xlnet: bool) -> Option<(PathBuf, Result<Tokenizer, String>)> {
    let loaded = if is_xlnet { Tokenizer::load_of_xlnet(folder) } else { Tokenizer::load(folder) };
    let why = match loaded {
        Ok(tokenizer) => return Some((folder.into(), Ok(tokenizer))),
        Err(why) => why,
    };
    let mut files = VOCABULARIES.iter().map(|name| folder.join(name)).filter(|path| path.is_file());
    if let Some(path) = files.next() {
        let tokenizer = Tokenizer::import(&path).map_err(|e| e.to_string());
        let agreed = tokenizer
            .and_then(|tokenizer| files.try_fold(tokenizer, |tokenizer, other| agree(tokenizer, &other)));
        return Some((path, agreed));
    }
    match why {
        DataError::Missing { .. } => None,
        why => Some((folder.into(), Err(why.to_string()))),
    }
}
