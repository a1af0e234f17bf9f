//! One conversion from end to end.

use std::path::{Path, PathBuf};

use segue_configs::{ConfigError, ModelConfig};
use segue_dataloader::Tokenizer;
use serde_json::{Map, Value, json};

use super::apply::apply;
use super::report::Report;
use super::sources::{Source, detect};
use super::{invert, invert_xlnet, write};
use crate::TrainError;

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A folder in Hugging Face's layout, which is a model folder here.
    HuggingFace,
    /// A checkpoint of the TensorFlow program.
    TensorFlow,
}

/// How to convert.
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    /// What to write.
    pub target: Target,
    /// A vocabulary file, where the source's own is not found.
    pub vocabulary: Option<PathBuf>,
    /// Leave variables out that have no place in the model.
    pub allow_skipped: bool,
    /// `model.KEY=VALUE`: what the source does not say, or says wrongly.
    pub overrides: Vec<String>,
}

/// What a conversion has made.
pub struct Conversion {
    /// The account.
    pub report: Report,
    /// The model's configuration.
    pub config: ModelConfig,
}

/// Converts `source` into the new folder `target`; nothing is left where it fails. `progress` is told variables
/// done and to do.
pub fn convert(
    source: &Path,
    target: &Path,
    options: &ConvertOptions,
    progress: impl FnMut(u64, u64),
) -> Result<Conversion, TrainError> {
    write::check_vacant(target)?;
    let mut source = detect(source)?;
    let (tokenizer, mut vocabulary) = vocabulary(&mut source, options)?;
    let config = configuration(&source, &options.overrides, tokenizer.as_ref())?;
    let tokenizer = tokenizer.filter(|tokenizer| {
        let fits = tokenizer.vocab_size() <= config.vocab_size();
        if !fits {
            let sizes = (tokenizer.vocab_size(), config.vocab_size());
            vocabulary = json!({ "problem": format!("it has {} entries, the model {}", sizes.0, sizes.1) });
        }
        fits
    });
    if options.vocabulary.is_some() && tokenizer.is_none() {
        let problem = vocabulary["problem"].as_str().unwrap_or("it cannot be used");
        return Err(TrainError::Layout(format!("the vocabulary of --vocab does not fit: {problem}")));
    }
    let mut applied = apply(&source, &config, options.allow_skipped, progress)?;
    source.notes.append(&mut applied.notes);
    if let Some(other) = applied.variables.iter().find(|v| v.dtype != "f32" && !v.destinations.is_empty()) {
        source
            .notes
            .push(format!("`{}` and perhaps others are {}; all is written as f32", other.name, other.dtype));
    }
    let mut report = Report {
        source_kind: source.kind,
        source: source.path.clone(),
        target: match options.target {
            Target::HuggingFace => "hugging_face",
            Target::TensorFlow => "tensorflow",
        },
        counts: Report::count(&applied.variables),
        parameters_count: applied.weights.iter().chain(&applied.heads).map(|(_, t)| t.numel()).sum(),
        notes: std::mem::take(&mut source.notes),
        config: config.to_json(),
        vocabulary,
        variables: applied.variables,
        parameters: applied.parameters,
    };
    match options.target {
        Target::HuggingFace => write::publish(target, |folder| {
            let weights = write::Weights { model: applied.weights, heads: applied.heads };
            write::hugging_face(folder, &config, weights, &source.head, tokenizer.as_ref(), &report)
        })?,
        Target::TensorFlow => {
            let refused =
                |why| TrainError::Layout(format!("the TensorFlow program cannot hold this model: {why}"));
            let mut weights = applied.weights;
            weights.append(&mut applied.heads);
            let made = match &config {
                ModelConfig::TransfoXl(model) => invert::to_tensorflow(model, &weights),
                ModelConfig::Xlnet(model) => invert_xlnet::to_tensorflow(model, &weights, &source.head),
            };
            let made = made.map_err(refused)?;
            report.notes.extend(made.notes.iter().cloned());
            write::publish(target, |folder| write::tensorflow(folder, made, tokenizer.as_ref(), &report))?;
        }
    }
    Ok(Conversion { report, config })
}

/// The source's configuration with what the command line says.
fn configuration(
    source: &Source,
    overrides: &[String],
    tokenizer: Option<&Tokenizer>,
) -> Result<ModelConfig, TrainError> {
    let mut config: Map<String, Value> = source.config.clone();
    let model_type = config.entry("model_type").or_insert(json!("transfo-xl")).clone();
    let model_type = model_type.as_str().unwrap_or_default();
    if model_type == "transfo-xl"
        && source.kind != "hugging_face"
        && source.kind != "segue"
        && let Some(eos) = tokenizer.and_then(Tokenizer::eos_id)
    {
        config.insert("eos_token_id".into(), json!(eos));
    }
    let known = ModelConfig::default_of(model_type).map(|config| config.to_json()).unwrap_or_default();
    for text in overrides {
        let pair = text.split_once('=').and_then(|(key, value)| Some((key.strip_prefix("model.")?, value)));
        let Some((key, value)) = pair else {
            return Err(ConfigError::NotAnOverride { text: text.clone() }.into());
        };
        if known.get(key).is_none() {
            let origin = "the command line".into();
            return Err(ConfigError::UnknownKey { key: format!("model.{key}"), origin, nearest: None }.into());
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        config.insert(key.into(), value);
    }
    let origin = source.path.display().to_string();
    Ok(ModelConfig::from_hugging_face(&Value::Object(config).to_string(), &origin)?)
}

/// The tokenizer to put beside the weights, and what the report says of it.
fn vocabulary(
    source: &mut Source,
    options: &ConvertOptions,
) -> Result<(Option<Tokenizer>, Value), TrainError> {
    if let Some(path) = &options.vocabulary {
        let tokenizer = match path.is_dir() {
            true => Tokenizer::load(path)?,
            false => Tokenizer::import(path)?,
        };
        let account = account(path, &tokenizer);
        return Ok((Some(tokenizer), account));
    }
    Ok(match source.vocabulary.take() {
        None => (None, json!({ "problem": "the source has none; --vocab FILE adds one" })),
        Some((path, Err(why))) => (None, json!({ "file": path, "problem": why })),
        Some((path, Ok(tokenizer))) => {
            let account = account(&path, &tokenizer);
            (Some(tokenizer), account)
        }
    })
}

fn account(path: &Path, tokenizer: &Tokenizer) -> Value {
    json!({ "file": path, "kind": tokenizer.kind(), "entries": tokenizer.vocab_size() })
}
