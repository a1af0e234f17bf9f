//! What `config.json` says of a fine-tuned model, in Hugging Face's keys.

use std::path::Path;

use segue_configs::{ModelConfig, Models};
use segue_language::encoders;
use segue_tasks::{Kind, TaskSummary};
use segue_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::head_spec::HeadSpec;

/// Key of `config.json` that names tasks, kinds and labels of all heads. Hugging Face's package keeps it and asks for
/// nothing of it.
const HEADS: &str = "segue_heads";

/// A summary of a state whose place Hugging Face's classes of XLNet do not give, which is the last then.
const LAST_BY_DEFAULT: &str = "cls_index";
/// Labels that Hugging Face means where nothing is said.
const UNNAMED_LABELS: u64 = 2;
/// More than any head has.
const MOST_UNNAMED: u64 = 1 << 20;

const KINDS: [(Kind, &str, &str); 6] = [
    (Kind::Classification, "classification", "ForSequenceClassification"),
    (Kind::Regression, "regression", "ForSequenceClassification"),
    (Kind::Choice, "choice", "ForMultipleChoice"),
    (Kind::Span, "span", "ForQuestionAnswering"),
    (Kind::Tagging, "tagging", "ForTokenClassification"),
    // No class of Hugging Face's ranks by words alone.
    (Kind::Ranking, "ranking", ""),
];

/// Whether a model folder is of a fine-tuned model, which has heads.
pub fn is_fine_tuned(folder: &Path) -> bool {
    let config = segue_publish::read_regular_text(folder.join("config.json")).unwrap_or_default();
    serde_json::from_str::<Value>(&config).is_ok_and(|config| config[HEADS].is_array())
}

/// What a kind of head is called.
pub fn kind_name(kind: Kind) -> &'static str {
    KINDS.iter().find(|(known, ..)| *known == kind).map_or("", |(_, name, _)| name)
}

/// `config.json` of a model with these heads. With one head on an XLNet, Hugging Face's package opens it as the
/// class that has this head; with several, as the model without heads. Of documents that are ranked there is no class: the
/// folder holds no encoder.
pub fn hugging_face_config(model: &ModelConfig, heads: &[HeadSpec]) -> Value {
    let mut config = segue_language::hugging_face_config(model);
    let described = heads.iter().map(|head| {
        let (kind, summary) = (kind_name(head.kind), head.summary);
        json!({ "task": head.task, "kind": kind, "labels": head.labels, "summary": summary })
    });
    config[HEADS] = described.collect();
    if heads.iter().all(|head| head.kind == Kind::Ranking) && !heads.is_empty() {
        config["architectures"] = json!([]);
        return config;
    }
    let (Some(names), Ok(family)) = (segue_language::names(model), encoders(model)) else { return config };
    let Some(plain) = names.hugging_face_class("Model") else { return config };
    let [head] = heads else {
        config["architectures"] = json!([plain]);
        return config;
    };
    let class = KINDS.iter().find(|(kind, ..)| *kind == head.kind).map_or("Model", |(.., class)| class);
    let class = names.hugging_face_class(class);
    config["architectures"] = json!([class]);
    // A sequence is answered as a whole. With a memory, pipelines there cannot take batches of an XLNet apart.
    config["use_mems_eval"] = json!(false);
    config["finetuning_task"] = json!(head.task);
    config["summary_type"] = json!(head.summary);
    config["summary_use_proj"] = json!(true);
    config["summary_activation"] = json!("tanh");
    config["summary_last_dropout"] = json!(family.head(model).dropout);
    let labels = match head.kind {
        Kind::Classification | Kind::Tagging => head.labels.clone(),
        _ => vec!["LABEL_0".to_string()],
    };
    let by_number = labels.iter().enumerate().map(|(i, label)| (i.to_string(), json!(label)));
    config["id2label"] = Value::Object(by_number.collect::<Map<_, _>>());
    let by_label = labels.iter().enumerate().map(|(i, label)| (label.clone(), json!(i)));
    config["label2id"] = Value::Object(by_label.collect::<Map<_, _>>());
    match head.kind {
        Kind::Classification => config["problem_type"] = json!("single_label_classification"),
        Kind::Regression => config["problem_type"] = json!("regression"),
        Kind::Span => (config["start_n_top"], config["end_n_top"]) = (json!(5), json!(5)),
        Kind::Choice | Kind::Tagging | Kind::Ranking => {}
    }
    config
}

