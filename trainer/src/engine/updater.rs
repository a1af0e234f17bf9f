//! What every kind of training shares: micro-steps, reduction, clip, update.

use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_collectives::Communicator;
use segue_collectives::tree::tree_sum;
use segue_configs::Config;
use segue_dataloader::seed::{Purpose, derive};
use tch::Tensor;

use super::buckets::GradientBuckets;
use super::layout::Layout;
use super::reducer::Reducer;
use crate::libtorch::GradHooks;
use crate::noise::Noise;
use crate::optim::{Adam, clip_factor, global_norm, learning_rate};
use crate::{Parameters, TrainError};

/// What one global step did.
#[derive(Debug, Clone, Copy)]
pub struct StepReport {
    /// Its number, from 1.
    pub step: u64,
    /// Mean loss over the global batch, in nats a target.
    pub loss: f64,
    /// Targets of the global batch.
    pub targets: f64,
    /// Learning rate.
    pub lr: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Time this rank waited for reductions after its backward was over.
    pub communication_exposed: Duration,
}

/// What one micro-step is to lower.
pub struct MicroLoss {
    /// Sum over targets; scalar, with its graph.
    pub sum: Tensor,
    /// Targets it is a sum of.
    pub weight: f64,
    /// What is trained for beside it, divided like it and not reported; scalar, with its graph.
    pub auxiliary: Option<Tensor>,
}

/// Updates of one set of parameters by all ranks together.
pub struct Updater<'a> {
    config: &'a Config,
    comm: &'a dyn Communicator,
    /// Optimizer state.
    pub optimizer: Adam,
    /// This rank's share of the global batch.
    pub layout: Layout,
    // Order matters when dropped: hooks before buckets before the thread they feed.
    _hooks: GradHooks<GradientBuckets>,
    buckets: Arc<GradientBuckets>,
    reducer: Option<Reducer>,
}

impl<'a> Updater<'a> {
    /// Sets up buckets, hooks and the communication thread. A collective call.
    pub fn new(
        config: &'a Config,
        parameters: &Parameters,
        comm: &'a dyn Communicator,
    ) -> Result<Self, TrainError> {
        let layout = Layout::new(&config.train, comm)?;
        let (reducer, ready) = if comm.world_size() == 1 {
            (None, None)
        } else {
            let (reducer, ready) = Reducer::start(comm.duplicate()?, config.train.exact)?;
            (Some(reducer), Some(ready))
        };
        let micro_steps = layout.micro_steps.len();
        let buckets =
            Arc::new(GradientBuckets::new(parameters, config.train.bucket_bytes, micro_steps, ready));
        let leaves: Vec<_> = parameters.tensors().iter().collect();
        let hooks = GradHooks::install(&leaves, buckets.clone())?;
        let optimizer = Adam::new(&config.optim, parameters);
        Ok(Self { config, comm, optimizer, layout, _hooks: hooks, buckets, reducer })
    }

    /// Makes update number `step` (from 1) of the run. `micro_step` gives the loss of each of this rank's
    /// micro-steps, told by its number from 0; `reached` says which parameters the step has to do with, where not
    /// with all.
    pub fn step(
        &mut self,
        parameters: &Parameters,
        step: u64,
        reached: Option<&[bool]>,
        mut micro_step: impl FnMut(usize, &Noise) -> MicroLoss,
    ) -> Result<StepReport, TrainError> {
        let micro_steps = self.layout.micro_steps.clone();
        let mut sums = Vec::with_capacity(micro_steps.len());
        for (i, number) in micro_steps.enumerate() {
            let seed = derive(self.config.train.seed, Purpose::Dropout, &[step, number as u64]);
            self.buckets.begin(i);
            let loss = micro_step(i, &Noise::new(seed));
            match &loss.auxiliary {
                Some(auxiliary) => (&loss.sum + auxiliary).f_backward()?,
                None => loss.sum.f_backward()?,
            }
            self.buckets.finish();
            sums.push([loss.sum.double_value(&[]), loss.weight]);
        }
        let [loss, targets] = self.global_sum(&sums)?;
        let waiting = Instant::now();
        if let Some(reducer) = &self.reducer {
            reducer.wait(self.buckets.len())?;
        }
        let communication_exposed = waiting.elapsed();
        let loss = finite(step, "the loss", loss / targets)?;
        let grads = self.buckets.gradients();
        let grad_norm = finite(step, "the gradient norm", global_norm(&grads) / targets)?;
        let lr = learning_rate(self.config, step);
        let divisor = targets / clip_factor(grad_norm, self.config.optim.clip);
        self.optimizer.step(parameters, &grads, divisor, lr, reached)?;
        Ok(StepReport { step, loss, targets, lr, grad_norm, communication_exposed })
    }

    /// Loss sums and weights of all micro-steps of the job, added up in the order of the tree.
    fn global_sum(&self, own: &[[f64; 2]]) -> Result<[f64; 2], TrainError> {
        let bytes: Vec<u8> = own.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
        let all = self.comm.all_gather(&bytes)?;
        let number = |b: &[u8]| f64::from_le_bytes(std::array::from_fn(|i| b[i]));
        let pairs = all.iter().flat_map(|bytes| bytes.chunks_exact(16)).map(|b| [number(b), number(&b[8..])]);
        Ok(tree_sum(pairs.collect(), |a, b| [a[0] + b[0], a[1] + b[1]]).unwrap_or_default())
    }

    /// Number of gradient buckets.
    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }
}

fn finite(step: u64, what: &'static str, value: f64) -> Result<f64, TrainError> {
    if value.is_finite() { Ok(value) } else { Err(TrainError::NonFinite { step, what, value }) }
}
