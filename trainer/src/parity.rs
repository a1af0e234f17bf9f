//! Agreement with reference numbers of public packages, tensor by tensor.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use tch::{Kind, Tensor};

use crate::TrainError;
use crate::checkpoint::{ModelFolder, load_language_model, read_tensors};
use crate::model::Memory;
use crate::objective::Objective;

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

/// Relative error of a tensor: largest absolute difference over largest absolute reference value.
fn relative_error(found: &Tensor, reference: &Tensor) -> f64 {
    if found.size() != reference.size() {
        return f64::INFINITY;
    }
    let (found, reference) = (found.to_kind(Kind::Double), reference.to_kind(Kind::Double));
    let difference = (&found - &reference).abs().max().double_value(&[]);
    let scale = reference.abs().max().double_value(&[]);
    if scale == 0.0 { difference } else { difference / scale }
}

/// Runs the linked segments of `cases` through the model of `folder` and compares every tensor the
/// file holds. Cases are `segment0`, `segment1`, .. with memory carried from one to the next; their names
/// are described beside the reference files. A tensor nobody recognises is an error.
pub fn parity(folder: &Path, cases: &Path) -> Result<Vec<Group>, TrainError> {
    let model = load_language_model(&ModelFolder::open(folder)?, Kind::Float)?;
    let file = read_tensors(cases)?;
    let damaged = |what: String| TrainError::Damaged { path: cases.into(), what };
    let mut rest = file.tensors;
    let mut groups = Vec::new();
    let mut memory: Option<Memory> = None;
    for segment in 0.. {
        let prefix = format!("segment{segment}.");
        let Some(ids) = rest.remove(&format!("{prefix}input_ids")) else { break };
        let names: Vec<String> = rest.keys().filter(|n| n.starts_with(&prefix)).cloned().collect();
        let mut expected: BTreeMap<String, Tensor> = names
            .into_iter()
            .filter_map(|name| Some((name.strip_prefix(&prefix)?.to_string(), rest.remove(&name)?)))
            .collect();
        let before = memory.take().unwrap_or_else(|| model.memory_start(ids.size()[0]));
        let out = model.model.forward(&ids, &before, None);
        let length = ids.size()[1];
        // The package predicts token t + 1 of the segment from token t: one target fewer than tokens.
        let losses = model.model.nll(&out.hidden.narrow(1, 0, length - 1), &ids.narrow(1, 1, length - 1));
        let loss = losses.mean(None::<Kind>);
        loss.f_backward()?;
        let mut compare = |name: &str, limit: f64, found: Vec<(String, Tensor)>| {
            let mut group = Group {
                name: format!("{prefix}{name}"),
                tensors: 0,
                error: 0.0,
                worst: String::new(),
                limit,
            };
            for (key, tensor) in found {
                let Some(reference) = expected.remove(&key) else { continue };
                let error = relative_error(&tensor, &reference);
                if group.tensors == 0 || error.is_nan() || error > group.error {
                    (group.error, group.worst) = (error, key);
                }
                group.tensors += 1;
            }
            if group.tensors > 0 {
                groups.push(group);
            }
        };
        compare("outputs", FORWARD_LIMIT, vec![("last_hidden_state".into(), out.hidden.detach())]);
        let by_cluster = in_cluster_order(
            &losses.detach(),
            &ids.narrow(1, 1, length - 1),
            &model.model.config().cluster_ends(),
        );
        compare("losses", FORWARD_LIMIT, vec![("losses".into(), by_cluster), ("loss".into(), loss.detach())]);
        let log_probs = tch::no_grad(|| model.model.log_probs(&out.hidden));
        compare("log_probs", FORWARD_LIMIT, vec![("log_probs".into(), log_probs)]);
        let mems = out.memory.layers.iter().enumerate();
        let mems = mems.map(|(i, m)| (format!("mems.{i}"), m.transpose(0, 1).contiguous())).collect();
        compare("memories", FORWARD_LIMIT, mems);
        compare("gradients", GRADIENT_LIMIT, gradients(&model));
        if let Some(name) = expected.keys().next() {
            return Err(damaged(format!("`{prefix}{name}` is nothing this command can compute")));
        }
        memory = Some(out.memory);
    }
    match rest.keys().next() {
        Some(name) => Err(damaged(format!("`{name}` belongs to no segment"))),
        None if groups.is_empty() => Err(damaged("it holds no case".into())),
        None => Ok(groups),
    }
}

/// Losses in the order the package returns them: cluster by cluster, each in reading order (its
/// `keep_order` is off).
fn in_cluster_order(losses: &Tensor, targets: &Tensor, ends: &[usize]) -> Tensor {
    let (flat, targets) = (losses.reshape([-1]), targets.reshape([-1]));
    let cluster = |w: &[usize]| {
        let inside = targets.ge(w[0] as i64).logical_and(&targets.lt(w[1] as i64));
        flat.masked_select(&inside)
    };
    Tensor::cat(&ends.windows(2).map(cluster).collect::<Vec<_>>(), 0).view(losses.size().as_slice())
}

/// Takes every parameter's gradient, zero where backward has left none.
fn gradients(model: &impl Objective) -> Vec<(String, Tensor)> {
    let parameters = model.parameters();
    let pairs = parameters.specs().iter().zip(parameters.tensors());
    pairs
        .map(|(spec, leaf)| {
            let grad = crate::libtorch::take_grad(leaf).unwrap_or_else(|| leaf.detach().zeros_like());
            (format!("grad.{}", spec.name), grad)
        })
        .collect()
}
