//! Checkpoints of zihangdai/xlnet, TensorFlow. Sizes follow from the shapes of the variables; `xlnet_config.json`
//! beside them must agree and adds the activation. Options of the training's command line are not recorded.

use std::path::{Path, PathBuf};

use Operation::{Copy, Slice, Transpose};
use segue_foreign::{Bundle, BundleEntry};
use segue_kernels::TrainError;
use segue_publish::read_regular_text;
use serde_json::{Map, Value, json};

use super::facts::Facts;
use super::search::folder_of;
use super::source::Source;
use crate::optimizer::ADAM;
use crate::rules::{Operation, Rule, captured, rule, skip};

/// Names that its configuration has: of released checkpoints, and of a training run.
const CONFIGURATIONS: [&str; 2] = ["xlnet_config.json", "config.json"];
/// Hugging Face's key for names of labels by their numbers.
pub const LABELS: &str = "id2label";
const VOCABULARY: &str = "spiece.model";
const TABLE: &str = "model/transformer/word_embedding/lookup_table";
/// LayerNorm's ε in TensorFlow's contrib layers.
const EPSILON: f64 = 1e-12;
/// Memory and reused tokens of the published training (Yang 2019, §2.2.3; XLNet's page); checkpoints do not say.
const USUAL_MEM_LEN: usize = 384;
const USUAL_REUSE_LEN: usize = 256;

/// Scopes of the layer that scores a whole sequence, by task.
pub const CLASSIFICATION: &str = "model/classification_{*}/logit";
pub const REGRESSION: &str = "model/regression_{*}/logit";
pub const CHOICE: &str = "logits/dense";

/// The lines that do not depend on ties. `sequnece` is how the program spells it.
const LINES: &[Rule] = &[
    skip("{*}/Adam", ADAM),
    skip("{*}/Adam_1", ADAM),
    skip("{*}/adam_m", ADAM),
    skip("{*}/adam_v", ADAM),
    skip("beta1_power", ADAM),
    skip("beta2_power", ADAM),
    skip("global_step", "a counter"),
    skip("model/sequnece_summary/summary_bias", ATTENTIVE),
    skip("model/sequnece_summary/abs_attn/{*}", ATTENTIVE),
    rule(TABLE, "transformer.word_embedding.weight", Copy),
    rule("model/transformer/mask_emb/mask_emb", "transformer.mask_emb", Copy),
    rule("model/transformer/seg_embed", "transformer.layer.{n}.rel_attn.seg_embed", Slice),
    rule("model/transformer/layer_{i}/rel_attn/q/kernel", "transformer.layer.{i}.rel_attn.q", Copy),
    rule("model/transformer/layer_{i}/rel_attn/k/kernel", "transformer.layer.{i}.rel_attn.k", Copy),
    rule("model/transformer/layer_{i}/rel_attn/v/kernel", "transformer.layer.{i}.rel_attn.v", Copy),
    rule("model/transformer/layer_{i}/rel_attn/r/kernel", "transformer.layer.{i}.rel_attn.r", Copy),
    rule("model/transformer/layer_{i}/rel_attn/o/kernel", "transformer.layer.{i}.rel_attn.o", Copy),
    rule(
        "model/transformer/layer_{i}/rel_attn/LayerNorm/gamma",
        "transformer.layer.{i}.rel_attn.layer_norm.weight",
        Copy,
    ),
    rule(
        "model/transformer/layer_{i}/rel_attn/LayerNorm/beta",
        "transformer.layer.{i}.rel_attn.layer_norm.bias",
        Copy,
    ),
    rule(
        "model/transformer/layer_{i}/ff/layer_1/kernel",
        "transformer.layer.{i}.ff.layer_1.weight",
        Transpose,
    ),
    rule("model/transformer/layer_{i}/ff/layer_1/bias", "transformer.layer.{i}.ff.layer_1.bias", Copy),
    rule(
        "model/transformer/layer_{i}/ff/layer_2/kernel",
        "transformer.layer.{i}.ff.layer_2.weight",
        Transpose,
    ),
    rule("model/transformer/layer_{i}/ff/layer_2/bias", "transformer.layer.{i}.ff.layer_2.bias", Copy),
    rule(
        "model/transformer/layer_{i}/ff/LayerNorm/gamma",
        "transformer.layer.{i}.ff.layer_norm.weight",
        Copy,
    ),
    rule("model/transformer/layer_{i}/ff/LayerNorm/beta", "transformer.layer.{i}.ff.layer_norm.bias", Copy),
    rule("model/lm_loss/weight", "lm_loss.weight", Copy),
    rule("model/lm_loss/bias", "lm_loss.bias", Copy),
    rule("model/sequnece_summary/summary/kernel", "sequence_summary.summary.weight", Transpose),
    rule("model/sequnece_summary/summary/bias", "sequence_summary.summary.bias", Copy),
    rule("start_logits/dense/kernel", "start_logits.dense.weight", Transpose),
    rule("start_logits/dense/bias", "start_logits.dense.bias", Copy),
    rule("end_logits/dense_0/kernel", "end_logits.dense_0.weight", Transpose),
    rule("end_logits/dense_0/bias", "end_logits.dense_0.bias", Copy),
    rule("end_logits/LayerNorm/gamma", "end_logits.LayerNorm.weight", Copy),
    rule("end_logits/LayerNorm/beta", "end_logits.LayerNorm.bias", Copy),
    rule("end_logits/dense_1/kernel", "end_logits.dense_1.weight", Transpose),
    rule("end_logits/dense_1/bias", "end_logits.dense_1.bias", Copy),
    rule("answer_class/dense_0/kernel", "answer_class.dense_0.weight", Transpose),
    rule("answer_class/dense_0/bias", "answer_class.dense_0.bias", Copy),
    rule("answer_class/dense_1/kernel", "answer_class.dense_1.weight", Transpose),
];
/// Variables of a summary by attention.
const ATTENTION: &str = "model/sequnece_summary/abs_attn/";
/// What reads a summary.
const SUMMED_UP: [&str; 2] = ["sequence_summary.", "logits_proj."];
const ATTENTIVE: &str = "a summary by attention, which no model here has; the head has to be trained anew";

