//! How a model was fine-tuned, which is how it answers.

use std::path::Path;

use segue_configs::{Config, ConfigError, finetuning_defaults, model_layer};
use segue_language::ModelFolder;
use segue_publish::read_regular_text;
use serde_json::{Value, json};

/// How far a model lies below the record of its run: its best, and its checkpoints in a folder of theirs.
const BELOW_RUN: usize = 2;

/// The task of which nothing else is known.
const ANY_TASK: &str = "text";

/// The configuration that a model answers `task` with, any where its folder names none: the length of its sequences, how many are answered at a time, the
/// columns of its texts.
pub fn answering_config(folder: &ModelFolder, task: &str) -> Result<Config, ConfigError> {
    let mut layers = vec![(finetuning_defaults(), "fine-tuning".to_string())];
    layers.extend(answering_layers(folder, &folder.path));
    layers.push(model_layer(&folder.config, &folder.path));
    // A folder without a run beside it names no task, and would be held against what pre-training asks for.
    let task = if task.is_empty() { ANY_TASK } else { task };
    layers.push((json!({ "task": { "name": task } }), "the head".into()));
    Ok(folder.models.load_over(layers, None, &[])?.config)
}

/// What is known of a model's fine-tuning, each with the file that says it, later ones winning: its longest sequence beside the model, and the
/// configuration of its run. `named`: the model or its run.
pub fn answering_layers(folder: &ModelFolder, named: &Path) -> Vec<(Value, String)> {
    let of_run = named.ancestors().take(1 + BELOW_RUN).find_map(config_of_run);
    stored_length(folder).into_iter().chain(of_run).collect()
}

/// The longest sequence that a model folder says it was trained on.
fn stored_length(folder: &ModelFolder) -> Option<(Value, String)> {
    let file = folder.path.join("tokenizer_config.json");
    let stored: Value = serde_json::from_str(&read_regular_text(&file).ok()?).ok()?;
    // Packages write an enormous number where there is no limit.
    let length = stored["model_max_length"].as_u64().filter(|length| (1..1 << 20).contains(length))?;
    Some((json!({ "train": { "segment": length } }), file.display().to_string()))
}

/// The configuration that a run folder was fine-tuned with, but for its own places, its model and its device, which need not be there where it answers.
fn config_of_run(path: &Path) -> Option<(Value, String)> {
    let file = path.join("config.json");
    let mut value: Value = serde_json::from_str(&read_regular_text(&file).ok()?).ok()?;
    value["task"]["name"].as_str().filter(|name| !name.is_empty())?;
    for section in ["run", "model"] {
        value.as_object_mut()?.remove(section);
    }
    if let Some(train) = value.get_mut("train").and_then(Value::as_object_mut) {
        train.remove("device");
    }
    Some((value, file.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_answers_on_the_processor_whatever_it_was_trained_on() {
        let run = tempfile::tempdir().unwrap();
        let stored = json!({
            "run": { "dir": "elsewhere" }, "model": {}, "task": { "name": "sst2" }, "train": { "device": "cuda", "seed": 3 },
        });
        std::fs::write(run.path().join("config.json"), stored.to_string()).unwrap();
        let (base, _) = config_of_run(run.path()).unwrap();
        assert_eq!(base, json!({ "task": { "name": "sst2" }, "train": { "seed": 3 } }));
    }
}