/// The pipeline of Hugging Face's package that opens a folder of this model and answers as it does here; or why there is none.
pub fn pipeline(
    model: &ModelConfig,
    heads: &[HeadSpec],
    tokenizer: &Tokenizer,
) -> Result<&'static str, String> {
    let [head] = heads else {
        return Err("it has the heads of several tasks, and no class there has".into());
    };
    let pipeline = match head.kind {
        Kind::Classification | Kind::Regression => "text-classification",
        Kind::Tagging => "token-classification",
        Kind::Span => return Err("no pipeline there reads answers that are looked for on beams".into()),
        Kind::Choice => return Err("no pipeline there chooses among answers".into()),
        Kind::Ranking => return Err("no class there ranks documents".into()),
    };
    let names = segue_language::names(model).filter(|names| names.hugging_face_class("Model").is_some());
    let Some(names) = names else {
        return Err(format!("no class there has a head on a {}", model.model_type()));
    };
    if let Some(why) = names.closed_to_hugging_face(model) {
        return Err(why);
    }
    if head.summary == TaskSummary::Mean && pipeline == "text-classification" {
        return Err(
            "its mean over a sequence leaves padding out, and that of the class there does not".into()
        );
    }
    match tokenizer.for_sequences(None) {
        Some(_) => Ok(pipeline),
        None => Err(format!("no tokenizer.json cuts text as its {} tokenizer does", tokenizer.kind())),
    }
}

/// The heads that a `config.json` speaks of: of this program, or of Hugging Face's classes; or why they answer otherwise than any here.
pub fn heads_of(models: &Models, config: &Value) -> Result<Vec<HeadSpec>, String> {
    if let Some(heads) = config[HEADS].as_array() {
        let head = |head: &Value| {
            let (kind, ..) = KINDS.iter().find(|(_, name, _)| head["kind"] == *name)?;
            let labels = head["labels"].as_array()?.iter().filter_map(Value::as_str);
            let labels = labels.map(str::to_string).collect();
            let task = head["task"].as_str()?.into();
            Some(summary(&head["summary"]).map(|summary| HeadSpec { task, kind: *kind, labels, summary }))
        };
        let heads: Vec<HeadSpec> = heads.iter().filter_map(head).collect::<Result<_, String>>()?;
        return match &heads[..] {
            [one]
                if !one.labels.is_empty()
                    && config["id2label"].is_object()
                    && labels(config)? != one.labels =>
            {
                Err(format!("the labels of {HEADS} in its config.json are not those of id2label"))
            }
            _ => Ok(heads),
        };
    }
    let class = &config["architectures"][0];
    let is_class = |head: &str| {
        let known = models.types().iter().filter_map(|model| models.default_of(model.name));
        known
            .filter_map(|model| segue_language::names(&model))
            .any(|names| names.hugging_face_class(head).is_some_and(|name| *class == name))
    };
    let known = KINDS.iter().find(|(.., head)| !head.is_empty() && is_class(head));
    let Some((kind, ..)) = known else { return Ok(Vec::new()) };
    check_summary(*kind, config)?;
    let labels = labels(config)?;
    let kind = match kind {
        Kind::Classification if config["problem_type"] == "regression" || labels.len() == 1 => {
            Kind::Regression
        }
        kind => *kind,
    };
    let labels = if matches!(kind, Kind::Classification | Kind::Tagging) { labels } else { Vec::new() };
    let task = config["finetuning_task"].as_str().unwrap_or_default().to_string();
    // Where a head reads none, it matters to nobody.
    let summary = summary(&config["summary_type"]).unwrap_or_default();
    Ok(vec![HeadSpec { task, kind, labels, summary }])
}