/// The table. With `untie_r` u, v and b are stacks of all layers'.
pub fn rules(untie_r: bool) -> Vec<Rule> {
    let mut rules = LINES.to_vec();
    rules.extend([
        rule("model/classification_{*}/logit/kernel", "logits_proj.weight", Transpose),
        rule("model/classification_{*}/logit/bias", "logits_proj.bias", Copy),
        rule("model/regression_{*}/logit/kernel", "logits_proj.weight", Transpose),
        rule("model/regression_{*}/logit/bias", "logits_proj.bias", Copy),
        rule("logits/dense/kernel", "logits_proj.weight", Transpose),
        rule("logits/dense/bias", "logits_proj.bias", Copy),
    ]);
    rules.extend(match untie_r {
        true => [
            rule("model/transformer/r_w_bias", "transformer.layer.{n}.rel_attn.r_w_bias", Slice),
            rule("model/transformer/r_r_bias", "transformer.layer.{n}.rel_attn.r_r_bias", Slice),
            rule("model/transformer/r_s_bias", "transformer.layer.{n}.rel_attn.r_s_bias", Slice),
        ],
        false => [
            rule("model/transformer/r_w_bias", "transformer.r_w_bias", Copy),
            rule("model/transformer/r_r_bias", "transformer.r_r_bias", Copy),
            rule("model/transformer/r_s_bias", "transformer.r_s_bias", Copy),
        ],
    });
    rules
}

/// Whether a checkpoint is this program's.
pub fn is_xlnet(bundle: &Bundle) -> bool {
    bundle.entries().iter().any(|entry| entry.name.starts_with("model/transformer/"))
}

