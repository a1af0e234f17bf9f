//! Agreement with the numbers of public packages, tensor by tensor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use segue_engine::checkpoint::read_tensors;
use segue_kernels::{Parameters, TrainError};
use serde::Serialize;
use tch::{Device, Kind, Tensor};

/// Largest relative error allowed for outputs, losses, log-probabilities and memories.
pub const FORWARD_LIMIT: f64 = 1e-5;
/// Largest relative error allowed for gradients.
pub const GRADIENT_LIMIT: f64 = 1e-4;

/// Agreement of one group of tensors.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// Which segment, and what kind of tensor.
    pub name: String,
    /// Tensors compared.
    pub tensors: usize,
    /// Largest of their relative errors.
    pub error: f64,
    /// The tensor that has it.
    pub worst: String,
    /// What is allowed.
    pub limit: f64,
}

impl Group {
    /// Whether the group holds. Errors that are not numbers do not.
    pub fn holds(&self) -> bool {
        self.error <= self.limit
    }
}

/// Gradients below this share of the largest of their case are zero but for rounding: those of biases that shift
/// all arguments of a softmax. They count beside that largest one.
const ROUNDING: f64 = 1e-6;

/// Largest absolute value.
fn largest(tensor: &Tensor) -> f64 {
    if tensor.numel() == 0 { 0.0 } else { tensor.to_kind(Kind::Double).abs().max().double_value(&[]) }
}

/// Relative error of a tensor: largest absolute difference over largest absolute reference value, which counts as
/// `peak` where it is rounding beside it.
fn relative_error(found: &Tensor, reference: &Tensor, peak: f64) -> f64 {
    if found.size() != reference.size() {
        return f64::INFINITY;
    }
    let difference = largest(&(found.to_kind(Kind::Double) - reference.to_kind(Kind::Double)));
    let scale = largest(reference);
    let scale = if scale < ROUNDING * peak { peak } else { scale };
    if scale == 0.0 { difference } else { difference / scale }
}

/// What a file holds and nobody has compared yet, and the groups that were.
pub struct Cases {
    /// What it holds, by name.
    pub tensors: BTreeMap<String, Tensor>,
    path: PathBuf,
    groups: Vec<Group>,
}

impl Cases {
    /// The cases of a file.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        Ok(Self { tensors: read_tensors(path)?.tensors, path: path.into(), groups: Vec::new() })
    }

    /// The same with tensors on `device`, where the model is.
    pub fn to(self, device: Device) -> Self {
        let tensors = self.tensors.into_iter().map(|(name, tensor)| (name, tensor.to_device(device)));
        Self { tensors: tensors.collect(), ..self }
    }

    /// The groups, once all cases have been compared. A tensor nobody recognised is an error.
    pub fn finish(self) -> Result<Vec<Group>, TrainError> {
        match self.tensors.keys().next() {
            Some(name) => {
                Err(self.damaged(format!("`{name}` is not a quantity that this command can compute")))
            }
            None if self.groups.is_empty() => Err(self.damaged("it holds no case".into())),
            None => Ok(self.groups),
        }
    }

    /// The error of a file with this wrong.
    pub fn damaged(&self, what: String) -> TrainError {
        TrainError::Damaged { path: self.path.clone(), what }
    }

    /// Takes a tensor out, where it is there.
    pub fn take(&mut self, name: &str) -> Option<Tensor> {
        self.tensors.remove(name)
    }

    /// Takes a tensor out that a case cannot do without, of this kind and number of axes.
    pub fn need(&mut self, name: &str, kind: Kind, axes: usize) -> Result<Tensor, TrainError> {
        let tensor = self.take(name).ok_or_else(|| self.damaged(format!("it has no `{name}`")))?;
        if tensor.kind() != kind || tensor.dim() != axes {
            let what =
                format!("`{name}` is {:?} {:?}, not {kind:?} with {axes} axes", tensor.kind(), tensor.size());
            return Err(self.damaged(what));
        }
        Ok(tensor)
    }

    /// Compares what was `found`, named without `prefix`, with what the file holds of it.
    pub fn compare(&mut self, prefix: &str, name: &str, limit: f64, found: Vec<(String, Tensor)>) {
        let mut group =
            Group { name: format!("{prefix}{name}"), tensors: 0, error: 0.0, worst: String::new(), limit };
        let take = |(key, tensor)| Some((self.tensors.remove(&format!("{prefix}{key}"))?, key, tensor));
        let pairs: Vec<(Tensor, String, Tensor)> = found.into_iter().filter_map(take).collect();
        let gradients = pairs.iter().filter(|(_, key, _)| key.starts_with("grad."));
        let peak = gradients.map(|(reference, ..)| largest(reference)).fold(0.0, f64::max);
        for (reference, key, tensor) in pairs {
            let error = relative_error(&tensor, &reference, peak);
            if group.tensors == 0 || error.is_nan() || error > group.error {
                (group.error, group.worst) = (error, key);
            }
            group.tensors += 1;
        }
        if group.tensors > 0 {
            self.groups.push(group);
        }
    }
}

/// Takes every parameter's gradient, zero where backward has left none.
pub fn gradients(parameters: &Parameters) -> Vec<(String, Tensor)> {
    let pairs = parameters.specs().iter().zip(parameters.tensors());
    pairs
        .map(|(spec, leaf)| {
            let grad = segue_kernels::libtorch::take_grad(leaf).unwrap_or_else(|| leaf.detach().zeros_like());
            let grad = if grad.is_sparse() { grad.to_dense(None, false) } else { grad };
            (format!("grad.{}", spec.name), grad)
        })
        .collect()
}
