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

    /// The same of whole numbers below `words`, such as ids of tokens: one at least.
    pub fn need_ids(&mut self, name: &str, axes: usize, words: usize) -> Result<Tensor, TrainError> {
        let ids = self.need(name, Kind::Int64, axes)?;
        self.check_ids(name, &ids, words)?;
        Ok(ids)
    }

    /// Refuses `ids`, which the file calls `name`, where there is none, or one that is not below `words`.
    pub fn check_ids(&self, name: &str, ids: &Tensor, words: usize) -> Result<(), TrainError> {
        if ids.numel() == 0 {
            return Err(self.damaged(format!("`{name}` holds no token")));
        }
        let (least, most) = (ids.min().int64_value(&[]), ids.max().int64_value(&[]));
        if least < 0 || most >= words as i64 {
            let last = words.saturating_sub(1);
            return Err(self.damaged(format!("`{name}` holds {least} to {most}, and 0 to {last} can be")));
        }
        Ok(())
    }

    /// Takes the ids of a segment out, `segmentN.input_ids`, `[lanes, segment]`; `None` after the last segment. `lanes` is the number of lanes of the segment before,
    /// which this one has to have too.
    pub fn segment_ids(
        &mut self,
        segment: usize,
        lanes: Option<i64>,
        words: usize,
    ) -> Result<Option<Tensor>, TrainError> {
        let name = format!("segment{segment}.input_ids");
        if !self.tensors.contains_key(&name) {
            return Ok(None);
        }
        let ids = self.need_ids(&name, 2, words)?;
        let (found, length) = ids.size2()?;
        if length < 2 {
            return Err(self.damaged(format!("`{name}` has {length} token a lane: there is none to predict")));
        }
        match lanes.filter(|lanes| *lanes != found) {
            Some(lanes) => {
                Err(self.damaged(format!("`{name}` has {found} lanes, and the segment before {lanes}")))
            }
            None => Ok(Some(ids)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(tensors: &[(&str, Tensor)]) -> Cases {
        let tensors = tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.shallow_clone()));
        Cases { tensors: tensors.collect(), path: "cases.safetensors".into(), groups: Vec::new() }
    }

    #[test]
    fn ids_that_no_model_reads_are_refused() {
        let row = |ids: &[i64]| Tensor::from_slice(ids).unsqueeze(0);
        let refused = |ids: Tensor| {
            let mut cases = cases(&[("ids", ids)]);
            cases.need_ids("ids", 2, 5).unwrap_err().to_string()
        };
        assert!(refused(row(&[0, 5])).contains("`ids` holds 0 to 5, and 0 to 4 can be"));
        assert!(refused(row(&[-1, 2])).contains("holds -1 to 2"));
        assert!(refused(row(&[])).contains("`ids` holds no token"));
        assert!(refused(Tensor::from_slice(&[1i64])).contains("with 2 axes"));
        assert!(cases(&[("ids", row(&[0, 4]))]).need_ids("ids", 2, 5).is_ok());
    }

    #[test]
    fn segments_carry_on_the_lanes_before() {
        let ids = Tensor::zeros([2, 3], (Kind::Int64, Device::Cpu));
        let mut given = cases(&[
            ("segment0.input_ids", ids),
            ("segment1.input_ids", Tensor::from_slice(&[1i64, 2]).view([2, 1])),
        ]);
        assert_eq!(given.segment_ids(0, None, 3).unwrap().unwrap().size(), [2, 3]);
        assert!(given.segment_ids(1, Some(2), 3).unwrap_err().to_string().contains("none to predict"));
        assert!(given.segment_ids(2, Some(2), 3).unwrap().is_none());
        let ids = Tensor::zeros([2, 3], (Kind::Int64, Device::Cpu));
        let why = cases(&[("segment1.input_ids", ids)]).segment_ids(1, Some(4), 3).unwrap_err().to_string();
        assert!(why.contains("`segment1.input_ids` has 2 lanes, and the segment before 4"), "{why}");
    }
}
