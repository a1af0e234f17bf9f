//! The table of XLNet's program.

use std::collections::BTreeMap;

use segue_configs::ModelConfig;
use segue_family::own;
use segue_foreign::BundleTensor;
use segue_xlnet::{Activation, AttentionDirection, XlnetConfig};
use serde_json::{Map, Value, json};
use tch::Tensor;

use super::{Program, stacked, variable};
use crate::head::TensorFlowHead;
use crate::rules::{Operation, Rule, fill, fit};
use crate::sources::tensorflow_xlnet_rules;
use crate::write::TensorFlowFiles;

const PREFIX: &str = "xlnet_model.ckpt";
const CONFIGURATION: &str = "xlnet_config.json";
/// Beginning of the layer whose scope depends on the task.
const SCORES: &str = "logits_proj.";
const SCORES_BIAS: &str = "logits_proj.bias";
/// LayerNorm's ε in TensorFlow's contrib layers.
const EPSILON: f64 = 1e-12;

/// The program of Yang et al. 2019.
pub(super) struct Xlnet;

impl Program for Xlnet {
    fn scope_of_scores(
        &self,
        heads: &[(String, Tensor)],
        asked: Option<&TensorFlowHead>,
        said: &Map<String, Value>,
    ) -> Result<Option<String>, String> {
        let scores = heads.iter().find(|(name, _)| name == SCORES_BIAS).map(|(_, bias)| bias.numel() as i64);
        let Some(outputs) = scores else {
            return match asked {
                None => Ok(None),
                Some(_) => Err("it has no layer that scores a sequence, which --head is the name of".into()),
            };
        };
        let head = match asked {
            Some(head) => head.clone(),
            None => TensorFlowHead::described(said, outputs)?,
        };
        head.scope(outputs).map(Some)
    }

    fn knows(&self, model: &ModelConfig, name: &str) -> Option<bool> {
        let model: &XlnetConfig = own(model);
        Some(name.starts_with(SCORES) || place(&tensorflow_xlnet_rules(model.untie_r), name).is_some())
    }

    fn variables(
        &self,
        model: &ModelConfig,
        weights: &[(String, Tensor)],
        scope: Option<&str>,
    ) -> Result<Vec<BundleTensor>, String> {
        let model: &XlnetConfig = own(model);
        let rules = tensorflow_xlnet_rules(model.untie_r);
        let mut out = Vec::new();
        let mut stacks: BTreeMap<&str, Vec<(u64, Tensor)>> = BTreeMap::new();
        for (name, tensor) in weights {
            let transposed = || tensor.transpose(0, 1).contiguous();
            if let (Some(part), Some(scope)) = (name.strip_prefix(SCORES), scope) {
                out.push(match part {
                    "weight" => variable(format!("{scope}/kernel"), &transposed()),
                    _ => variable(format!("{scope}/bias"), tensor),
                });
                continue;
            }
            let (rule, number) =
                place(&rules, name).ok_or_else(|| format!("it has no place for `{name}`"))?;
            match rule.operation {
                Operation::Copy => out.push(variable(fill(rule.source, "{i}", number), tensor)),
                Operation::Transpose => out.push(variable(fill(rule.source, "{i}", number), &transposed())),
                Operation::Slice => {
                    stacks.entry(rule.source).or_default().push((number, tensor.shallow_clone()))
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
        let model: &XlnetConfig = own(model);
        TensorFlowFiles {
            prefix: PREFIX,
            variables,
            beside: (CONFIGURATION, configuration(model)),
            notes: notes(model),
        }
    }
}

/// The line that leads to a parameter, and the number in its name.
fn place<'a>(rules: &'a [Rule], name: &str) -> Option<(&'a Rule, u64)> {
    let lines = rules.iter().filter(|rule| !matches!(rule.operation, Operation::Skip(_)));
    let mut fitting =
        lines.filter_map(|rule| Some((rule, fit(&rule.destination.replace("{n}", "{i}"), name)?)));
    fitting.next()
}

/// The eight keys that the program reads.
fn configuration(model: &XlnetConfig) -> Value {
    json!({
        "d_head": model.head_width(),
        "d_inner": model.d_inner,
        "d_model": model.d_model,
        "ff_activation": if model.ff_activation == Activation::Relu { "relu" } else { "gelu" },
        "n_head": model.n_head,
        "n_layer": model.n_layer,
        "n_token": model.vocab_size,
        "untie_r": model.untie_r,
    })
}

/// What neither variables nor configuration tell the program.
fn notes(model: &XlnetConfig) -> Vec<String> {
    let attention = if model.attn_type == AttentionDirection::Uni { "uni" } else { "bi" };
    let mut notes = vec![format!(
        "flags of the program for it: --mem_len={} --reuse_len={} --clamp_len={} --same_length={} --dropout={} \
         --dropatt={}; attention is {attention}",
        model.mem_len, model.reuse_len, model.clamp_len, model.same_length, model.dropout, model.dropatt
    )];
    if model.ff_activation == Activation::Gelu {
        notes.push(
            "its gelu is exact, the program's is the tanh form: results differ in the third digit".into(),
        );
    }
    if model.layer_norm_eps != EPSILON {
        notes.push(format!("its layer_norm_eps is {:e}, the program's is {EPSILON:e}", model.layer_norm_eps));
    }
    notes
}
