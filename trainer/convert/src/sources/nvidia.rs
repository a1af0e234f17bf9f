//! `checkpoint_*.pt` of NVIDIA's PyTorch Transformer-XL: a dict with the state of everything.

use std::path::Path;

use segue_foreign::{Kind, TorchFile, View};
use segue_kernels::TrainError;
use segue_tokenizer::find_symbols;
use serde_json::{Value, json};

use super::facts::Facts;
use super::names;
use super::place::{self, Place};
use super::source::{Source, Variable, number};
use super::tensors::Tensors;
use crate::rules::{Operation, rule, skip};

/// Entries that are not the model, with the reason to leave them.
const OTHERS: [(&str, &str); 15] = [
    ("optimizer_state", "its moments are those of other step rules; training goes on with fresh ones"),
    ("scheduler_state", "the schedule is the recipe's"),
    ("amp_state", "the loss scale is found anew"),
    ("rng_states", "random choices are a function of seed and step here"),
    ("memory", "it belongs to positions in its own data; streams start anew"),
    ("args", "the command line of its program"),
    ("model_config", "read as the configuration"),
    ("vocab", "read as the vocabulary"),
    ("epoch", "a counter"),
    ("batch", "a counter"),
    ("last_iter", "a counter"),
    ("train_step", "a counter"),
    ("best_val_loss", "a counter"),
    ("step", "a counter"),
    ("cur_loss", "a counter"),
];

/// Opens a checkpoint; `None` where a file is none.
pub fn open(path: &Path, file: &TorchFile) -> Result<Option<Source>, TrainError> {
    let damaged = |what: String| TrainError::Damaged { path: path.into(), what };
    let root = file.root();
    let (Some(state), Some(settings)) = (root.get("model_state"), root.get("model_config")) else {
        return Ok(None);
    };
    let mut facts = configuration(settings).map_err(damaged)?;
    let mut tensors = Tensors::from(file.tensors(state).map_err(damaged)?);
    let names = tensors.variables.iter().map(|variable| variable.name.as_str());
    if let Some(place) = Place::of(names, place::TRANSFORMER_XL, "models", |_| true).map_err(damaged)? {
        tensors.rename(&place);
        facts.place = place;
    }
    let attn_type = facts.config.get("attn_type").and_then(Value::as_u64).unwrap_or(0);
    let mut rules = names::modules(attn_type);
    rules.push(rule("crit.out_layers_biases.{i}", "crit.out_layers.{i}.bias", Operation::Copy));
    rules.push(rule("crit.out_layers_weights.{i}", "crit.out_layers.{i}.weight", Operation::Copy));
    rules.push(rule("crit.shared_out_projs.{i}", "transformer.word_emb.emb_projs.{i}", Operation::Copy));
    if attn_type == 3 {
        // [layer, key, d_model] there, split by heads in the older program.
        rules.insert(0, rule("r_emb", "transformer.layers.{n}.r_emb", Operation::Slice));
    }
    rules.extend(OTHERS.map(|(name, reason)| skip(name, reason)));
    let entries = root.pairs().unwrap_or_default();
    let entries = entries.into_iter().filter_map(|(key, value)| Some((key.text()?, value)));
    tensors.variables.extend(entries.filter(|(key, _)| *key != "model_state").map(|(key, value)| Variable {
        name: key.into(),
        dtype: described(value).into(),
        shape: Vec::new(),
        bytes: 0,
        number: None,
    }));
    let symbols = root.get("vocab").filter(|vocabulary| vocabulary.kind() != Kind::None).map(find_symbols);
    let vocabulary = symbols.map(|symbols| {
        let none = || "its vocabulary is not a list of symbols".to_string();
        let symbols = symbols.and_then(|symbols| symbols.ok_or_else(none));
        (path.into(), symbols.and_then(|symbols| symbols.tokenizer()))
    });
    Ok(Some(Source { vocabulary, ..Source::of_tensors("nvidia", path, tensors, facts, rules) }))
}

fn described(value: View<'_>) -> &'static str {
    match value.kind() {
        Kind::None => "none",
        Kind::Bool(_) => "bool",
        Kind::Int(_) | Kind::Big(_) => "int",
        Kind::Float(_) => "float",
        Kind::Str(_) | Kind::Bytes(_) => "text",
        Kind::List | Kind::Tuple | Kind::Set => "list",
        Kind::Dict => "dict",
        _ => "object",
    }
}

/// The configuration in Hugging Face's words.
fn configuration(settings: View<'_>) -> Result<Facts, String> {
    let mut facts = Facts::default();
    const SAME: [&str; 13] = [
        "n_layer",
        "n_head",
        "d_model",
        "d_head",
        "d_inner",
        "dropout",
        "dropatt",
        "div_val",
        "pre_lnorm",
        "mem_len",
        "same_length",
        "attn_type",
        "clamp_len",
    ];
    let missing = |name: &str| format!("its model_config has no usable `{name}`");
    for (theirs, ours) in SAME.map(|name| (name, name)).into_iter().chain([
        ("n_token", "vocab_size"),
        ("d_embed", "d_embed"),
        ("tie_weight", "tie_word_embeddings"),
    ]) {
        let value = settings.get(theirs).ok_or_else(|| missing(theirs))?;
        // The width of embeddings that is left out is the model's.
        if value.kind() != Kind::None {
            facts.put(ours, number(value).ok_or_else(|| missing(theirs))?);
        }
    }
    let list = |name: &str| settings.get(name).and_then(View::elements).ok_or_else(|| missing(name));
    let cutoffs: Vec<usize> = list("cutoffs")?.filter_map(View::size).collect();
    let tied: Vec<bool> = list("tie_projs")?.filter_map(View::truth).collect();
    let length = |name: &str| settings.get(name).and_then(View::size).unwrap_or(0);
    let klen = length("tgt_len") + length("ext_len") + length("mem_len");
    let extras = facts.config.get("attn_type") == Some(&json!(1));
    for (key, value) in [
        ("cutoffs", json!(cutoffs)),
        ("tie_projs", json!(tied)),
        ("untie_r", json!(false)),
        ("proj_same_dim", json!(true)),
        ("max_klen", json!(klen)),
        ("shaw_extras", json!(extras)),
        ("memory_start", json!("empty")),
        // Its mask leaves one key more than the program it descends from.
        ("same_length_keys", json!("mem_len_plus_one")),
    ] {
        facts.put(key, value);
    }
    if settings.get("sample_softmax").and_then(View::int).is_some_and(|samples| samples > 0) {
        return Err("models trained with sample_softmax > 0 cannot be converted".into());
    }
    names::adjust_attention(&mut facts)?;
    Ok(facts)
}