/// Refuses a summary of sequences, or a loss, that Hugging Face's classes can be told to have and no head here has.
fn check_summary(kind: Kind, config: &Value) -> Result<(), String> {
    let known: &[(&str, &[&str])] = match kind {
        Kind::Classification | Kind::Choice => &[
            ("summary_type", &["last", LAST_BY_DEFAULT, "mean"]),
            ("summary_activation", &["tanh"]),
            ("summary_use_proj", &["true"]),
            ("summary_proj_to_labels", &["false", "null"]),
            ("problem_type", &["regression", "single_label_classification"]),
        ],
        _ => &[],
    };
    for (key, values) in known {
        let Some(value) = config.get(key) else { continue };
        let text = value.as_str().map_or_else(|| value.to_string(), String::from);
        // Says as much as if the key were not there.
        let unset = value.is_null() && *key == "problem_type";
        if !unset && !values.contains(&text.as_str()) {
            return Err(format!("its head has {key} = {text}, and those here have {}", values.join(" or ")));
        }
    }
    Ok(())
}

/// What `config.json` calls a summary; the last state where it says nothing.
fn summary(named: &Value) -> Result<TaskSummary, String> {
    if named.is_null() || *named == LAST_BY_DEFAULT {
        return Ok(TaskSummary::Last);
    }
    TaskSummary::deserialize(named)
        .map_err(|_| format!("its head has the summary {named}, and those here have last or mean"))
}

