//! Adapters as a folder of their own, in the format of the public package `peft` 0.17: `adapter_config.json`, `adapter_model.safetensors`.

use std::collections::BTreeMap;
use std::path::Path;

use segue_configs::{ModelConfig, Models};
use segue_engine::checkpoint::{Contents, WEIGHTS, locate, publish_with_manifest, read_tensors};
use segue_kernels::TrainError;
use segue_language::{encoders, is_of_an_adapter};
use segue_publish::FreshFolder;
use segue_tasks::{Kind, TaskConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::Tensor;

use super::adapters::Adapters;
use super::encoder;
use super::folder::{TaskFolder, read_json};
use super::model::TaskModel;

/// Key of a model's `config.json` that tells the adapters added to it.
pub const ADAPTER: &str = "segue_adapter";
/// What the names in the file begin with: the package's wrapper around the model.
const PREFIX: &str = "base_model.model.";

/// What a model folder tells of the adapters that were added to its weights.
#[derive(Debug, Serialize, Deserialize)]
pub struct Added {
    rank: usize,
    alpha: f64,
    /// Name on the Hub of the model that they were added to, where it is known: a path means nothing elsewhere.
    base: Option<String>,
}

impl Added {
    /// Those of a run that begins with the model `base`.
    pub fn of(task: &TaskConfig, base: Option<&str>) -> Self {
        Self { rank: task.adapter_rank, alpha: task.adapter_alpha, base: base.map(String::from) }
    }
}

/// What is to be known of the adapters of a run before it begins: that the public format cannot hold them, where it cannot.
pub fn note_on_adapters(model: &ModelConfig, task: &TaskConfig) -> Result<Option<String>, TrainError> {
    let encoder = encoders(model)?.encoder_specs(model);
    let adapters = Adapters::of(task, &encoder);
    let bare = adapters.as_ref().and_then(Adapters::first_bare);
    Ok(bare.map(|bare| {
        format!(
            "`segue convert --adapter` cannot export these adapters, as `{bare}` belongs to no module: of an XLNet it exports \
             task.adapter_on='[\"ff\"]'"
        )
    }))
}

/// Writes the new folder `target` with the adapters of the fine-tuned model `source`, and its head, which is trained whole. Gives how many matrices are
/// adapted.
pub fn extract_adapter(models: &'static Models, source: &Path, target: &Path) -> Result<usize, TrainError> {
    let TaskFolder { folder, heads } = TaskFolder::open(models, source)?;
    let other = |what: String| TrainError::OtherModel { path: folder.path.clone(), what };
    let told = read_json(&folder.path.join("config.json"))?[ADAPTER].take();
    let added: Added = serde_json::from_value(told).map_err(|_| TrainError::Unsuited {
        path: folder.path.clone(),
        what: "has no adapters\nhint: train one with task.adapter_rank=8".into(),
    })?;
    let [head] = heads.as_slice() else {
        return Err(other("the public format has one head, and it has several".into()));
    };
    let stored = read_tensors(&folder.path.join(WEIGHTS))?.tensors;
    let modules = adapted_modules(&stored).map_err(other)?;
    let encoder = encoder::specs(encoders(&folder.config)?, &folder.config, &heads).len();
    let own = TaskModel::specs(&folder.config, &heads).split_off(encoder);
    let of_head = |name: &str| own.iter().any(|spec| spec.name == name);
    let kept = stored.iter().filter(|(name, _)| is_of_an_adapter(name) || of_head(name));
    let kept: Vec<(String, Tensor)> =
        kept.map(|(name, tensor)| (format!("{PREFIX}{name}"), tensor.shallow_clone())).collect();
    let mut whole: Vec<&str> =
        stored.keys().filter(|name| of_head(name)).filter_map(|name| name.split('.').next()).collect();
    whole.dedup();
    let base = added.base.or_else(|| base_of_run(&folder.path));
    let document = json!({
        "peft_type": "LORA", "task_type": task_type(head.kind), "base_model_name_or_path": base,
        "r": added.rank, "lora_alpha": added.alpha, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": false,
        "inference_mode": true, "init_lora_weights": true, "target_modules": modules, "modules_to_save": whole,
    });
    let contents = Contents {
        tables: vec![("adapter_model.safetensors".into(), kept)],
        documents: vec![("adapter_config.json".into(), document)],
        ..Contents::default()
    };
    publish_with_manifest(FreshFolder::create(target)?, |fresh| contents.write(fresh))?;
    Ok(modules.len())
}

/// Folder of the model that the run began with which `model` lies in: the best model or a checkpoint.
fn base_of_run(model: &Path) -> Option<String> {
    let of_run = |above: &Path| {
        let run = read_json(&above.join("config.json")).ok()?;
        run["train"]["init_from"].as_str().filter(|from| !from.is_empty()).map(String::from)
    };
    let from = model.ancestors().skip(1).take(2).find_map(of_run)?;
    let folder = locate(Path::new(&from)).map_or(from.into(), |(folder, _)| folder);
    Some(std::path::absolute(&folder).unwrap_or(folder).display().to_string())
}

/// Names of the modules that have adapters. The public format adapts modules, each of which has its matrix as `weight`.
fn adapted_modules(stored: &BTreeMap<String, Tensor>) -> Result<Vec<String>, String> {
    let modules = stored.keys().filter_map(|name| name.strip_suffix(".lora_A.weight"));
    let (modules, bare): (Vec<&str>, Vec<&str>) =
        modules.partition(|module| stored.contains_key(&format!("{module}.weight")));
    match bare.first() {
        None => Ok(modules.into_iter().map(String::from).collect()),
        Some(first) => Err(format!(
            "the public format adapts modules, and {} of the adapted matrices belong to none, such as `{first}`\nhint: train adapters on \
             modules alone, of an XLNet task.adapter_on='[\"ff\"]'; or use the model itself, in which adapters are added",
            bare.len(),
        )),
    }
}

fn task_type(kind: Kind) -> Value {
    match kind {
        Kind::Classification | Kind::Regression => json!("SEQ_CLS"),
        Kind::Tagging => json!("TOKEN_CLS"),
        Kind::Span => json!("QUESTION_ANS"),
        Kind::Choice | Kind::Ranking => Value::Null,
    }
}
