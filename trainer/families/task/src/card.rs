//! The page that people find beside a published model.

use std::path::Path;

use segue_configs::{Config, ModelConfig};
use segue_dataloader::sections::SegmentConfig;
use segue_tasks::{Kind, TaskConfig, TaskData};

use super::front_matter::{BaseModel, front_matter};
use super::head_spec::HeadSpec;
use super::scoring::SplitScores;

/// How a model came to be, as far as a program cannot tell from its configuration.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// Processor, and how many ranks.
    pub hardware: String,
    /// What is known of the model that it began with.
    pub base: BaseModel,
}

/// `README.md` of a fine-tuned model: front matter that the Hub reads, then the same for people. `pipeline` is the public
/// package's that opens the folder and answers alike, or why there is none.
pub fn model_card(
    config: &Config,
    tasks: &[TaskData],
    scores: &[SplitScores],
    step: u64,
    pipeline: &Result<&'static str, String>,
    circumstances: &Circumstances,
) -> String {
    let names: Vec<String> = tasks.iter().map(|data| one_line(&data.name)).collect();
    let model = config.model.model_type();
    let title = format!("{model} fine-tuned on {}", names.join(", "));
    let kinds: Vec<(&str, Kind)> = tasks.iter().map(|data| (data.name.as_str(), data.kind)).collect();
    let none = BaseModel::default();
    let from_scratch = config.own.get::<TaskConfig>().from_scratch;
    let base = if from_scratch { &none } else { &circumstances.base };
    let mut card = front_matter(model, &title, &kinds, scores, pipeline, base);
    card.push_str(&format!("\n# {title}\n\n"));
    card.push_str(&score_table(scores));
    card.push_str(&use_of(pipeline, Some(config.own.get::<SegmentConfig>().segment)));
    card.push_str("\n## Training\n\n");
    let start = match from_scratch {
        true => "random weights in the sizes of",
        false => "weights of",
    };
    for (what, value) in [
        ("start", format!("{start} {}", name_of(&config.train.init_from))),
        ("data", format!("{}: {}", name_of(&config.own.get::<TaskConfig>().data), counts(tasks))),
        ("columns", columns(tasks)),
        ("adapters", adapters(&config.own.get::<TaskConfig>())),
        ("steps", format!("{step} of {}, {} examples each", config.train.steps, config.train.lanes)),
        ("longest sequence", format!("{} tokens", config.own.get::<SegmentConfig>().segment)),
        ("learning rate", format!("{}, {} steps of warm-up", config.peak_lr(), config.schedule.warmup)),
        ("seed", config.train.seed.to_string()),
        ("hardware", circumstances.hardware.clone()),
    ] {
        if !value.is_empty() {
            card.push_str(&format!("- {what}: {value}\n"));
        }
    }
    card
}

/// `README.md` of the folder of one task, `head`, of a model that has the heads `all` and was made of `base`.
pub(super) fn extracted_card(
    model: &ModelConfig,
    head: &HeadSpec,
    all: &[HeadSpec],
    scores: &[SplitScores],
    pipeline: &Result<&'static str, String>,
    longest: Option<usize>,
    base: &BaseModel,
) -> String {
    let others: Vec<String> = all.iter().map(|head| one_line(&head.task)).collect();
    let model = model.model_type();
    let title = format!("{model} fine-tuned on {}", one_line(&head.task));
    let mut card = front_matter(model, &title, &[(&head.task, head.kind)], scores, pipeline, base);
    card.push_str(&format!("\n# {title}\n\n"));
    if !scores.is_empty() {
        card.push_str(&score_table(scores));
    }
    card.push_str(&use_of(pipeline, longest));
    card.push_str(&format!(
        "\n## Training\n\nOne encoder was fine-tuned on {}; this folder has its head for one of them.\n",
        others.join(", ")
    ));
    card
}

fn score_table(scores: &[SplitScores]) -> String {
    let mut table = String::from("| task | split | examples | metric | value |\n|---|---|---:|---|---:|\n");
    for split in scores {
        for metric in &split.metrics {
            table.push_str(&format!(
                "| {} | {} | {} | {} | {:.4} |\n",
                one_line(&split.task),
                one_line(&split.split),
                split.count,
                one_line(&metric.name),
                metric.value
            ));
        }
    }
    table
}

/// The last part of a path, as code: the rest of it says more of the writer's machine than of the model. Of `.`, `..` and `/`
/// nothing is left.
fn name_of(path: &str) -> String {
    let name = Path::new(path).file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    format!("`{}`", one_line(&name).replace('`', "'"))
}

/// A name in a line or in a cell of a table: one that holds line ends or bars would end either.
fn one_line(name: &str) -> String {
    let plain = name.split(char::is_control).collect::<Vec<_>>().join(" ");
    plain.replace('|', "\\|")
}

