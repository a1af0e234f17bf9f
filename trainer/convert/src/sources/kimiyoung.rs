//! `model.pt` of kimiyoung/transformer-xl's PyTorch program: the whole module, pickled. Its attributes are the
//! configuration; what is tied is known from the storages that parameters share.

use std::path::Path;

use segue_foreign::{RawTensor, TorchFile, View};
use segue_kernels::TrainError;
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::facts::Facts;
use super::names;
use super::place::{self, Place, unwrapped};
use super::search::folder_of;
use super::source::{Source, number};
use super::tensors::Tensors;
use crate::rules::{Operation, rule};

/// Files that the program caches a corpus with its vocabulary in.
const CACHES: [&str; 2] = ["cache.pt", "corpus.bin"];

/// Opens a pickled module; `None` where the file holds none with a Transformer-XL.
pub fn open(path: &Path, file: &TorchFile) -> Result<Option<Source>, TrainError> {
    let damaged = |what: String| TrainError::Damaged { path: path.into(), what };
    let root = file.root();
    let mut tensors = Tensors::from(file.tensors(root).map_err(damaged)?);
    let names = tensors.variables.iter().map(|variable| variable.name.as_str());
    let found = Place::of(names, place::TRANSFORMER_XL, "models", |_| true).map_err(damaged)?;
    let Some(place) = found else { return Ok(None) };
    let model = place.follow(root).filter(|model| model.module("word_emb").is_some());
    let Some(model) = model else { return Ok(None) };
    tensors.rename(&place);
    let find = |name: &str| {
        let found = tensors.variables.iter().find(|variable| variable.name == name)?;
        tensors.values.get(found.number?)
    };
    let mut facts = configuration(model, find).map_err(damaged)?;
    facts.place = place;
    let attn_type = facts.config.get("attn_type").and_then(Value::as_u64).unwrap_or(0);
    let mut rules = names::modules(attn_type);
    rules.push(rule("crit.out_layers.{i}.bias", "crit.out_layers.{i}.bias", Operation::Copy));
    rules.push(place::OPTIMIZER);
    let folder = folder_of(path);
    let cache = CACHES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let vocabulary = cache.map(|path| {
        let tokenizer = Tokenizer::import(&path).map_err(|e| e.to_string());
        (path, tokenizer)
    });
    Ok(Some(Source { vocabulary, ..Source::of_tensors("kimiyoung", path, tensors, facts, rules) }))
}

/// The configuration in Hugging Face's words.
fn configuration<'t>(model: View<'_>, find: impl Fn(&str) -> Option<&'t RawTensor>) -> Result<Facts, String> {
    let (_, class) = model.class().unwrap_or_default();
    let part = |name: &str| {
        model.module(name).map(unwrapped).ok_or_else(|| format!("its {class} has no module `{name}`"))
    };
    let embedding = part("word_emb")?;
    if model.module("crit").is_none() {
        return Err(
            "it has no adaptive softmax (`crit`): models trained with sample_softmax > 0 cannot be converted"
                .into(),
        );
    }
    let mut facts = Facts::default();
    let mut take = |holder: View<'_>, theirs: &str, ours: &str| {
        let value =
            holder.attribute(theirs).ok_or_else(|| format!("its {class} has no attribute `{theirs}`"))?;
        let value = number(value).ok_or_else(|| format!("its attribute `{theirs}` is not a number"))?;
        facts.put(ours, value);
        Ok::<_, String>(())
    };
    for (theirs, ours) in [("n_token", "vocab_size"), ("max_klen", "max_klen")] {
        take(model, theirs, ours)?;
    }
    for name in [
        "d_embed",
        "d_model",
        "n_head",
        "d_head",
        "n_layer",
        "mem_len",
        "attn_type",
        "same_length",
        "clamp_len",
    ] {
        take(model, name, name)?;
    }
    take(embedding, "div_val", "div_val")?;
    let first = part("layers")?.module("0").map(unwrapped).ok_or("it has no layers")?;
    let attention = first.module("dec_attn").map(unwrapped).ok_or("its layers have no attention")?;
    let norm = attention.module("layer_norm").ok_or("its layers have no LayerNorm")?;
    take(attention, "pre_lnorm", "pre_lnorm")?;
    take(norm, "eps", "layer_norm_epsilon")?;
    let mut unsaid = Vec::new();
    for (holder, theirs, ours) in [(model, "drop", "dropout"), (attention, "dropatt", "dropatt")] {
        match holder.module(theirs) {
            Some(layer) => take(layer, "p", ours)?,
            None => unsaid.push(ours),
        }
    }
    facts.leave(&unsaid, "its module has no layer with this rate");
    let cutoffs = embedding.attribute("cutoffs").and_then(View::elements).ok_or("it has no cutoffs")?;
    let mut cutoffs: Vec<usize> =
        cutoffs.map(|c| c.size()).collect::<Option<_>>().ok_or("a cutoff is not a number")?;
    cutoffs.pop(); // the vocabulary
    let clusters = cutoffs.len() + 1;
    let one_table = facts.config.get("div_val") == Some(&json!(1));
    let shared = |a: String, b: String| match (find(&a), find(&b)) {
        (Some(a), Some(b)) => a.shares_with(b),
        _ => false,
    };
    let tied: Vec<bool> = (0..clusters)
        .map(|i| {
            let table = if one_table { 0 } else { i };
            shared(format!("crit.out_projs.{i}"), format!("word_emb.emb_projs.{table}"))
        })
        .collect();
    let tables = shared("crit.out_layers.0.weight".into(), "word_emb.emb_layers.0.weight".into());
    let inner = find("layers.0.pos_ff.CoreNet.0.weight").ok_or("its layers have no feed-forward part")?;
    let extras = facts.config.get("attn_type") == Some(&json!(1));
    for (key, value) in [
        ("cutoffs", json!(cutoffs)),
        ("tie_projs", json!(tied)),
        ("tie_word_embeddings", json!(tables)),
        ("d_inner", json!(inner.shape().first())),
        ("untie_r", json!(false)),
        ("proj_same_dim", json!(true)),
        ("shaw_extras", json!(extras)),
        ("memory_start", json!("empty")),
        ("same_length_keys", json!("mem_len")),
    ] {
        facts.put(key, value);
    }
    names::adjust_attention(&mut facts)?;
    Ok(facts)
}
