//! The mean of several checkpoints' weights (Vaswani et al. 2017, §6.1), as a model folder. What the tensors mean is nothing to it: they are known by name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use segue_configs::Models;
use segue_data_error::DataError;
use segue_engine::checkpoint::{
    TABLES, WEIGHTS, holds_weights, publish_with_manifest, read_error, read_tensors, write_error, write_json,
    write_tensors,
};
use segue_kernels::TrainError;
use segue_kernels::libtorch::is_finite;
use segue_publish::FreshFolder;
use segue_tokenizer::Tokenizer;
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::trained::{TRAINING, Trained, recorded};

/// Writes the arithmetic mean, in double precision, of the weights in `sources` as the new model folder `output`, those of further networks too,
/// with configuration and tokenizer of the first, and what is recorded of its run, so that it is evaluated alike. The folder appears whole or not at all.
///
/// Refuses sources of other configurations or tokenizers, those that keep tables beside their weights, and an `output` that is there already. Gives the
/// notes on how the sources were found.
pub fn average(
    models: &'static Models,
    sources: &[PathBuf],
    output: &Path,
) -> Result<Vec<String>, TrainError> {
    let all = sources.iter().map(|source| Source::open(models, source)).collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = all.split_first() else {
        return Err(TrainError::Layout("there is nothing to average: name at least one checkpoint".into()));
    };
    others.iter().try_for_each(|other| first.check_alike(other))?;
    if output.symlink_metadata().is_ok() {
        return Err(write_error(output)(std::io::ErrorKind::AlreadyExists.into()));
    }
    publish_with_manifest(FreshFolder::create(output)?, |fresh| {
        for file in &first.files {
            write_tensors(&fresh.join(file), &mean(file, &all)?)?;
        }
        write_json(&fresh.join("config.json"), &first.config()?)?;
        if let Some((training, _)) = recorded(&first.trained.path, &sources[0]) {
            write_json(&fresh.join(TRAINING), &training)?;
        }
        // A folder from elsewhere may have none.
        if let Some(tokenizer) = &first.tokenizer {
            tokenizer.save(fresh)?;
        }
        Ok(())
    })?;
    Ok(all.into_iter().flat_map(|source| source.trained.notes).collect())
}

/// A model that is averaged.
struct Source {
    trained: Trained,
    tokenizer: Option<Tokenizer>,
    /// Files that hold weights, by name.
    files: BTreeSet<String>,
}

impl Source {
    fn open(models: &'static Models, path: &Path) -> Result<Self, TrainError> {
        let mut trained = Trained::open(models, path)?;
        let folder = &trained.path;
        let entries = folder.read_dir().map_err(read_error(folder))?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let files: BTreeSet<String> = names.filter(|name| holds_weights(name)).collect();
        if !files.contains(WEIGHTS) {
            let what = format!(
                "it has no {WEIGHTS}\nhint: make a folder with it: segue convert {} NEW",
                folder.display()
            );
            return Err(TrainError::NoCheckpoint { path: folder.clone(), what });
        }
        if folder.join(TABLES).exists() {
            let what = format!(
                "cannot be averaged: it keeps tables beside its weights ({TABLES}), which belong to these weights and not to a mean of them\nhint: let \
                 the training average, with average.start"
            );
            return Err(TrainError::Unsuited { path: folder.clone(), what });
        }
        let tokenizer = match Tokenizer::load(folder) {
            Ok(tokenizer) => Some(tokenizer),
            Err(DataError::Missing { .. }) => None,
            Err(why) => {
                trained.notes.push(format!("warning: its tokenizer cannot be used: {why}"));
                None
            }
        };
        Ok(Self { trained, tokenizer, files })
    }

    /// `config.json` as it stands there.
    fn config(&self) -> Result<Value, TrainError> {
        let path = self.trained.path.join("config.json");
        let text = segue_publish::read_regular_text(&path).map_err(read_error(&path))?;
        serde_json::from_str(&text).map_err(|error| TrainError::Damaged { path, what: error.to_string() })
    }

    fn check_alike(&self, other: &Self) -> Result<(), TrainError> {
        let differs = |what: &str| TrainError::OtherModel {
            path: other.trained.path.clone(),
            what: format!(
                "{what} not that of {}\nhint: average checkpoints of one model",
                self.trained.path.display()
            ),
        };
        if self.trained.config != other.trained.config {
            return Err(differs("its configuration is"));
        }
        if self.files != other.files {
            return Err(differs("its list of networks is"));
        }
        match (&self.tokenizer, &other.tokenizer) {
            (Some(a), Some(b)) if a.fingerprint() != b.fingerprint() => Err(differs("its tokenizer is")),
            _ => Ok(()),
        }
    }
}

/// Named means of the tensors in the files of this name, in single precision; whole numbers have to be the same in all of them. One source is in memory at a
/// time, besides the sums.
fn mean(file: &str, sources: &[Source]) -> Result<Vec<(String, Tensor)>, TrainError> {
    let mut sums: BTreeMap<String, Tensor> = BTreeMap::new();
    for (number, source) in sources.iter().enumerate() {
        let path = source.trained.path.join(file);
        let stored = read_finite(&path)?;
        if number == 0 {
            sums = stored.into_iter().map(|(name, tensor)| (name, as_summand(&tensor))).collect();
        } else {
            add(&mut sums, stored, &path)?;
        }
    }
    let count = sources.len() as f64;
    let mean = |sum: Tensor| match sum.kind() {
        Kind::Double => (sum / count).to_kind(Kind::Float),
        _ => sum,
    };
    Ok(sums.into_iter().map(|(name, sum)| (name, mean(sum))).collect())
}

fn as_summand(tensor: &Tensor) -> Tensor {
    if tensor.is_floating_point() { tensor.to_kind(Kind::Double) } else { tensor.shallow_clone() }
}

/// Adds the tensors of the file at `path` to `sums` of the same names and shapes.
fn add(
    sums: &mut BTreeMap<String, Tensor>,
    mut stored: BTreeMap<String, Tensor>,
    path: &Path,
) -> Result<(), TrainError> {
    let other = |what: String| TrainError::OtherModel { path: path.into(), what };
    for (name, sum) in sums.iter_mut() {
        let tensor = stored.remove(name).ok_or_else(|| other(format!("it has no tensor `{name}`")))?;
        let form = |tensor: &Tensor| (tensor.size(), tensor.is_floating_point());
        if form(&tensor) != form(sum) {
            let (kind, size, wanted) = (tensor.kind(), tensor.size(), sum.size());
            return Err(other(format!("`{name}` is {kind:?} {size:?}, in the first model {wanted:?}")));
        }
        if tensor.is_floating_point() {
            *sum = &*sum + as_summand(&tensor);
        } else if tensor != *sum {
            return Err(other(format!("`{name}` holds whole numbers, and not those of the first model")));
        }
    }
    match stored.into_keys().next() {
        Some(name) => Err(other(format!("it has a tensor `{name}`, which the first model lacks"))),
        None => Ok(()),
    }
}

/// The tensors of a file. A mean with a value that is not finite is none.
fn read_finite(path: &Path) -> Result<BTreeMap<String, Tensor>, TrainError> {
    let tensors = read_tensors(path)?.tensors;
    let spoiled = tensors.iter().find(|(_, tensor)| tensor.is_floating_point() && !is_finite(tensor));
    match spoiled {
        Some((name, _)) => {
            let what = format!("`{name}` holds a value that is not finite\nhint: leave this checkpoint out");
            Err(TrainError::Damaged { path: path.into(), what })
        }
        None => Ok(tensors),
    }
}
