//! What one optimizer updates.

use std::sync::Arc;

use super::buckets::{GradientBuckets, Ready};
use crate::libtorch::GradHooks;
use crate::optim::averaging::{self, Averaging};
use crate::optim::{self, Optimizer, Update, clip_factor, global_norm, learning_rate};
use crate::{Parameters, TrainError};
use segue_configs::Config;
use segue_world::Sender;

/// One network of a run: its optimizer, the averages of its weights, and the buckets of its gradients.
pub struct Network {
    /// Its name.
    pub name: &'static str,
    /// Its update rule, with state.
    pub optimizer: Box<dyn Optimizer>,
    /// Averages of its weights.
    pub averaging: Box<dyn Averaging>,
    config: Config,
    // Hooks before buckets when dropped.
    _hooks: GradHooks<GradientBuckets>,
    buckets: Arc<GradientBuckets>,
}

/// What an update did to a network.
#[derive(Debug, Clone, Copy)]
pub struct Updated {
    /// Learning rate.
    pub lr: f64,
    /// Global norm of its gradient before clipping.
    pub grad_norm: f64,
}

impl Network {
    /// Sets hooks on `parameters`. Sums of `micro_steps` gradients go to `ready`, bucket by bucket.
    pub fn new(
        name: &'static str,
        config: &Config,
        parameters: &Parameters,
        micro_steps: usize,
        ready: Option<Sender<Ready>>,
    ) -> Result<Self, TrainError> {
        let config = config.of_network(name);
        let buckets =
            Arc::new(GradientBuckets::new(parameters, config.train.bucket_bytes, micro_steps, ready));
        let leaves: Vec<_> = parameters.tensors().iter().collect();
        let hooks = GradHooks::install(&leaves, buckets.clone())?;
        let optimizer = optim::build(&config.optim, parameters);
        let averaging = averaging::build(&config.average, config.eval.every, parameters);
        Ok(Self { name, optimizer, averaging, config, _hooks: hooks, buckets })
    }

    /// Lets averages begin with the weights as they are now.
    pub fn begin_averages(&mut self, parameters: &Parameters) {
        let Config { average, eval, .. } = &self.config;
        self.averaging = averaging::build(average, eval.every, parameters);
    }

    /// Where its gradients add up.
    pub fn buckets(&self) -> &GradientBuckets {
        &self.buckets
    }

    /// Norm of the gradients that its buckets hold.
    pub fn gradient_norm(&self) -> f64 {
        global_norm(&self.buckets.gradients())
    }

    /// Makes update `step` of the run with the gradients that its buckets hold, sums over `targets` targets; the norm of
    /// their mean is `grad_norm`.
    pub fn update(
        &mut self,
        parameters: &Parameters,
        step: u64,
        targets: f64,
        grad_norm: f64,
        reached: Option<&[bool]>,
    ) -> Result<Updated, TrainError> {
        let grads = self.buckets.gradients();
        let lr = learning_rate(&self.config, step);
        let divisor = targets / clip_factor(grad_norm, self.config.optim.clip);
        self.optimizer.update(parameters, &Update { grads: &grads, divisor, lr, reached })?;
        Ok(Updated { lr, grad_norm })
    }
}

/// Refuses a value that is NaN or infinite.
pub fn finite(step: u64, what: &'static str, value: f64) -> Result<f64, TrainError> {
    if value.is_finite() { Ok(value) } else { Err(TrainError::NonFinite { step, what, value }) }
}
