//! XLNet in folders of Hugging Face's `transformers`, the base model's included, whose names lack a prefix.

use segue_kernels::TrainError;
use serde_json::{Map, Value, json};

use super::source::Source;
use crate::rules::{Operation, Rule, fit, rule};

/// Names of the base model.
const BASE: &[(&str, &str)] = &[
    ("word_embedding.weight", "transformer.word_embedding.weight"),
    ("mask_emb", "transformer.mask_emb"),
    ("r_w_bias", "transformer.r_w_bias"),
    ("r_r_bias", "transformer.r_r_bias"),
    ("r_s_bias", "transformer.r_s_bias"),
    ("layer.{i}.rel_attn.q", "transformer.layer.{i}.rel_attn.q"),
    ("layer.{i}.rel_attn.k", "transformer.layer.{i}.rel_attn.k"),
    ("layer.{i}.rel_attn.v", "transformer.layer.{i}.rel_attn.v"),
    ("layer.{i}.rel_attn.r", "transformer.layer.{i}.rel_attn.r"),
    ("layer.{i}.rel_attn.o", "transformer.layer.{i}.rel_attn.o"),
    ("layer.{i}.rel_attn.r_w_bias", "transformer.layer.{i}.rel_attn.r_w_bias"),
    ("layer.{i}.rel_attn.r_r_bias", "transformer.layer.{i}.rel_attn.r_r_bias"),
    ("layer.{i}.rel_attn.r_s_bias", "transformer.layer.{i}.rel_attn.r_s_bias"),
    ("layer.{i}.rel_attn.seg_embed", "transformer.layer.{i}.rel_attn.seg_embed"),
    ("layer.{i}.rel_attn.layer_norm.weight", "transformer.layer.{i}.rel_attn.layer_norm.weight"),
    ("layer.{i}.rel_attn.layer_norm.bias", "transformer.layer.{i}.rel_attn.layer_norm.bias"),
    ("layer.{i}.ff.layer_1.weight", "transformer.layer.{i}.ff.layer_1.weight"),
    ("layer.{i}.ff.layer_1.bias", "transformer.layer.{i}.ff.layer_1.bias"),
    ("layer.{i}.ff.layer_2.weight", "transformer.layer.{i}.ff.layer_2.weight"),
    ("layer.{i}.ff.layer_2.bias", "transformer.layer.{i}.ff.layer_2.bias"),
    ("layer.{i}.ff.layer_norm.weight", "transformer.layer.{i}.ff.layer_norm.weight"),
    ("layer.{i}.ff.layer_norm.bias", "transformer.layer.{i}.ff.layer_norm.bias"),
];
/// Names of outputs and heads.
const OUTPUTS: &[&str] = &[
    "lm_loss.weight",
    "lm_loss.bias",
    "sequence_summary.summary.weight",
    "sequence_summary.summary.bias",
    "logits_proj.weight",
    "logits_proj.bias",
    "classifier.weight",
    "classifier.bias",
    "qa_outputs.weight",
    "qa_outputs.bias",
    "start_logits.dense.weight",
    "start_logits.dense.bias",
    "end_logits.dense_0.weight",
    "end_logits.dense_0.bias",
    "end_logits.LayerNorm.weight",
    "end_logits.LayerNorm.bias",
    "end_logits.dense_1.weight",
    "end_logits.dense_1.bias",
    "answer_class.dense_0.weight",
    "answer_class.dense_0.bias",
    "answer_class.dense_1.weight",
];
/// Keys of `config.json` that no tensor shows and that change what is computed or trained.
pub const TOLD: &[&str] = &[
    "attn_type",
    "bi_data",
    "clamp_len",
    "dropout",
    "ff_activation",
    "layer_norm_eps",
    "mem_len",
    "reuse_len",
    "same_length",
];
/// Keys of `config.json` that belong to heads.
const HEAD_KEYS: &[&str] = &[
    "architectures",
    "finetuning_task",
    "problem_type",
    "num_labels",
    "id2label",
    "label2id",
    "start_n_top",
    "end_n_top",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_last_dropout",
    "task_specific_params",
    "use_mems_eval",
];

/// The table.
pub fn rules() -> Vec<Rule> {
    let base =
        BASE.iter().flat_map(|&(bare, name)| [bare, name].map(|found| rule(found, name, Operation::Copy)));
    base.chain(OUTPUTS.iter().map(|&name| rule(name, name, Operation::Copy))).collect()
}

/// What `config` says of a head.
pub fn head(config: &Map<String, Value>) -> Map<String, Value> {
    let known = HEAD_KEYS.iter().filter_map(|key| Some((key.to_string(), config.get(*key)?.clone())));
    known.filter(|(_, value)| !value.is_null()).collect()
}

/// Facts that the configuration hides. The package has biases for each layer whatever `untie_r` says; and what it
/// understands by `gelu` today is not what the released models were trained with.
pub fn interpret(source: &mut Source) -> Result<(), TrainError> {
    check_output(source)?;
    if source.facts.config.get("untie_r") == Some(&json!(false)) && !biases_equal(source)? {
        source.facts.config.insert("untie_r".into(), json!(true));
        source
            .facts
            .notes
            .push("its layers have different biases, so untie_r is true, whatever config.json says".into());
    }
    if source.facts.config.get("bi_data") == Some(&json!(true)) && source.kind == "hugging_face" {
        source.facts.notes.push(
            "bi_data is true: that package reads the second half of each batch backwards, here segue parity alone does"
                .into(),
        );
    }
    if source.facts.config.get("ff_activation") == Some(&json!("gelu")) && source.kind == "hugging_face" {
        source.facts.notes.push(
            "ff_activation `gelu` is read as Hugging Face reads it today, without approximation; the released \
             models were trained with its tanh form: model.ff_activation=gelu_new"
                .into(),
        );
    }
    Ok(())
}

/// Refuses an output table that is not the embeddings.
fn check_output(source: &Source) -> Result<(), TrainError> {
    let table = |name: &str| {
        source.variables.iter().find(|v| [name, &format!("transformer.{name}")].contains(&v.name.as_str()))
    };
    let (Some(input), Some(output)) = (table("word_embedding.weight"), table("lm_loss.weight")) else {
        return Ok(());
    };
    if source.facts.config.get("tie_word_embeddings") != Some(&json!(false))
        || source.load(input)? == source.load(output)?
    {
        return Ok(());
    }
    let what = "tie_word_embeddings is false and lm_loss.weight is not the embeddings, which it is in every XLNet here";
    Err(TrainError::OtherModel { path: source.path.clone(), what: what.into() })
}

fn biases_equal(source: &Source) -> Result<bool, TrainError> {
    for bias in ["r_w_bias", "r_r_bias", "r_s_bias"] {
        let names =
            ["layer.{i}.rel_attn.", "transformer.layer.{i}.rel_attn."].map(|start| format!("{start}{bias}"));
        let of_layers =
            source.variables.iter().filter(|v| names.iter().any(|name| fit(name, &v.name).is_some()));
        let layers = of_layers.map(|variable| source.load(variable)).collect::<Result<Vec<_>, _>>()?;
        if layers.windows(2).any(|pair| pair[0].size() != pair[1].size() || pair[0] != pair[1]) {
            return Ok(false);
        }
    }
    Ok(true)
}
