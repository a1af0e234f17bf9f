//! The table of Transformer-XL's program.

use std::collections::BTreeMap;

use segue_configs::ModelConfig;
use segue_family::own;
use segue_foreign::BundleTensor;
use segue_transfo_xl::TransfoXlConfig;
use serde_json::{Map, Value, json};
use tch::Tensor;

use super::{Program, stacked, variable};
use crate::head::TensorFlowHead;
use crate::rules::{Operation, Rule, fill, fit};
use crate::sources::tensorflow_rules;
use crate::write::TensorFlowFiles;

/// Prefix of the program's checkpoints.
const PREFIX: &str = "model.ckpt";
/// What the program has noted about its corpus, and asks for.
const PREPARED: &str = "corpus-info.json";

/// The program of Dai et al. 2019.
pub(super) struct TransformerXl;

impl Program for TransformerXl {
    fn scope_of_scores(
        &self,
        _: &[(String, Tensor)],
        asked: Option<&TensorFlowHead>,
        _: &Map<String, Value>,
    ) -> Result<Option<String>, String> {
        match asked {
            Some(_) => Err("it is a Transformer-XL, and --head is of an XLNet".into()),
            None => Ok(None),
        }
    }

    fn knows(&self, _: &ModelConfig, _: &str) -> Option<bool> {
        None
    }

    fn variables(
        &self,
        model: &ModelConfig,
        weights: &[(String, Tensor)],
        _: Option<&str>,
    ) -> Result<Vec<BundleTensor>, String> {
        let model: &TransfoXlConfig = own(model);
        expressible(model)?;
        let one_table = model.div_val == 1 || model.cutoffs.is_empty();
        let rules = tensorflow_rules(one_table, model.untie_r);
        let mut out = Vec::new();
        let mut stacks: BTreeMap<&str, Vec<(u64, Tensor)>> = BTreeMap::new();
        for (name, tensor) in weights {
            let plain = model.cutoffs.is_empty();
            let found = rules.iter().find_map(|rule| place(rule, name, plain));
            let (rule, number) = found.ok_or_else(|| format!("it has no place for `{name}`"))?;
            match rule.operation {
                Operation::Copy => out.push(variable(fill(rule.source, "{i}", number), tensor)),
                Operation::Transpose => {
                    out.push(variable(
                        fill(rule.source, "{i}", number),
                        &tensor.transpose(0, 1).contiguous(),
                    ));
                }
                Operation::Slice => {
                    stacks.entry(rule.source).or_default().push((number, tensor.shallow_clone()))
                }
                Operation::Join => {
                    for (i, ends) in model.cluster_ends().windows(2).enumerate() {
                        let piece = tensor.narrow(0, ends[0] as i64, (ends[1] - ends[0]) as i64).contiguous();
                        out.push(variable(fill(rule.source, "{i}", i as u64), &piece));
                    }
                }
                _ => return Err(format!("it has no place for `{name}`")),
            }
        }
        for (name, layers) in stacks {
            out.push(stacked(name, layers, model.n_layer)?);
        }
        Ok(out)
    }

    fn files(&self, model: &ModelConfig, variables: Vec<BundleTensor>) -> TensorFlowFiles {
        let model: &TransfoXlConfig = own(model);
        let cutoffs: Vec<usize> = if model.cutoffs.is_empty() { Vec::new() } else { model.cluster_ends() };
        let info = json!({ "vocab_size": model.vocab_size, "cutoffs": cutoffs, "dataset": "converted" });
        TensorFlowFiles {
            prefix: PREFIX,
            variables,
            beside: (PREPARED, info),
            notes: vec![format!("flags of the program for it: {}", flags(model))],
        }
    }
}

/// The line that leads to a parameter, and the number in its name. One softmax has one bias; clusters have theirs.
fn place<'a>(rule: &'a Rule, name: &str, plain: bool) -> Option<(&'a Rule, u64)> {
    if matches!(rule.operation, Operation::Skip(_)) {
        return None;
    }
    let whole_bias = rule.source.ends_with("adaptive_softmax/bias");
    if rule.destination == "crit.out_layers.0.bias" && whole_bias != plain {
        return None;
    }
    if rule.destination == "crit.out_layers.{i}.bias" && plain {
        return None;
    }
    let pattern = rule.destination.replace("{n}", "{i}");
    fit(&pattern, name).map(|number| (rule, number))
}

/// What the TensorFlow program cannot be told.
fn expressible(model: &TransfoXlConfig) -> Result<(), String> {
    let all = model.cutoffs.len() + 1;
    let tied: Vec<bool> = (0..all).map(|i| model.ties_projection(i)).collect();
    let projects = model.embed_width() != model.d_model;
    let all_but_first = !tied[0] && tied[1..].iter().all(|tied| *tied);
    let attention = serde_json::to_value(model).ok().and_then(|c| c["attn_type"].as_u64());
    if attention != Some(0) {
        return Err("it knows relative attention only (model.attn_type 0)".into());
    }
    if model.pre_lnorm {
        return Err("it normalises after each block, this model before (model.pre_lnorm)".into());
    }
    if !model.tie_word_embeddings {
        return Err("its output tables are always the embeddings (model.tie_word_embeddings)".into());
    }
    if model.cutoffs.is_empty() && projects && !tied[0] {
        return Err("without cutoffs its projections are always tied (model.tie_projs)".into());
    }
    if model.cutoffs.is_empty() && model.div_val > 1 && model.proj_same_dim && !projects {
        return Err("without cutoffs it has no projection of the model's width (model.div_val)".into());
    }
    if !model.cutoffs.is_empty() && !all_but_first && tied.iter().any(|tied| *tied) {
        return Err("it ties either no projection or all but the first (model.tie_projs)".into());
    }
    Ok(())
}

/// The command line that tells the program what its checkpoints do not say.
fn flags(model: &TransfoXlConfig) -> String {
    let share = !model.cutoffs.is_empty() && model.ties_projection(1);
    format!(
        "--n_layer={} --d_model={} --d_embed={} --n_head={} --d_head={} --d_inner={} --div_val={} --untie_r={} \
         --proj_share_all_but_first={share} --proj_same_dim={} --mem_len={} --clamp_len={} --same_length={}",
        model.n_layer,
        model.d_model,
        model.embed_width(),
        model.n_head,
        model.head_width(),
        model.d_inner,
        if model.cutoffs.is_empty() { 1 } else { model.div_val },
        model.untie_r,
        model.proj_same_dim,
        model.mem_len,
        model.clamp_len,
        model.same_length
    )
}