/// The source that an opened checkpoint is.
pub fn open(bundle: Bundle) -> Result<Source, TrainError> {
    let folder = folder_of(&bundle.index).to_path_buf();
    let damaged = |what: String| TrainError::Damaged { path: bundle.index.clone(), what };
    let mut facts = Facts::of(infer(bundle.entries()).map_err(damaged)?);
    if facts.config["untie_r"] == json!(false) {
        facts.notes.push(
            "its biases are tied; the folder holds a copy for each layer, as Hugging Face has them".into(),
        );
    }
    let said = configuration(&folder)?;
    activation(said.as_ref(), &mut facts)?;
    for (key, value) in
        [("model_type", json!("xlnet")), ("layer_norm_eps", json!(EPSILON)), ("memory_start", json!("zeros"))]
    {
        facts.put(key, value);
    }
    const PUBLISHED: &str = "the checkpoint does not say; that of the published training";
    facts.guess("mem_len", USUAL_MEM_LEN, PUBLISHED);
    facts.guess("reuse_len", USUAL_REUSE_LEN, PUBLISHED);
    facts.leave(&["clamp_len", "dropout", "dropatt"], PUBLISHED);
    let mut rules = rules(facts.config["untie_r"] == json!(true));
    let attentive = bundle.entries().iter().any(|entry| entry.name.starts_with(ATTENTION));
    if attentive {
        // What reads the summary is worth nothing without it.
        let of_summary = |rule: &&mut Rule| SUMMED_UP.iter().any(|start| rule.destination.starts_with(start));
        rules.iter_mut().filter(of_summary).for_each(|rule| rule.operation = Operation::Skip(ATTENTIVE));
    } else {
        head(bundle.entries(), labels(said), &mut facts);
    }
    let vocabulary = Some(folder.join(VOCABULARY)).filter(|path| path.is_file());
    Ok(Source::of_bundle(bundle, facts, rules, vocabulary))
}

