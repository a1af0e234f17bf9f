use tch::Tensor;

use crate::Parameters;

/// The running mean of weights over steps (Polyak and Juditsky 1992; in AWD-LSTM, Merity et al. 2018,
/// section 4).
pub struct Average {
    mean: Vec<Tensor>,
    count: u64,
}

impl Average {
    /// A mean of nothing yet, for these parameters.
    pub fn new(parameters: &Parameters) -> Self {
        Self { mean: parameters.tensors().iter().map(|t| t.detach().copy()).collect(), count: 0 }
    }

    /// A mean of `count` weights, as a checkpoint holds it.
    pub fn restored(mean: Vec<Tensor>, count: u64) -> Self {
        Self { mean, count }
    }

    /// Weights in the mean.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, in the order of the parameters.
    pub fn mean(&self) -> &[Tensor] {
        &self.mean
    }

    /// Takes the present weights into the mean.
    pub fn update(&mut self, parameters: &Parameters) {
        self.count += 1;
        let share = 1.0 / self.count as f64;
        tch::no_grad(|| {
            for (mean, weight) in self.mean.iter_mut().zip(parameters.tensors()) {
                let _ = mean.lerp_(weight, share);
            }
        });
    }

    /// Exchanges the mean and the weights; a second call undoes it.
    pub fn swap(&mut self, parameters: &Parameters) {
        tch::no_grad(|| {
            for (mean, weight) in self.mean.iter_mut().zip(parameters.tensors()) {
                let held = mean.copy();
                mean.copy_(weight);
                weight.shallow_clone().copy_(&held);
            }
        });
    }
}
