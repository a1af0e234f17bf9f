//! Names that the PyTorch programs and Hugging Face share.

use serde_json::{Value, json};

use super::facts::Facts;
use crate::rules::{Operation, Rule, rule};

use Operation::{Copy, Join, JoinAt, Reverse, Slice, SliceMatrix, SliceReverse};

/// The modules that all kinds of attention share.
const MODULES: [Rule; 20] = [
    rule("word_emb.emb_layers.{i}.weight", "transformer.word_emb.emb_layers.{i}.weight", Copy),
    rule("word_emb.emb_projs.{i}", "transformer.word_emb.emb_projs.{i}", Copy),
    rule("pos_emb.inv_freq", "transformer.pos_emb.inv_freq", Copy),
    // Tail i takes head entry -i in the PyTorch programs, i - 1 here.
    rule("crit.cluster_weight", "crit.cluster_weight", Reverse),
    rule("crit.cluster_bias", "crit.cluster_bias", Reverse),
    rule("crit.out_projs.{i}", "crit.out_projs.{i}", Copy),
    rule("layers.{i}.dec_attn.qkv_net.weight", "transformer.layers.{i}.dec_attn.qkv_net.weight", Copy),
    rule("layers.{i}.dec_attn.q_net.weight", "transformer.layers.{i}.dec_attn.qkv_net.weight", JoinAt(0)),
    rule("layers.{i}.dec_attn.kv_net.weight", "transformer.layers.{i}.dec_attn.qkv_net.weight", JoinAt(1)),
    rule("layers.{i}.dec_attn.o_net.weight", "transformer.layers.{i}.dec_attn.o_net.weight", Copy),
    rule("layers.{i}.dec_attn.r_net.weight", "transformer.layers.{i}.dec_attn.r_net.weight", Copy),
    rule("layers.{i}.dec_attn.layer_norm.weight", "transformer.layers.{i}.dec_attn.layer_norm.weight", Copy),
    rule("layers.{i}.dec_attn.layer_norm.bias", "transformer.layers.{i}.dec_attn.layer_norm.bias", Copy),
    rule("layers.{i}.pos_ff.CoreNet.0.weight", "transformer.layers.{i}.pos_ff.CoreNet.0.weight", Copy),
    rule("layers.{i}.pos_ff.CoreNet.0.bias", "transformer.layers.{i}.pos_ff.CoreNet.0.bias", Copy),
    rule("layers.{i}.pos_ff.CoreNet.3.weight", "transformer.layers.{i}.pos_ff.CoreNet.3.weight", Copy),
    rule("layers.{i}.pos_ff.CoreNet.3.bias", "transformer.layers.{i}.pos_ff.CoreNet.3.bias", Copy),
    rule("layers.{i}.pos_ff.layer_norm.weight", "transformer.layers.{i}.pos_ff.layer_norm.weight", Copy),
    rule("layers.{i}.pos_ff.layer_norm.bias", "transformer.layers.{i}.pos_ff.layer_norm.bias", Copy),
    rule("crit.out_layers.{i}.weight", "crit.out_layers.{i}.weight", Copy),
];

/// u and v, or the position tables, of each kind of attention: 0 relative, 1 Shaw, 2 absolute, 3 learned.
const POSITIONS: [&[Rule]; 4] = [
    &[rule("r_w_bias", "transformer.r_w_bias", Copy), rule("r_r_bias", "transformer.r_r_bias", Copy)],
    &[
        rule("r_emb", "transformer.layers.{n}.dec_attn.r_emb", SliceReverse),
        rule("r_w_bias", "transformer.layers.{n}.dec_attn.r_w_bias", Slice),
        rule("r_bias", "transformer.layers.{n}.dec_attn.r_bias", SliceReverse),
    ],
    &[],
    &[rule("r_emb", "transformer.layers.{n}.r_emb", SliceMatrix)],
];

/// The table of the PyTorch programs for a kind of attention, without what differs between them.
pub(super) fn modules(attn_type: u64) -> Vec<Rule> {
    let mut rules = MODULES.to_vec();
    // Unknown kinds are refused with the configuration.
    rules.extend(POSITIONS.get(attn_type as usize).copied().unwrap_or_default());
    rules
}

/// Biases of one table for all clusters that are stored cluster by cluster.
pub(super) const JOINED_BIASES: Rule =
    rule("transformer/adaptive_softmax/cutoff_{i}/b", "crit.out_layers.0.bias", Join);

/// What the PyTorch programs' other kinds of attention mean here: adjusts the configuration, or says why the model
/// has no equal here.
pub(super) fn adjust_attention(facts: &mut Facts) -> Result<(), String> {
    let Facts { config, notes, .. } = facts;
    let number = |name: &str| config.get(name).and_then(Value::as_i64).unwrap_or(0);
    let (kind, mem_len, clamp_len, max_klen) =
        (number("attn_type"), number("mem_len"), number("clamp_len"), number("max_klen"));
    notes.push(match kind {
        0 => "its memory starts empty; Hugging Face's model starts from zeros and gives the first tokens other losses",
        _ => "Hugging Face's package has no such attention; only this program runs the model",
    }.into());
    match kind {
        1 if clamp_len == 1 => {
            return Err("its clamp_len of 1 gives all distances one row; no model here computes the same".into());
        }
        1 if clamp_len > 1 => {
            // The program keeps that many rows, the first of them for distance clamp_len - 1.
            config.insert("clamp_len".into(), json!(clamp_len - 1));
            notes.push(format!("clamp_len {clamp_len} keeps that many rows of Shaw's table: clamp_len {} here", clamp_len - 1));
        }
        2 => {
            return Err("its absolute sinusoids (attn_type 2) count from the end of the segment and enter the memory \
                        twice; no model here computes the same"
                .into());
        }
        3 if mem_len > 0 => {
            return Err("its learned positions (attn_type 3) enter the memory twice; no model here computes the same. \
                        Models without memory (mem_len 0) can be converted"
                .into());
        }
        3 if config.get("pre_lnorm") == Some(&json!(true)) => {
            return Err("its attention of type 3 normalises keys and values, not queries, under pre_lnorm; no model \
                        here computes the same"
                .into());
        }
        3 => notes.push(format!(
            "its table of positions ends with the newest token, here it begins with the oldest: both are the same for \
             segments of {max_klen} tokens"
        )),
        _ => {}
    }
    Ok(())
}
