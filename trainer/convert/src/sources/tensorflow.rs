//! Checkpoints of kimiyoung/transformer-xl's TensorFlow program. They hold no configuration: sizes follow from the
//! shapes of the variables, ties from which variables exist; the rest was on the program's command line.

use std::path::Path;

use Operation::{Copy, Slice, Transpose};
use segue_foreign::{Bundle, BundleEntry};
use segue_kernels::TrainError;
use segue_publish::read_regular_text;
use segue_transfo_xl::TransfoXlConfig;
use serde_json::{Value, json};

use super::facts::Facts;
use super::names::JOINED_BIASES;
use super::search::folder_of;
use super::source::Source;
use super::tensorflow_xlnet;
use crate::optimizer::ADAM;
use crate::rules::{Operation, Rule, rule, skip};

/// LayerNorm's ε in TensorFlow's contrib layers.
const EPSILON: f64 = 1e-12;
/// Memory of the program's models on WikiText-103 while they were trained; checkpoints do not say.
const USUAL_MEM_LEN: usize = 384;
const PREPARED: &str = "corpus-info.json";
const CACHE: &str = "cache.pkl";

/// The lines for a layer.
const LAYERS: [Rule; 11] = [
    rule(
        "transformer/layer_{i}/rel_attn/qkv/kernel",
        "transformer.layers.{i}.dec_attn.qkv_net.weight",
        Transpose,
    ),
    rule(
        "transformer/layer_{i}/rel_attn/r/kernel",
        "transformer.layers.{i}.dec_attn.r_net.weight",
        Transpose,
    ),
    rule(
        "transformer/layer_{i}/rel_attn/o/kernel",
        "transformer.layers.{i}.dec_attn.o_net.weight",
        Transpose,
    ),
    rule(
        "transformer/layer_{i}/rel_attn/LayerNorm/gamma",
        "transformer.layers.{i}.dec_attn.layer_norm.weight",
        Copy,
    ),
    rule(
        "transformer/layer_{i}/rel_attn/LayerNorm/beta",
        "transformer.layers.{i}.dec_attn.layer_norm.bias",
        Copy,
    ),
    rule(
        "transformer/layer_{i}/ff/layer_1/kernel",
        "transformer.layers.{i}.pos_ff.CoreNet.0.weight",
        Transpose,
    ),
    rule("transformer/layer_{i}/ff/layer_1/bias", "transformer.layers.{i}.pos_ff.CoreNet.0.bias", Copy),
    rule(
        "transformer/layer_{i}/ff/layer_2/kernel",
        "transformer.layers.{i}.pos_ff.CoreNet.3.weight",
        Transpose,
    ),
    rule("transformer/layer_{i}/ff/layer_2/bias", "transformer.layers.{i}.pos_ff.CoreNet.3.bias", Copy),
    rule("transformer/layer_{i}/ff/LayerNorm/gamma", "transformer.layers.{i}.pos_ff.layer_norm.weight", Copy),
    rule("transformer/layer_{i}/ff/LayerNorm/beta", "transformer.layers.{i}.pos_ff.layer_norm.bias", Copy),
];

