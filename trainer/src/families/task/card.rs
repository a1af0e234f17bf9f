//! The page that people find beside a published model.

use std::path::Path;

use segue_configs::Config;
use segue_tasks::{Kind, TaskData};
use serde_json::json;

use super::scoring::SplitScores;

/// How a model came to be, as far as a program cannot tell from its configuration.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// Processor, and how many ranks.
    pub hardware: String,
}

/// `README.md` of a fine-tuned model: front matter that the Hub reads, then the same for people.
pub fn model_card(
    config: &Config,
    tasks: &[TaskData],
    scores: &[SplitScores],
    step: u64,
    circumstances: &Circumstances,
) -> String {
    let names: Vec<&str> = tasks.iter().map(|data| data.name.as_str()).collect();
    let model = config.model.model_type();
    // JSON is YAML: names stay what they are, whatever is in them.
    let mut card = format!("---\nlibrary_name: {}\n", library(tasks));
    if let Some(pipeline) = pipeline(tasks) {
        card.push_str(&format!("pipeline_tag: {pipeline}\n"));
    }
    card.push_str(&format!("tags: {}\nmetrics: {}\n", json!([model, "segue"]), json!(metric_names(scores))));
    card.push_str(&format!("---\n\n# {model} fine-tuned on {}\n\n", names.join(", ")));
    card.push_str("| task | split | examples | metric | value |\n|---|---|---:|---|---:|\n");
    for split in scores {
        for metric in &split.metrics {
            card.push_str(&format!(
                "| {} | {} | {} | {} | {:.4} |\n",
                split.task, split.split, split.count, metric.name, metric.value
            ));
        }
    }
    card.push_str("\n## Training\n\n");
    let start = match config.task.from_scratch {
        true => "random weights in the sizes of",
        false => "weights of",
    };
    for (what, value) in [
        ("start", format!("{start} `{}`", name_of(&config.train.init_from))),
        ("data", format!("`{}`: {}", name_of(&config.task.data), counts(tasks))),
        ("columns", columns(tasks)),
        ("steps", format!("{step} of {}, {} examples each", config.train.steps, config.train.lanes)),
        ("longest sequence", format!("{} tokens", config.train.segment)),
        ("learning rate", format!("{}, {} steps of warm-up", config.optim.lr, config.schedule.warmup)),
        ("seed", config.train.seed.to_string()),
        ("hardware", circumstances.hardware.clone()),
    ] {
        if !value.is_empty() {
            card.push_str(&format!("- {what}: {value}\n"));
        }
    }
    card
}

/// The last part of a path: the rest of it says more of the writer's machine than of the model.
fn name_of(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.into(), |name| name.to_string_lossy().into_owned())
}

/// Which columns were read as what, where the task leaves that open.
fn columns(tasks: &[TaskData]) -> String {
    let told = tasks.iter().filter_map(|data| data.columns.clone());
    told.collect::<Vec<_>>().join(" | ")
}

/// The package that opens the model with its heads: of several heads the public one has none.
fn library(tasks: &[TaskData]) -> &'static str {
    match tasks {
        [one] if one.kind != Kind::Ranking => "transformers",
        _ => "segue",
    }
}

/// The public package's pipeline, where there is one that opens the folder and answers alike.
fn pipeline(tasks: &[TaskData]) -> Option<&'static str> {
    match tasks {
        [one] => match one.kind {
            Kind::Classification | Kind::Regression => Some("text-classification"),
            Kind::Tagging => Some("token-classification"),
            Kind::Span | Kind::Choice | Kind::Ranking => None,
        },
        _ => None,
    }
}

fn metric_names(scores: &[SplitScores]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for metric in scores.iter().flat_map(|split| &split.metrics) {
        if !names.contains(&metric.name.as_str()) {
            names.push(&metric.name);
        }
    }
    names
}

fn counts(tasks: &[TaskData]) -> String {
    let of = |data: &TaskData| {
        let train = data.train.as_ref().map_or(0, |split| split.examples.len());
        format!("{train} training examples of {}", data.name)
    };
    tasks.iter().map(of).collect::<Vec<_>>().join(", ")
}