/// Which columns were read as what, where the task leaves that open.
fn columns(tasks: &[TaskData]) -> String {
    let told = tasks.iter().filter_map(|data| Some(one_line(data.columns.as_deref()?)));
    told.collect::<Vec<_>>().join("; ")
}

/// Rank and scale of the adapters of a run, and what they are on.
fn adapters(task: &TaskConfig) -> String {
    let on = match task.adapter_on.as_slice() {
        [] => "all matrices of the layers".to_string(),
        parts => one_line(&parts.join(", ")),
    };
    match task.adapter_rank {
        0 => String::new(),
        rank => format!("low-rank (LoRA) of rank {rank}, alpha {}, on {on}; added in", task.adapter_alpha),
    }
}

/// How the public package opens the folder, or that it does not.
fn use_of(pipeline: &Result<&'static str, String>, longest: Option<usize>) -> String {
    let longest =
        longest.map_or("the longest sequence of training".into(), |longest| format!("{longest} tokens"));
    match pipeline {
        // The pipeline of labels for tokens takes no such option.
        Ok("text-classification") => format!(
            "\n## Use\n\n```python\nfrom transformers import pipeline\n\nanswer = pipeline(\"text-classification\", \
             model=\"FOLDER\", truncation=True)\n```\n\nTexts are cut after {longest}, as they are here.\n"
        ),
        Ok(name) => format!(
            "\n## Use\n\n```python\nfrom transformers import pipeline\n\nanswer = pipeline(\"{name}\", \
             model=\"FOLDER\")\n```\n\nThe label of a word is that of its first token.\n"
        ),
        Err(why) => format!(
            "\n## Use\n\nWith `segue finetune --predict`. Pipelines of Hugging Face's package do not answer with this folder: {}.\n",
            one_line(why)
        ),
    }
}

fn counts(tasks: &[TaskData]) -> String {
    let of = |data: &TaskData| {
        let train = data.train.as_ref().map_or(0, |split| split.examples.len());
        format!("{train} training examples of {}", one_line(&data.name))
    };
    tasks.iter().map(of).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Metric;

    /// What a YAML reader takes the front matter for, line by line: a plain word, or a list in JSON.
    fn front_matter(card: &str) -> Vec<(String, serde_json::Value)> {
        let body = card.strip_prefix("---\n").unwrap().split("\n---\n").next().unwrap();
        let line = |line: &str| {
            let (key, value) = line.split_once(": ").unwrap();
            let value = serde_json::from_str(value).unwrap_or_else(|_| {
                assert!(value.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{line}");
                json!(value)
            });
            (key.to_string(), value)
        };
        body.lines().map(line).collect()
    }

    #[test]
    fn adapters_are_told_with_what_they_are_on() {
        assert_eq!(adapters(&TaskConfig::default()), "");
        let task =
            TaskConfig { adapter_rank: 8, adapter_on: vec!["q".into(), "ff".into()], ..Default::default() };
        assert_eq!(adapters(&task), "low-rank (LoRA) of rank 8, alpha 16, on q, ff; added in");
        let whole = adapters(&TaskConfig { adapter_rank: 4, ..Default::default() });
        assert!(whole.ends_with("on all matrices of the layers; added in"), "{whole}");
    }

    #[test]
    fn names_of_any_kind_stay_one_line_and_no_path_is_told() {
        let name = "my: \"task\" # 1 | two\n---\nlicense: other";
        let mut config = segue_testing::models::<segue_xlnet::XlnetConfig>()
            .from_json(&json!({ "model": { "model_type": "xlnet" } }), "a test")
            .unwrap();
        config.change(|task: &mut TaskConfig| task.data = "/home/ada/se`cret/data".into());
        config.train.init_from = "/home/ada/..".into();
        let data = TaskData {
            name: name.into(),
            kind: Kind::Classification,
            labels: vec!["a".into(), "b".into()],
            columns: Some("text from `x\ny`".into()),
            train: None,
            dev: Vec::new(),
            test: Vec::new(),
        };
        let metric = Metric { name: "f1: \"#\n---".into(), value: 0.5 };
        let scores = SplitScores {
            task: name.into(),
            split: "dev".into(),
            count: 1,
            left_out: 0,
            metrics: vec![metric],
            loss: None,
            collapsed: None,
        };
        let card =
            model_card(&config, &[data], &[scores], 3, &Ok("text-classification"), &Circumstances::default());
        let found = front_matter(&card);
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["library_name", "pipeline_tag", "tags", "metrics", "model-index"], "{card}");
        assert_eq!(found[3].1, json!(["f1: \"#\n---"]));
        assert_eq!(found[4].1[0]["results"][0]["dataset"]["name"], name);
        assert_eq!(card.lines().filter(|line| *line == "---").count(), 2, "{card}");
        assert!(!card.contains("/home") && !card.contains("ada"), "{card}");
        assert!(!card.lines().any(|line| line.starts_with("license")), "{card}");
    }
}
