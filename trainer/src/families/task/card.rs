//! The page that people find beside a published model.

use segue_configs::Config;
use segue_dataloader::tasks::{Kind, TaskData};

use super::scoring::SplitScores;

/// How a model came to be, as far as a program cannot tell from its configuration.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// The command as it was given.
    pub command: String,
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
    let mut card = format!("---\nlibrary_name: {}\npipeline_tag: {}\n", library(tasks), pipeline(tasks));
    card.push_str(&format!("base_model: {}\ntags: [{model}, segue]\n", config.train.init_from));
    card.push_str("metrics:\n");
    for name in metric_names(scores) {
        card.push_str(&format!("- {name}\n"));
    }
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
        ("start", format!("{start} `{}`", config.train.init_from)),
        ("data", format!("`{}`: {}", config.task.data, counts(tasks))),
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
    card.push_str(&format!("\n```\n{}\n```\n", circumstances.command));
    card
}

/// Which columns were read as what, where the task leaves that open.
fn columns(tasks: &[TaskData]) -> String {
    let told = tasks.iter().filter_map(|data| data.columns.clone());
    told.collect::<Vec<_>>().join(" | ")
}

/// The package that opens the model.
fn library(tasks: &[TaskData]) -> &'static str {
    match tasks.first().map(|data| data.kind) {
        Some(Kind::Ranking) => "segue",
        _ => "transformers",
    }
}

fn pipeline(tasks: &[TaskData]) -> &'static str {
    match tasks.first().map(|data| data.kind) {
        Some(Kind::Span) => "question-answering",
        Some(Kind::Tagging) => "token-classification",
        Some(Kind::Choice) => "multiple-choice",
        Some(Kind::Ranking) => "text-ranking",
        _ => "text-classification",
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
