//! Which parameters of a fine-tuned model stay as they are.

use segue_configs::{ConfigError, ModelConfig, out_of_range};
use segue_kernels::ParameterSpec;
use segue_language::Encodes;
use segue_tasks::TaskConfig;

use super::adapters::is_factor;
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
    let adapted = task.adapter_rank > 0 && specs.iter().any(|spec| is_factor(&spec.name));
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

/// Refuses to freeze more layers than the model has.
pub fn check(family: &dyn Encodes, model: &ModelConfig, task: &TaskConfig) -> Result<(), ConfigError> {
    let has = layers(&family.encoder_specs(model));
    match task.freeze_layers > has {
        true => {
            let why = format!("the model has {has} layers");
            Err(out_of_range("task.freeze_layers", task.freeze_layers, &why))
        }
        false => Ok(()),
    }
}

fn layers(specs: &[ParameterSpec]) -> usize {
    specs.iter().filter_map(ParameterSpec::layer).max().map_or(0, |last| last + 1)
}
