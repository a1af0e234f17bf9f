//! The mean of several checkpoints' weights, as a model folder.

use std::path::{Path, PathBuf};

use segue_publish::FreshFolder;
use tch::{Kind, Tensor};

use super::folder::{ModelFolder, as_stored, hugging_face_config, read_weights};
use crate::TrainError;
use crate::checkpoint::{WEIGHTS, publish_with_manifest, write_error, write_json, write_tensors};
use crate::families::specs;
use crate::libtorch::is_finite;

/// Writes the arithmetic mean, in double precision, of the weights in `sources` as the new model folder `output`,
/// with configuration and tokenizer of the first. The folder appears whole or not at all.
///
/// Refuses sources of other configurations or tokenizers, and an `output` that is there already. Gives the notes on how the sources were found.
pub fn average(sources: &[PathBuf], output: &Path) -> Result<Vec<String>, TrainError> {
    let folders = sources.iter().map(|s| ModelFolder::open(s)).collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = folders.split_first() else {
        return Err(TrainError::Layout("there is nothing to average: name at least one checkpoint".into()));
    };
    for other in others {
        check_alike(first, other)?;
    }
    if output.symlink_metadata().is_ok() {
        return Err(write_error(output)(std::io::ErrorKind::AlreadyExists.into()));
    }
    let weights = as_stored(&first.config, mean(&folders)?);
    publish_with_manifest(FreshFolder::create(output)?, |fresh| {
        write_tensors(&fresh.join(WEIGHTS), &weights)?;
        write_json(&fresh.join("config.json"), &hugging_face_config(&first.config))?;
        // A folder from elsewhere may have no tokenizer.
        if first.vocabulary.is_some() {
            first.tokenizer()?.save(fresh)?;
        }
        Ok(())
    })?;
    Ok(folders.into_iter().flat_map(|folder| folder.notes).collect())
}

fn check_alike(first: &ModelFolder, other: &ModelFolder) -> Result<(), TrainError> {
    let differs = |what: &str| TrainError::OtherModel {
        path: other.path.clone(),
        what: format!(
            "its {what} is not that of {}\nhint: average checkpoints of one model",
            first.path.display()
        ),
    };
    if first.config != other.config {
        return Err(differs("configuration"));
    }
    match (&first.vocabulary, &other.vocabulary) {
        (Some(a), Some(b)) if a.fingerprint() != b.fingerprint() => Err(differs("tokenizer")),
        _ => Ok(()),
    }
}

/// Named means, in single precision. One source is in memory at a time, besides the sums.
fn mean(folders: &[ModelFolder]) -> Result<Vec<(String, Tensor)>, TrainError> {
    let config = &folders[0].config;
    let specs = specs(config);
    let mut sums: Vec<Tensor> = Vec::new();
    for folder in folders {
        let path = folder.path.join(WEIGHTS);
        let weights = read_weights(&path, config, &specs)?;
        if let Some(place) = weights.iter().position(|weights| !is_finite(weights)) {
            let name = &specs[place].name;
            let what = format!("`{name}` holds a value that is not finite\nhint: leave this checkpoint out");
            return Err(TrainError::Damaged { path, what });
        }
        if sums.is_empty() {
            sums = weights.iter().map(|w| w.to_kind(Kind::Double)).collect();
        } else {
            sums = sums.iter().zip(&weights).map(|(sum, w)| sum + w.to_kind(Kind::Double)).collect();
        }
    }
    let count = folders.len() as f64;
    let names = specs.into_iter().map(|spec| spec.name);
    Ok(names.zip(sums).map(|(name, sum)| (name, (sum / count).to_kind(Kind::Float))).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::families::transfo_xl::TransfoXlConfig;
    use segue_configs::ModelConfig;
    use segue_tokenizer::Tokenizer;

    use super::*;
    use crate::checkpoint::{MANIFEST, read_tensors};
    use crate::families::language_model::Objective;
    use crate::families::transfo_xl::{LanguageModel, load_language_model};

    fn config(d_inner: usize) -> ModelConfig {
        let shape = TransfoXlConfig {
            vocab_size: 256,
            d_model: 8,
            n_head: 2,
            d_inner,
            n_layer: 1,
            ..Default::default()
        };
        shape.into()
    }

    fn write_model(folder: &Path, config: &ModelConfig, seed: u64) {
        fs::create_dir_all(folder).unwrap();
        let model = LanguageModel::new(config.get().unwrap(), seed, Kind::Float);
        let parameters = model.parameters();
        let pairs = parameters.specs().iter().zip(parameters.tensors());
        let weights: Vec<_> = pairs.map(|(spec, t)| (spec.name.clone(), t.detach())).collect();
        write_tensors(&folder.join(WEIGHTS), &weights).unwrap();
        write_json(&folder.join("config.json"), &hugging_face_config(config)).unwrap();
        Tokenizer::bytes().save(folder).unwrap();
    }

    #[test]
    fn weights_are_the_mean_of_the_sources() {
        let dir = tempfile::tempdir().unwrap();
        let sources: Vec<PathBuf> = (1..=3).map(|i| dir.path().join(format!("m{i}"))).collect();
        for (i, source) in sources.iter().enumerate() {
            write_model(source, &config(12), i as u64);
        }
        let output = dir.path().join("mean");
        average(&sources, &output).unwrap();
        let values = |folder: &Path| -> Vec<f32> {
            let tensors = read_tensors(&folder.join(WEIGHTS)).unwrap().tensors;
            let weight = &tensors["transformer.layers.0.dec_attn.qkv_net.weight"];
            Vec::<f32>::try_from(weight.reshape([-1])).unwrap()
        };
        let [a, b, c] = [0, 1, 2].map(|i| values(&sources[i]));
        for (i, found) in values(&output).into_iter().enumerate() {
            let by_hand = (f64::from(a[i]) + f64::from(b[i]) + f64::from(c[i])) / 3.0;
            assert_eq!(found, by_hand as f32);
        }
        assert!(output.join(MANIFEST).exists());
        let folder = ModelFolder::open(&output).unwrap();
        assert_eq!(folder.tokenizer().unwrap().fingerprint(), Tokenizer::bytes().fingerprint());
        load_language_model(&folder).unwrap();
        // What is there already is left alone.
        assert_eq!(average(&sources, &output).unwrap_err().exit_code(), 73);
    }

    #[test]
    fn models_of_other_shapes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let sources = [dir.path().join("a"), dir.path().join("b")];
        write_model(&sources[0], &config(12), 1);
        write_model(&sources[1], &config(16), 1);
        let error = average(&sources, &dir.path().join("mean")).unwrap_err();
        assert!(error.exit_code() == 78 && error.to_string().contains("configuration"), "{error}");
        assert_eq!(average(&[], &dir.path().join("mean")).unwrap_err().exit_code(), 78);
        assert!(!dir.path().join("mean").exists());
    }
}
