//! The table of XLNet's TensorFlow program read from right to left.

use std::collections::BTreeMap;

use segue_configs::{Activation, AttentionDirection, XlnetConfig};
use serde_json::{Map, Value, json};
use tch::Tensor;

use super::invert::{stacked, variable};
use super::rules::{Operation, fill, fit};
use super::sources::{CHOICE, CLASSIFICATION, REGRESSION, tensorflow_xlnet_rules};
use super::write::TensorFlowFiles;

const PREFIX: &str = "xlnet_model.ckpt";
const CONFIGURATION: &str = "xlnet_config.json";
/// Beginning of the layer whose scope depends on the task.
const SCORES: &str = "logits_proj.";
/// The task of a head that nobody has named.
const UNNAMED_TASK: &str = "task";
/// LayerNorm's ε in TensorFlow's contrib layers.
const EPSILON: f64 = 1e-12;

/// The model's weights, those of heads among them, under the TensorFlow program's names, or why it has no place for
/// them. `head`: what `config.json` says of the head.
pub(super) fn to_tensorflow(
    model: &XlnetConfig,
    weights: &[(String, Tensor)],
    head: &Map<String, Value>,
) -> Result<TensorFlowFiles, String> {
    let rules = tensorflow_xlnet_rules(model.untie_r);
    let scope = scope_of_scores(head);
    let mut out = Vec::new();
    let mut stacks: BTreeMap<&str, Vec<(u64, Tensor)>> = BTreeMap::new();
    for (name, tensor) in weights {
        let transposed = || tensor.transpose(0, 1).contiguous();
        match name.strip_prefix(SCORES) {
            Some("weight") => {
                out.push(variable(format!("{scope}/kernel"), &transposed()));
                continue;
            }
            Some(_) => {
                out.push(variable(format!("{scope}/bias"), tensor));
                continue;
            }
            None => {}
        }
        let lines = rules.iter().filter(|rule| !matches!(rule.operation, Operation::Skip(_)));
        let mut fitting =
            lines.filter_map(|rule| Some((rule, fit(&rule.destination.replace("{n}", "{i}"), name)?)));
        let (rule, number) = fitting.next().ok_or_else(|| format!("it has no place for `{name}`"))?;
        match rule.operation {
            Operation::Copy => out.push(variable(fill(rule.source, "{i}", number), tensor)),
            Operation::Transpose => out.push(variable(fill(rule.source, "{i}", number), &transposed())),
            Operation::Slice => stacks.entry(rule.source).or_default().push((number, tensor.shallow_clone())),
            _ => return Err(format!("it has no place for `{name}`")),
        }
    }
    out.extend(stacks.into_iter().map(|(name, layers)| stacked(name, layers)));
    Ok(TensorFlowFiles {
        prefix: PREFIX,
        variables: out,
        beside: (CONFIGURATION, configuration(model)),
        notes: notes(model),
    })
}

/// Where the program keeps the layer that scores a sequence.
fn scope_of_scores(head: &Map<String, Value>) -> String {
    let says = |key: &str, value: &str| head.get(key).is_some_and(|found| found.to_string().contains(value));
    if says("architectures", "MultipleChoice") {
        return CHOICE.into();
    }
    let task = head.get("finetuning_task").and_then(Value::as_str).unwrap_or(UNNAMED_TASK).to_lowercase();
    let pattern = if says("problem_type", "regression") { REGRESSION } else { CLASSIFICATION };
    pattern.replace("{*}", &task)
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
