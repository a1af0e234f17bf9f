use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_foreign::{NamedTensor, RawTensor, SafetensorsFile, ShardIndex, TorchFile};
use segue_kernels::TrainError;
use segue_publish::read_regular;

use super::place::{Place, plain};
use super::source::Variable;

/// Ending of the list of the files that weights are spread over.
pub const INDEX: &str = ".index.json";

/// Tensors of one or more files of PyTorch and safetensors.
#[derive(Default)]
pub struct Tensors {
    /// What is known of them.
    pub variables: Vec<Variable>,
    /// The files they were read from.
    pub files: Vec<PathBuf>,
    /// Their values, by number.
    pub values: Vec<RawTensor>,
}

impl Tensors {
    /// Opens a file, or all files that a list of pieces names.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let mut all = Self::default();
        match path.to_string_lossy().ends_with(INDEX) {
            true => all.add_pieces(path)?,
            false => all.add(path)?,
        }
        Ok(all)
    }

    /// Adds the tensors of a file, which is safetensors by its ending, else of `torch.save`.
    pub fn add(&mut self, path: &Path) -> Result<(), TrainError> {
        self.files.push(path.into());
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            for entry in SafetensorsFile::open(path)?.entries() {
                let (name, dtype, shape) = (plain(&entry.name), entry.dtype.clone(), entry.shape.clone());
                let number = entry.tensor().ok().map(|tensor| self.keep(tensor));
                self.variables.push(Variable { name, dtype, shape, bytes: entry.bytes(), number });
            }
            return Ok(());
        }
        let file = TorchFile::open(path)?;
        let damaged = |what| TrainError::Damaged { path: path.into(), what };
        self.extend(file.tensors(file.root()).map_err(damaged)?);
        Ok(())
    }

    fn extend(&mut self, tensors: Vec<NamedTensor>) {
        for NamedTensor { name, tensor } in tensors {
            self.variables.push(Variable {
                name: plain(&name),
                dtype: tensor.dtype().to_string(),
                shape: tensor.shape().to_vec(),
                bytes: tensor.numel() * tensor.dtype().bytes(),
                number: Some(self.values.len()),
            });
            self.values.push(tensor);
        }
    }

    /// Gives every tensor the name that it has in the model, wherever that lies.
    pub fn rename(&mut self, place: &Place) {
        for variable in &mut self.variables {
            variable.name = place.name_of(&variable.name);
        }
    }

    /// The number of a tensor that is put with the others.
    fn keep(&mut self, tensor: RawTensor) -> usize {
        self.values.push(tensor);
        self.values.len() - 1
    }

    /// Adds the files of a list; each has to hold what the list says, and no tensor may be there twice.
    fn add_pieces(&mut self, index: &Path) -> Result<(), TrainError> {
        let damaged = |what: String| TrainError::Damaged { path: index.into(), what };
        let text = read_regular(index).map_err(|source| TrainError::Read { path: index.into(), source })?;
        let listed = ShardIndex::parse(&text).map_err(damaged)?;
        for (file, names) in &listed.files {
            let path = index.with_file_name(file);
            if !path.is_file() {
                let why = format!("{} lists it; all the files it lists are needed", index.display());
                return Err(DataError::Missing { path, why }.into());
            }
            let before = self.variables.len();
            self.add(&path)?;
            let (old, new) = self.variables.split_at(before);
            if let Some(missing) = names.iter().find(|name| !new.iter().any(|v| v.name == plain(name))) {
                return Err(damaged(format!(
                    "it says that `{missing}` lies in {file}, which has no such tensor"
                )));
            }
            if let Some(twice) = new.iter().find(|v| old.iter().any(|other| other.name == v.name)) {
                return Err(damaged(format!("two of the files it lists hold `{}`", twice.name)));
            }
        }
        Ok(())
    }
}

impl From<Vec<NamedTensor>> for Tensors {
    /// Tensors that are read already.
    fn from(tensors: Vec<NamedTensor>) -> Self {
        let mut all = Self::default();
        all.extend(tensors);
        all
    }
}
