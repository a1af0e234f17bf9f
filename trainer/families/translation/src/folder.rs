//! Folders of trained models.

use std::path::Path;

use segue_configs::{ModelConfig, Models};
use segue_engine::checkpoint::{WEIGHTS, check_finite, read_tensors};
use segue_engine::{Begun, fill};
use segue_family::Trained;
use segue_kernels::{Parameters, TrainError};
use segue_language::{refuse_foreign_weights, take_weights};
use segue_tokenizer::Tokenizer;
use tch::{Device, Kind, Tensor};

use super::keys::TranslationConfig;
use super::model::{OUTPUT_BIAS, specs};

/// How far the vectors of positions in a file may be from those here: half a unit in the last place of a value below 1 that is stored in 16 bits. Columns in
/// another order are another thing by far.
const POSITION_LIMIT: f64 = 1.0 / 256.0;

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
    fill(parameters.tensors().iter().zip(read(&folder, &config)?));
    Ok(Begun::with(&folder, passed_over))
}

/// The parameters of a trained model, where it is to compute.
pub fn parameters(trained: &Trained, model: &TranslationConfig) -> Result<Parameters, TrainError> {
    let weights = read(&trained.path, &trained.config)?;
    Ok(Parameters::from_tensors(specs(model), weights, Kind::Float).to(trained.compute.device()))
}

/// The weights of a model folder, in the order of its parameters, in single precision. Of Hugging Face's, copies of the table are the table, vectors of
/// positions are those here, and a bias of the softmax that is not there is zeros.
pub fn read(folder: &Path, config: &ModelConfig) -> Result<Vec<Tensor>, TrainError> {
    refuse_foreign_weights(folder)?;
    let path = folder.join(WEIGHTS);
    let mut file = read_tensors(&path)?;
    for (name, ours) in segue_language::derived(config) {
        let Some(theirs) = file.tensors.get(&name) else { continue };
        let near =
            ours.size() == theirs.size() && (ours - theirs).abs().max().double_value(&[]) <= POSITION_LIMIT;
        if !near {
            let what = format!("`{name}` is not what the model has for positions: sines, then cosines");
            return Err(TrainError::OtherModel { path, what });
        }
    }
    let specs = segue_language::specs(config);
    if let Some(bias) = specs.iter().find(|spec| spec.name == OUTPUT_BIAS) {
        let zeros = || Tensor::zeros(&bias.shape, (Kind::Float, Device::Cpu));
        file.tensors.entry(bias.name.clone()).or_insert_with(zeros);
    }
    let weights = take_weights(&mut file, config, &specs)?;
    check_finite(&path, specs.iter().map(|spec| spec.name.as_str()).zip(&weights))?;
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use segue_engine::checkpoint::write_tensors;

    use super::*;

    fn config() -> ModelConfig {
        let config = TranslationConfig {
            vocab_size: 9,
            d_model: 8,
            encoder_layers: 1,
            decoder_layers: 1,
            encoder_attention_heads: 2,
            decoder_attention_heads: 2,
            encoder_ffn_dim: 4,
            decoder_ffn_dim: 4,
            max_position_embeddings: 5,
            output_bias: true,
            pad_token_id: 8,
            ..Default::default()
        };
        config.into()
    }

    /// What is read of a file with fresh weights that `change` has changed.
    fn read_changed(change: impl FnOnce(&mut Vec<(String, Tensor)>)) -> Result<Vec<Tensor>, TrainError> {
        let (dir, config) = (tempfile::tempdir().unwrap(), config());
        let parameters = Parameters::initialise(segue_language::specs(&config), 5, Kind::Float);
        let named = parameters.specs().iter().zip(parameters.tensors());
        let mut tensors: Vec<_> =
            named.map(|(spec, tensor)| (spec.name.clone(), tensor.detach().copy())).collect();
        change(&mut tensors);
        write_tensors(&dir.path().join(WEIGHTS), &tensors).unwrap();
        read(dir.path(), &config)
    }

    fn table(tensors: &[(String, Tensor)]) -> Tensor {
        tensors.iter().find(|(name, _)| name == "model.shared.weight").unwrap().1.copy()
    }

    /// Sines and cosines by the formula of the paper, in the order of `MarianSinusoidalPositionalEmbedding`.
    fn positions(alternate: bool) -> Tensor {
        let mut values = [0f32; 5 * 8];
        for (position, row) in values.chunks_exact_mut(8).enumerate() {
            for pair in 0..4 {
                let angle = position as f64 / 10_000f64.powf(pair as f64 / 4.0);
                let [sine, cosine] = if alternate { [2 * pair, 2 * pair + 1] } else { [pair, pair + 4] };
                (row[sine], row[cosine]) = (angle.sin() as f32, angle.cos() as f32);
            }
        }
        Tensor::from_slice(&values).view([5, 8])
    }

    #[test]
    fn copies_and_positions_may_be_there_and_have_to_be_the_same() {
        let plain = read_changed(|_| ()).unwrap();
        let copies =
            ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"];
        let whole = read_changed(|tensors| {
            let table = table(tensors);
            tensors.extend(copies.map(|name| (name.into(), table.copy())));
            tensors.push(("model.encoder.embed_positions.weight".into(), positions(false)));
        });
        assert_eq!(plain, whole.unwrap());
        // The table by another name alone.
        let renamed = read_changed(|tensors| {
            let table = tensors.iter_mut().find(|(name, _)| name == "model.shared.weight").unwrap();
            table.0 = "lm_head.weight".into();
        });
        assert_eq!(plain, renamed.unwrap());
        for name in copies {
            let other = |tensors: &mut Vec<(String, Tensor)>| {
                let table = table(tensors) + 1.0;
                tensors.push((name.into(), table));
            };
            let refused = read_changed(other).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("differ"), "{refused}");
        }
        let name = "model.decoder.embed_positions.weight";
        let refused = read_changed(|tensors| tensors.push((name.into(), positions(true))));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("sines, then cosines"), "{refused}");
    }

    #[test]
    fn a_bias_that_is_not_there_is_zeros_and_what_is_too_much_is_refused() {
        let plain = read_changed(|_| ()).unwrap();
        let without = read_changed(|tensors| tensors.retain(|(name, _)| name != OUTPUT_BIAS)).unwrap();
        assert_eq!(plain, without);
        let refused = read_changed(|tensors| {
            tensors.push((
                "model.encoder.layer_norm.weight".into(),
                Tensor::zeros([8], (Kind::Float, Device::Cpu)),
            ));
        });
        assert!(refused.unwrap_err().to_string().contains("no parameter `model.encoder.layer_norm.weight`"));
        let missing = read_changed(|tensors| tensors.retain(|(name, _)| !name.ends_with("fc2.bias")));
        assert!(missing.unwrap_err().to_string().contains("fc2.bias"));
    }
}
