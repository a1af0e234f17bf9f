//! What a file holds, without making a model of it.

use std::path::{Path, PathBuf};

use segue_dataloader::foreign::{Bundle, TorchFile};
use serde::Serialize;

use super::sources::detect;
use crate::TrainError;

/// A variable.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: String,
    /// Sizes.
    pub shape: Vec<usize>,
}

/// The variables of a checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct Listing {
    /// What program wrote it, where that is known: as in reports of conversions, else `unknown`.
    pub kind: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Its variables.
    pub variables: Vec<Listed>,
}

/// Lists a checkpoint of any format that conversion reads, and also of models that it does not know.
pub fn inspect(path: &Path) -> Result<Listing, TrainError> {
    let known = match detect(path) {
        Ok(source) => {
            let variables = source.variables.into_iter();
            let variables =
                variables.map(|v| Listed { name: v.name, dtype: v.dtype, shape: v.shape }).collect();
            return Ok(Listing { kind: source.kind, path: source.path, variables });
        }
        Err(error) => error,
    };
    if let Ok(bundle) = Bundle::open(path) {
        let variables = bundle.entries().iter().map(|entry| Listed {
            name: entry.name.clone(),
            dtype: entry.dtype.map_or("other", |dtype| dtype.name()).into(),
            shape: entry.shape.clone(),
        });
        return Ok(Listing { kind: "unknown", path: bundle.index.clone(), variables: variables.collect() });
    }
    let damaged = |what: String| TrainError::Damaged { path: path.into(), what };
    if path.is_file()
        && let Ok(file) = TorchFile::open(path)
    {
        let variables = file.tensors(file.root()).map_err(damaged)?;
        let variables = variables.into_iter().map(|named| Listed {
            name: named.name,
            dtype: named.tensor.dtype().name().into(),
            shape: named.tensor.shape().to_vec(),
        });
        return Ok(Listing { kind: "unknown", path: path.into(), variables: variables.collect() });
    }
    Err(known)
}
