//! Which parameters of a fine-tuned model stay as they are.

use segue_configs::{ConfigError, ModelConfig, out_of_range};
use segue_kernels::ParameterSpec;
use segue_language::{Encodes, is_of_an_adapter};
use segue_tasks::TaskConfig;

use super::encoder;
use super::head_spec::HeadSpec;

/// For each of `specs`, those of the encoder, of the heads, and factors of adapters: whether it stays as it is.
pub fn stays(
    family: &dyn Encodes,
    model: &ModelConfig,
    heads: &[HeadSpec],
    task: &TaskConfig,
    specs: &[ParameterSpec],
) -> Vec<bool> {
    let of_encoder = encoder::specs(family, model, heads);
    let adapted = task.adapter_rank > 0 && specs.iter().any(|spec| is_of_an_adapter(&spec.name));
    let all_layers = task.freeze_layers > 0 && task.freeze_layers >= layers(&of_encoder);
    let whole = encoder::is_frozen(heads) || adapted || all_layers;
    let words: Vec<String> = match task.freeze_embeddings || task.freeze_layers > 0 {
        true => family.word_specs(model).into_iter().map(|spec| spec.name).collect(),
        false => Vec::new(),
    };
    let of = |(i, spec): (usize, &ParameterSpec)| {
        let low = spec.layer().is_some_and(|layer| layer < task.freeze_layers);
        i < of_encoder.len() && (whole || low || words.contains(&spec.name))
    };
    specs.iter().enumerate().map(of).collect()
}

/// Refuses to freeze more layers than the model has, and what is frozen anyway.
pub fn check(
    family: &dyn Encodes,
    model: &ModelConfig,
    heads: &[HeadSpec],
    task: &TaskConfig,
) -> Result<(), ConfigError> {
    if encoder::is_frozen(heads) {
        let why = "documents are ranked by vectors of words, which stay as they are\nhint: leave it out";
        return match (task.freeze_layers, task.freeze_embeddings) {
            (0, false) => Ok(()),
            (0, true) => Err(out_of_range("task.freeze_embeddings", true, why)),
            (layers, _) => Err(out_of_range("task.freeze_layers", layers, why)),
        };
    }
    check_layers(family, model, task)
}

/// Refuses to freeze more layers than the model has, before its tasks are read.
pub fn check_layers(family: &dyn Encodes, model: &ModelConfig, task: &TaskConfig) -> Result<(), ConfigError> {
    let has = layers(&family.encoder_specs(model));
    match task.freeze_layers > has {
        true => {
            let why = format!("the model has {has} layers");
            Err(out_of_range("task.freeze_layers", task.freeze_layers, &why))
        }
        false => Ok(()),
    }
}

/// Fraction of the encoder that no gradient goes back through: lowest layers that stay as they are.
pub fn fraction(family: &dyn Encodes, model: &ModelConfig, task: &TaskConfig) -> f64 {
    let has = layers(&family.encoder_specs(model)).max(1);
    task.freeze_layers.min(has) as f64 / has as f64
}

fn layers(specs: &[ParameterSpec]) -> usize {
    specs.iter().filter_map(ParameterSpec::layer).max().map_or(0, |last| last + 1)
}