/// Names of labels in the order of their numbers; where none are given, as many as Hugging Face means. `id2label` has to name each number, and `label2id` to agree
/// with it.
fn labels(config: &Value) -> Result<Vec<String>, String> {
    let usual = |number: usize| format!("LABEL_{number}");
    let Some(named) = config["id2label"].as_object() else {
        let count = config["num_labels"].as_u64().unwrap_or(UNNAMED_LABELS).min(MOST_UNNAMED);
        return Ok((0..count as usize).map(usual).collect());
    };
    let label = |number: usize| {
        let label = named.get(&number.to_string()).and_then(Value::as_str).map(String::from);
        label.ok_or_else(|| {
            format!("id2label in its config.json has {} labels and none for {number}", named.len())
        })
    };
    let labels = (0..named.len()).map(label).collect::<Result<Vec<_>, _>>()?;
    let numbers = config["label2id"].as_object();
    // The package's own names mean that nobody has filled the table.
    let filled = numbers.filter(|numbers| !(0..numbers.len()).all(|i| numbers.contains_key(&usual(i))));
    let Some(numbers) = filled else { return Ok(labels) };
    let agrees =
        |(number, label): (usize, &String)| numbers.get(label).and_then(Value::as_u64) == Some(number as u64);
    match labels.iter().enumerate().find(|entry| !agrees(*entry)) {
        None if numbers.len() == labels.len() => Ok(labels),
        None => Err(format!(
            "label2id in its config.json has {} labels, id2label {}",
            numbers.len(),
            labels.len()
        )),
        Some((number, label)) => {
            let other = numbers.get(label).map_or("none".into(), Value::to_string);
            Err(format!("id2label in its config.json gives `{label}` the number {number}, label2id {other}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_testing::models;
    use segue_xlnet::XlnetConfig;

    use super::*;

    fn head(task: &str, kind: Kind, labels: &[&str]) -> HeadSpec {
        let labels = labels.iter().map(|l| l.to_string()).collect();
        let summary = if kind == Kind::Regression { TaskSummary::Mean } else { TaskSummary::Last };
        HeadSpec { task: task.into(), kind, labels, summary }
    }

    #[test]
    fn labels_by_number_and_numbers_by_label_have_to_agree() {
        let model = models::<XlnetConfig>().default_of("xlnet").unwrap();
        let own = hugging_face_config(&model, &[head("rte", Kind::Classification, &["a", "b"])]);
        assert_eq!(heads_of(models::<XlnetConfig>(), &own).unwrap()[0].labels, ["a", "b"]);
        let mut foreign = own.clone();
        foreign.as_object_mut().unwrap().remove(HEADS);
        for (key, value, why) in [
            ("label2id", json!({ "a": 1, "b": 0 }), Some("`a` the number 0, label2id 1")),
            ("label2id", json!({ "a": 0 }), Some("`b` the number 1, label2id none")),
            ("label2id", json!({ "a": 0, "b": 1, "c": 2 }), Some("3 labels, id2label 2")),
            ("label2id", json!({ "LABEL_0": 0, "LABEL_1": 1 }), None),
            ("label2id", json!({}), None),
            ("label2id", Value::Null, None),
            ("id2label", json!({ "0": "a", "2": "b" }), Some("none for 1")),
        ] {
            let mut config = foreign.clone();
            config[key] = value;
            match (heads_of(models::<XlnetConfig>(), &config), why) {
                (Ok(heads), None) => assert_eq!(heads[0].labels, ["a", "b"]),
                (Err(found), Some(part)) => assert!(found.contains(part), "{found}"),
                (found, _) => panic!("{key}: {}", found.is_ok()),
            }
        }
        let mut config = own;
        config["id2label"] = json!({ "0": "b", "1": "a" });
        config["label2id"] = json!({ "b": 0, "a": 1 });
        assert!(heads_of(models::<XlnetConfig>(), &config).unwrap_err().contains(HEADS));
    }

    #[test]
    fn a_head_that_sums_up_or_is_trained_otherwise_is_refused() {
        let model = models::<XlnetConfig>().default_of("xlnet").unwrap();
        let mut config = hugging_face_config(&model, &[head("rte", Kind::Classification, &["a", "b"])]);
        config.as_object_mut().unwrap().remove(HEADS);
        config["problem_type"] = Value::Null;
        assert_eq!(heads_of(models::<XlnetConfig>(), &config).unwrap().len(), 1);
        for (key, value) in [
            ("summary_type", json!("first")),
            ("summary_activation", Value::Null),
            ("summary_type", json!("attn")),
            ("summary_use_proj", json!(false)),
            ("summary_proj_to_labels", json!(true)),
            ("problem_type", json!("multi_label_classification")),
        ] {
            let mut config = config.clone();
            config[key] = value;
            assert!(heads_of(models::<XlnetConfig>(), &config).unwrap_err().contains(key), "{key}");
        }
        config["summary_type"] = json!("cls_index");
        assert_eq!(heads_of(models::<XlnetConfig>(), &config).unwrap()[0].summary, TaskSummary::Last);
        config["segue_heads"] =
            json!([{"task": "a", "kind": "classification", "labels": [], "summary": "first"}]);
        assert!(heads_of(models::<XlnetConfig>(), &config).unwrap_err().contains("first"));
    }

    #[test]
    fn heads_survive_config_json_and_hugging_faces_keys_alone() {
        let model = models::<XlnetConfig>().default_of("xlnet").unwrap();
        let heads = [
            head("mnli", Kind::Classification, &["contradiction", "entailment", "neutral"]),
            head("stsb", Kind::Regression, &[]),
            head("race", Kind::Choice, &[]),
            head("squad", Kind::Span, &[]),
            head("conll", Kind::Tagging, &["B-PER", "O"]),
            head("ranking", Kind::Ranking, &[]),
        ];
        assert_eq!(heads_of(models::<XlnetConfig>(), &hugging_face_config(&model, &heads)).unwrap(), heads);
        for head in heads.into_iter().filter(|head| head.kind != Kind::Ranking) {
            let mut config = hugging_face_config(&model, std::slice::from_ref(&head));
            config.as_object_mut().unwrap().remove(HEADS);
            assert_eq!(heads_of(models::<XlnetConfig>(), &config).unwrap(), [head]);
        }
        assert_eq!(
            heads_of(models::<XlnetConfig>(), &segue_language::hugging_face_config(&model)).unwrap(),
            []
        );
    }
}