/// The table. One table of embeddings for all clusters (`div_val` 1) has names without cluster; with `untie_r` u and
/// v are stacks of all layers'.
pub fn rules(one_table: bool, untie_r: bool) -> Vec<Rule> {
    let mut rules = vec![
        skip("{*}/Adam", ADAM),
        skip("{*}/Adam_1", ADAM),
        skip("beta1_power", ADAM),
        skip("beta2_power", ADAM),
        skip("global_step", "a counter"),
        rule("transformer/adaptive_softmax/bias", "crit.out_layers.0.bias", Copy),
        rule("transformer/adaptive_softmax/cutoff_0/cluster_W", "crit.cluster_weight", Copy),
        rule("transformer/adaptive_softmax/cutoff_0/cluster_b", "crit.cluster_bias", Copy),
        rule("transformer/adaptive_softmax/cutoff_{i}/proj", "crit.out_projs.{i}", Transpose),
    ];
    match one_table {
        true => rules.extend([
            rule("transformer/adaptive_embed/lookup_table", "transformer.word_emb.emb_layers.0.weight", Copy),
            rule("transformer/adaptive_embed/proj_W", "transformer.word_emb.emb_projs.0", Transpose),
            JOINED_BIASES,
        ]),
        false => rules.extend([
            rule(
                "transformer/adaptive_embed/cutoff_{i}/lookup_table",
                "transformer.word_emb.emb_layers.{i}.weight",
                Copy,
            ),
            rule(
                "transformer/adaptive_embed/cutoff_{i}/proj_W",
                "transformer.word_emb.emb_projs.{i}",
                Transpose,
            ),
            rule("transformer/adaptive_softmax/cutoff_{i}/b", "crit.out_layers.{i}.bias", Copy),
        ]),
    }
    match untie_r {
        true => rules.extend([
            rule("transformer/r_w_bias", "transformer.layers.{n}.dec_attn.r_w_bias", Slice),
            rule("transformer/r_r_bias", "transformer.layers.{n}.dec_attn.r_r_bias", Slice),
        ]),
        false => rules.extend([
            rule("transformer/r_w_bias", "transformer.r_w_bias", Copy),
            rule("transformer/r_r_bias", "transformer.r_r_bias", Copy),
        ]),
    }
    rules.extend(LAYERS);
    rules
}

/// Opens a checkpoint, of this program or of XLNet's.
pub fn open(path: &Path) -> Result<Source, TrainError> {
    let bundle = Bundle::open(path)?;
    if tensorflow_xlnet::is_xlnet(&bundle) {
        return tensorflow_xlnet::open(bundle);
    }
    let folder = folder_of(&bundle.index).to_path_buf();
    let damaged = |what: String| TrainError::Damaged { path: bundle.index.clone(), what };
    let mut facts = infer(bundle.entries()).map_err(damaged)?;
    check_prepared(&folder, &mut facts);
    let rules = rules(facts.config["div_val"] == json!(1), facts.config["untie_r"] == json!(true));
    let cache = [folder.clone(), folder.join("../data")].map(|folder| folder.join(CACHE));
    let vocabulary = cache.into_iter().find(|path| path.is_file());
    Ok(Source::of_bundle(bundle, facts, rules, vocabulary))
}

