//! A segment's loss and its gradients, for those that learn from them and those that gather them.

use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_language::NextToken;
use segue_layers::Memory;
use tch::{Kind, Tensor};

/// What of a segment is differentiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientOf {
    /// The mean loss of its targets, and of its lanes.
    Mean,
    /// The sum over the targets of a lane, in the mean over lanes (Melis 2023, §2.2.2).
    Sum,
}

impl GradientOf {
    /// Of the losses of real targets, `[lanes, targets]`: a scalar with its graph.
    pub(super) fn objective(self, losses: &Tensor) -> Tensor {
        match self {
            Self::Mean => losses.mean(None::<Kind>),
            Self::Sum => losses.sum(None::<Kind>) / losses.size()[0] as f64,
        }
    }
}

/// Loss of one segment, its gradients, and the next memory.
pub(super) struct Scored {
    /// −ln P of the real targets, `[lanes, targets]`.
    pub losses: Tensor,
    pub nats: f64,
    pub grads: Vec<Option<Tensor>>,
    pub memory: Memory,
}

/// Scores a segment of each lane, `[lanes, segment]` both, with dropout where there is noise. `real`: targets from the left that are no padding.
pub(super) fn score_and_differentiate(
    model: &dyn NextToken,
    (inputs, targets): (&Tensor, &Tensor),
    real: usize,
    gradient: GradientOf,
    memory: &Memory,
    noise: Option<&Noise>,
) -> Result<Scored, TrainError> {
    let (nll, memory) = model.nll_with(inputs, targets, memory, noise);
    let losses = nll.narrow(1, 0, real as i64);
    gradient.objective(&losses).f_backward()?;
    let grads = model.parameters().tensors().iter().map(segue_kernels::libtorch::take_grad).collect();
    let losses = losses.detach();
    let nats = losses.to_kind(Kind::Double).sum(None::<Kind>).double_value(&[]);
    Ok(Scored { losses, nats, grads, memory })
}
