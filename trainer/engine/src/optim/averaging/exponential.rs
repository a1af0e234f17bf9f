use segue_kernels::Parameters;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::Tensor;

use super::mean::Mean;
use super::{Averaging, AveragingError, Candidate, CandidateLoss, Choice, Saved};

/// The exponential moving average m_t = (1 − β_t) θ_t + β_t m_{t−1} with m_0 = θ_0. With warm-up
/// β_t = min(1 − 1 / (t + 1), β), which is Polyak's mean of θ_0 … θ_t until the minimum is β.
pub struct Exponential {
    name: &'static str,
    /// β; 1 for Polyak's mean.
    beta: f64,
    warmup: bool,
    mean: Mean,
}

/// What a checkpoint says of it.
#[derive(Serialize, Deserialize)]
struct State {
    /// Weights in the average, the initial ones included.
    count: u64,
}

impl Exponential {
    /// The average of `parameters`, which are those before the first update.
    pub fn new(beta: f64, warmup: bool, parameters: &Parameters) -> Self {
        Self { name: "exponential", beta, warmup, mean: Mean::of(parameters) }
    }

    /// The mean of all weights since `parameters`, those included (Polyak and Juditsky 1992).
    pub fn polyak(parameters: &Parameters) -> Self {
        Self { name: "polyak", beta: 1.0, warmup: true, mean: Mean::of(parameters) }
    }
}

impl Averaging for Exponential {
    fn fold(&mut self, _: u64, parameters: &Parameters) {
        let constant = 1.0 - self.beta;
        let alike = 1.0 / (self.mean.count() + 1) as f64;
        self.mean.fold_weighted(parameters, if self.warmup { constant.max(alike) } else { constant });
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        vec![Candidate::average(self.name, self.mean.count(), self.mean.tables())]
    }

    fn observe(&mut self, _: u64, losses: &[CandidateLoss], _: &Parameters) -> Choice {
        assert_eq!(losses.len(), 1, "one loss for each candidate");
        Choice::plain(&self.candidates(), losses, 0)
    }

    fn chosen(&self) -> Option<&[Tensor]> {
        Some(self.mean.tables())
    }

    fn state(&self) -> Value {
        json!(State { count: self.mean.count() })
    }

    fn restore(&mut self, saved: Saved, parameters: &Parameters) -> Result<(), AveragingError> {
        let state: State = saved.read()?;
        self.mean.restore(saved.chosen, state.count, parameters)
    }
}