/// The configuration in Hugging Face's words, from names and shapes.
fn infer(entries: &[BundleEntry]) -> Result<Facts, String> {
    let shape = |name: &str| {
        let entry = entries.iter().find(|entry| entry.name == format!("transformer/{name}"));
        entry.map(|entry| entry.shape.as_slice())
    };
    let wanted = |name: &str| {
        shape(name).ok_or_else(|| {
            format!("it has no variable `transformer/{name}`: is it a checkpoint of the TensorFlow Transformer-XL?")
        })
    };
    let matrix = |name: &str| match wanted(name)? {
        &[rows, columns] => Ok((rows, columns)),
        other => Err(format!("`transformer/{name}` is {other:?}, not a matrix")),
    };
    let (d_model, _) = matrix("layer_0/rel_attn/qkv/kernel")?;
    let (_, d_inner) = matrix("layer_0/ff/layer_1/kernel")?;
    let n_layer = (0..).take_while(|i| shape(&format!("layer_{i}/rel_attn/qkv/kernel")).is_some()).count();
    let (untie_r, n_head, d_head) = match wanted("r_w_bias")? {
        &[layers, n_head, d_head] if layers == n_layer => (true, n_head, d_head),
        &[n_head, d_head] => (false, n_head, d_head),
        other => return Err(format!("`transformer/r_w_bias` is {other:?} in a model of {n_layer} layers")),
    };
    let clusters = (0..).take_while(|i| shape(&format!("adaptive_softmax/cutoff_{i}/b")).is_some()).count();
    let one_table = shape("adaptive_embed/lookup_table").is_some();
    let (rows, d_embed) = match one_table {
        true => matrix("adaptive_embed/lookup_table")?,
        false => matrix("adaptive_embed/cutoff_0/lookup_table")?,
    };
    let mut ends = Vec::new();
    let mut widths = vec![d_embed];
    for i in 0..clusters {
        let size = match wanted(&format!("adaptive_softmax/cutoff_{i}/b"))? {
            &[size] => size,
            other => {
                return Err(format!(
                    "`transformer/adaptive_softmax/cutoff_{i}/b` is {other:?}, not a vector"
                ));
            }
        };
        ends.push(ends.last().copied().unwrap_or(0usize).saturating_add(size));
        if !one_table && i > 0 {
            widths.push(matrix(&format!("adaptive_embed/cutoff_{i}/lookup_table"))?.1);
        }
    }
    let vocab_size = ends.pop().unwrap_or(rows);
    let div_val = match widths.get(1) {
        Some(&second) if second > 0 => d_embed / second,
        _ => 1,
    };
    // A projection that is not there is an identity, and not tied to anything. Without cutoffs the program always
    // projects back with the input's matrix.
    let tied = |i: usize| {
        let scope = if one_table { String::new() } else { format!("cutoff_{i}/") };
        let projects = shape(&format!("adaptive_embed/{scope}proj_W")).is_some();
        projects && (clusters == 0 || shape(&format!("adaptive_softmax/cutoff_{i}/proj")).is_none())
    };
    let tied: Vec<bool> = (0..clusters.max(1)).map(tied).collect();
    let first_projected = shape("adaptive_embed/cutoff_0/proj_W").is_some();
    let proj_same_dim = one_table || d_embed != d_model || first_projected;
    let mut facts = Facts::default();
    for (key, value) in [
        ("vocab_size", json!(vocab_size)),
        ("cutoffs", json!(ends)),
        ("d_model", json!(d_model)),
        ("d_embed", json!(d_embed)),
        ("d_inner", json!(d_inner)),
        ("n_layer", json!(n_layer)),
        ("n_head", json!(n_head)),
        ("d_head", json!(d_head)),
        ("div_val", json!(div_val)),
        ("untie_r", json!(untie_r)),
        ("tie_projs", json!(tied)),
        ("proj_same_dim", json!(proj_same_dim)),
        ("tie_word_embeddings", json!(true)),
        ("pre_lnorm", json!(false)),
        ("attn_type", json!(0)),
        ("layer_norm_epsilon", json!(EPSILON)),
        ("memory_start", json!("zeros")),
        ("same_length_keys", json!("mem_len_plus_one")),
    ] {
        facts.put(key, value);
    }
    facts.guess(
        "mem_len",
        USUAL_MEM_LEN,
        "the checkpoint does not say; that of the published training on WikiText-103",
    );
    let usual = TransfoXlConfig::default();
    const USUAL: &str = "the checkpoint does not say; this program's default";
    facts.guess("clamp_len", usual.clamp_len, USUAL);
    facts.guess("same_length", usual.same_length, USUAL);
    facts.guess("dropout", usual.dropout, USUAL);
    facts.guess("dropatt", usual.dropatt, USUAL);
    Ok(facts)
}

/// Compares with what the program has noted about its corpus.
fn check_prepared(folder: &Path, facts: &mut Facts) {
    let Facts { config, notes, .. } = facts;
    for folder in [folder.to_path_buf(), folder.join("../data")] {
        let Ok(text) = read_regular_text(folder.join(PREPARED)) else { continue };
        let Ok(info) = serde_json::from_str::<Value>(&text) else { continue };
        let whole = info["cutoffs"].as_array().cloned().unwrap_or_default();
        let inner = whole.get(1..whole.len().saturating_sub(1)).unwrap_or_default();
        if info["vocab_size"] != config["vocab_size"] || json!(inner) != config["cutoffs"] {
            notes.push(format!(
                "{PREPARED} says vocab_size {} and cutoffs {inner:?}; the checkpoint has {} and {}",
                info["vocab_size"], config["vocab_size"], config["cutoffs"]
            ));
        }
        return;
    }
}
