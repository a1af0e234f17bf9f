//! Lists the variables of a file, without building a model from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use segue_configs::exit_code;
use segue_data_error::DataError;
use segue_foreign::Bundle;
use segue_kernels::TrainError;
use serde::Serialize;

use super::optimizer;
use super::sources::{Tensors, Variable, detect, only_file};

/// A variable.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: String,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Bytes of its values in the file.
    pub bytes: usize,
    /// Whether it belongs to the optimizer.
    pub optimizer: bool,
}

/// The variables of a checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct Listing {
    /// What program wrote it, where that is known: as in reports of conversions, else `unknown`.
    pub kind: &'static str,
    /// The file, or the list of its pieces.
    pub path: PathBuf,
    /// The files that hold the values.
    pub files: Vec<PathBuf>,
    /// Bytes of all values.
    pub bytes: usize,
    /// Values of all variables but the optimizer's.
    pub values: usize,
    /// Number of variables of each type, the optimizer's among them.
    pub dtypes: BTreeMap<String, usize>,
    /// Where in its file the model lies, where it is not the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Its variables.
    pub variables: Vec<Listed>,
}

impl Listing {
    /// `layout`: the kind of source whose names for the optimizer's variables are looked for.
    fn new(
        kind: &'static str,
        layout: &str,
        path: PathBuf,
        files: Vec<PathBuf>,
        variables: Vec<Variable>,
    ) -> Self {
        let listed = |variable: Variable| Listed {
            optimizer: optimizer::slot(layout, &variable.name).is_some()
                || optimizer::is_of_the_state(layout, &variable.name),
            name: variable.name,
            dtype: variable.dtype,
            shape: variable.shape,
            bytes: variable.bytes,
        };
        let variables: Vec<Listed> = variables.into_iter().map(listed).collect();
        let bytes = variables.iter().map(|variable| variable.bytes).sum();
        let own = variables.iter().filter(|variable| !variable.optimizer);
        let values = own.map(|variable| variable.shape.iter().product::<usize>()).sum();
        let mut dtypes = BTreeMap::new();
        variables.iter().for_each(|variable| *dtypes.entry(variable.dtype.clone()).or_default() += 1);
        Self { kind, path, files, bytes, values, dtypes, note: None, variables }
    }
}

/// Lists a checkpoint of any format that conversion reads, and also of models that it does not know.
pub fn inspect(path: &Path) -> Result<Listing, TrainError> {
    let known = match detect(path) {
        Ok(source) => {
            let note = source.facts.place.note();
            let listing = Listing::new(source.kind, source.kind, source.path, source.files, source.variables);
            return Ok(Listing { note, ..listing });
        }
        Err(several @ TrainError::Data(DataError::Usage(_))) => return Err(several),
        Err(error) => error,
    };
    if let Ok(bundle) = Bundle::open(path) {
        let variables = Variable::of_bundle(&bundle);
        let files = bundle.files().map(Path::to_path_buf).collect();
        return Ok(Listing::new("unknown", "tensorflow", bundle.index, files, variables));
    }
    let weights = match path.is_dir() {
        false => Some(path.to_path_buf()).filter(|path| path.is_file()),
        true => only_file(path),
    };
    let Some(weights) = weights else { return Err(known) };
    match Tensors::open(&weights) {
        Ok(mut tensors) => {
            let files = std::mem::take(&mut tensors.files);
            Ok(Listing::new("unknown", "unknown", weights, files, tensors.variables))
        }
        // No file that is missing is why damaged weights cannot be listed.
        Err(damage) if known.exit_code() == exit_code::NO_INPUT => Err(damage),
        Err(_) => Err(known),
    }
}

#[cfg(test)]
mod tests {
    use segue_engine::checkpoint::{carry_file, write_tensors};
    use tch::Tensor;

    use super::*;

    #[test]
    fn damaged_weights_are_named_and_not_the_configuration_that_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.safetensors");
        std::fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
        for given in [path.as_path(), dir.path()] {
            let error = inspect(given).unwrap_err();
            assert_eq!(error.exit_code(), exit_code::BAD_DATA, "{error}");
            assert!(error.to_string().contains("weights.safetensors"), "{error}");
        }
    }

    #[test]
    fn what_lanes_carry_is_not_taken_for_the_model() {
        let dir = tempfile::tempdir().unwrap();
        write_tensors(
            &dir.path().join(carry_file(0)),
            &[("memory".into(), Tensor::ones([2], tch::kind::FLOAT_CPU))],
        )
        .unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("model.safetensors")).unwrap();
        assert!(inspect(dir.path()).is_err());
    }
}