/// Sizes in Hugging Face's words, from names and shapes.
fn infer(entries: &[BundleEntry]) -> Result<Map<String, Value>, String> {
    let shape = |name: &str| {
        let entry = entries.iter().find(|entry| entry.name == name);
        entry.map(|entry| entry.shape.as_slice())
    };
    let wanted = |name: &str| {
        shape(name).ok_or_else(|| {
            format!("it has no variable `{name}`: is it a checkpoint of the TensorFlow XLNet?")
        })
    };
    let in_layer = |i: usize, name: &str| format!("model/transformer/layer_{i}/{name}");
    let n_layer = (0..).take_while(|i| shape(&in_layer(*i, "rel_attn/q/kernel")).is_some()).count();
    let wrong = |name: &str, found: &[usize]| format!("`{name}` is {found:?}, which no XLNet has");
    let q = in_layer(0, "rel_attn/q/kernel");
    let &[d_model, n_head, d_head] = wanted(&q)? else { return Err(wrong(&q, wanted(&q)?)) };
    let inner = in_layer(0, "ff/layer_1/kernel");
    let &[_, d_inner] = wanted(&inner)? else { return Err(wrong(&inner, wanted(&inner)?)) };
    let &[vocab_size, _] = wanted(TABLE)? else { return Err(wrong(TABLE, wanted(TABLE)?)) };
    let bias = "model/transformer/r_w_bias";
    let untie_r = match *wanted(bias)? {
        [layers, _, _] if layers == n_layer => true,
        [_, _] => false,
        ref other => return Err(format!("`{bias}` is {other:?} in a model of {n_layer} layers")),
    };
    let sizes = [
        ("vocab_size", json!(vocab_size)),
        ("d_model", json!(d_model)),
        ("n_layer", json!(n_layer)),
        ("n_head", json!(n_head)),
        ("d_head", json!(d_head)),
        ("d_inner", json!(d_inner)),
        ("untie_r", json!(untie_r)),
    ];
    Ok(sizes.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

/// The non-linearity that the program's configuration names, in Hugging Face's words: its `gelu` is the tanh form,
/// which that package calls `gelu_new`. Everything else that it says must agree with the variables.
fn activation(said: Option<&Said>, facts: &mut Facts) -> Result<(), TrainError> {
    const KEY: &str = "ff_activation";
    let Some(Said { path, fields: said }) = said else {
        let why =
            format!("there is no {} beside the checkpoint; that of the released models", CONFIGURATIONS[0]);
        facts.guess(KEY, "gelu_new", &why);
        return Ok(());
    };
    for (key, found) in &facts.config {
        let theirs = if key == "vocab_size" { "n_token" } else { key };
        if let Some(value) = said.get(theirs)
            && value != found
        {
            let what = format!("{theirs} is {value}, and the variables of the checkpoint say {found}");
            return Err(TrainError::Damaged { path: path.clone(), what });
        }
    }
    match said.get(KEY).and_then(Value::as_str) {
        Some("gelu") => facts.put(KEY, "gelu_new"),
        Some("relu") => facts.put(KEY, "relu"),
        other => {
            let what = format!("{KEY} is {other:?}; the program knows `gelu` and `relu`");
            return Err(TrainError::Damaged { path: path.clone(), what });
        }
    }
    Ok(())
}

/// The program's configuration.
struct Said {
    path: PathBuf,
    fields: Map<String, Value>,
}

/// The program's configuration, where there is one. A `config.json` of Hugging Face is not one.
fn configuration(folder: &Path) -> Result<Option<Said>, TrainError> {
    for path in CONFIGURATIONS.map(|name| folder.join(name)) {
        if !path.is_file() {
            continue;
        }
        let text =
            read_regular_text(&path).map_err(|source| TrainError::Read { path: path.clone(), source })?;
        let fields: Map<String, Value> = serde_json::from_str(&text)
            .map_err(|e| TrainError::Damaged { path: path.clone(), what: e.to_string() })?;
        if fields.contains_key("n_token") && !fields.contains_key("model_type") {
            return Ok(Some(Said { path, fields }));
        }
    }
    Ok(None)
}

/// Names of labels by their numbers, where a conversion from here has left them in the program's configuration.
fn labels(said: Option<Said>) -> Map<String, Value> {
    let names = said.and_then(|mut said| said.fields.remove(LABELS));
    names.and_then(|names| names.as_object().cloned()).unwrap_or_default()
}

/// Adds what Hugging Face's `config.json` says of the head that is in the checkpoint. `known`: names of its labels by their numbers.
fn head(entries: &[BundleEntry], known: Map<String, Value>, facts: &mut Facts) {
    let mut say = |key: &str, value: Value| _ = facts.head.insert(key.into(), value);
    let of_scope = |scope: &str| {
        let pattern = format!("{scope}/bias");
        let found = entries.iter().find_map(|entry| Some((captured(&pattern, &entry.name)?, entry)));
        found.map(|(task, entry)| (task.to_string(), entry.shape.first().copied().unwrap_or(1)))
    };
    let (architecture, labels) = if let Some((task, classes)) = of_scope(CLASSIFICATION) {
        say("finetuning_task", json!(task));
        say("problem_type", json!("single_label_classification"));
        ("XLNetForSequenceClassification", classes)
    } else if let Some((task, numbers)) = of_scope(REGRESSION) {
        say("finetuning_task", json!(task));
        say("problem_type", json!("regression"));
        ("XLNetForSequenceClassification", numbers)
    } else if of_scope(CHOICE).is_some() {
        ("XLNetForMultipleChoice", 0)
    } else if of_scope("start_logits/dense").is_some() {
        say("architectures", json!(["XLNetForQuestionAnswering"]));
        return;
    } else {
        return;
    };
    say("architectures", json!([architecture]));
    facts.guess_of_head(
        "summary_type",
        "last",
        "the checkpoint does not say; the program's default, which config.json may say otherwise",
    );
    if labels > 0 {
        name_labels(labels, known, facts);
    }
}

/// Names of labels, those that are `known` by their numbers or their numbers.
fn name_labels(labels: usize, known: Map<String, Value>, facts: &mut Facts) {
    let by_number = || (0..labels).map(|i| known.get(&i.to_string())?.as_str().map(String::from));
    let told = by_number().collect::<Option<Vec<String>>>().filter(|_| known.len() == labels);
    let is_guess = told.is_none() && labels > 1;
    let names = told.unwrap_or_else(|| (0..labels).map(|i| format!("LABEL_{i}")).collect());
    let named = names.iter().enumerate().map(|(i, name)| (i.to_string(), json!(name)));
    let named = Value::Object(named.collect());
    if is_guess {
        let why = format!(
            "the checkpoint does not name its labels: they are LABEL_0 to LABEL_{}, which id2label and label2id of config.json may say \
             otherwise",
            labels - 1
        );
        facts.guess_of_head(LABELS, named, &why);
    } else {
        facts.head.insert(LABELS.into(), named);
    }
    let numbers = names.iter().enumerate().map(|(i, name)| (name.clone(), json!(i)));
    facts.head.insert("label2id".into(), Value::Object(numbers.collect()));
}
