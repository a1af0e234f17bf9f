//! Folders of trained models.

use std::path::Path;

use segue_configs::Models;
use segue_engine::Begun;
use segue_engine::checkpoint::{WEIGHTS, read_tensors};
use segue_family::Trained;
use segue_kernels::{Parameters, TrainError};
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::keys::TranslationConfig;

/// `config.json` as `MarianMTModel` of Hugging Face's package reads it, which opens models with norms after sums and biases in attention: their weights have its
/// names, and its positions are these.
pub fn hugging_face_config(model: &TranslationConfig) -> Value {
    let mut config = json!(model);
    for (key, value) in [
        ("model_type", json!("marian")),
        ("architectures", json!(["MarianMTModel"])),
        ("is_encoder_decoder", json!(true)),
        ("share_encoder_decoder_embeddings", json!(true)),
        ("tie_word_embeddings", json!(true)),
        ("num_hidden_layers", json!(model.encoder_layers)),
        ("decoder_vocab_size", json!(model.vocab_size)),
        ("decoder_start_token_id", json!(model.pad_token_id)),
        ("forced_eos_token_id", json!(null)),
        ("bos_token_id", json!(null)),
    ] {
        config[key] = value;
    }
    config
}

/// Whether weights of one mean the same in the other: dropout and lengths may differ.
fn computes_alike(one: &TranslationConfig, other: &TranslationConfig) -> bool {
    let weights = |model: &TranslationConfig| TranslationConfig {
        dropout: 0.0,
        attention_dropout: 0.0,
        activation_dropout: 0.0,
        max_position_embeddings: 1,
        ..model.clone()
    };
    weights(one) == weights(other)
}

/// Fills `parameters` with the weights of a run, a checkpoint or a model folder, whose tokenizer is `tokenizer`.
pub fn begin(
    models: &'static Models,
    model: &TranslationConfig,
    parameters: &Parameters,
    tokenizer: &Tokenizer,
    from: &Path,
) -> Result<Begun, TrainError> {
    let Trained { path: folder, config, passed_over, .. } = Trained::open(models, from)?;
    if !config.get::<TranslationConfig>().is_some_and(|theirs| computes_alike(theirs, model)) {
        let what =
            "its weights are those of another model\nhint: set the keys of [model] that its config.json has";
        return Err(TrainError::OtherModel { path: folder, what: what.into() });
    }
    let theirs = Tokenizer::load(&folder)?;
    if theirs.fingerprint() != tokenizer.fingerprint() {
        let what = "its tokenizer is another one than the corpus has: its ids stand for other words\nhint: build the corpus with --tokenizer \
                    and this folder";
        return Err(TrainError::OtherModel { path: folder, what: what.into() });
    }
    let mut file = read_tensors(&folder.join(WEIGHTS))?;
    for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
        let stored = file.take(&spec.name, &spec.shape)?;
        tch::no_grad(|| tensor.shallow_clone().copy_(&stored));
    }
    Ok(Begun::with(&folder, passed_over))
}
