//! One global step: micro-steps, reduction, clip, update.

use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_collectives::Communicator;
use segue_collectives::tree::tree_sum;
use segue_configs::Config;
use segue_dataloader::seed::{Purpose, derive};

use super::buckets::GradientBuckets;
use super::layout::Layout;
use super::reducer::Reducer;
use crate::TrainError;
use crate::libtorch::GradHooks;
use crate::model::Memory;
use crate::noise::Noise;
use crate::objective::{Batch, Objective};
use crate::optim::{Adam, Average, clip_factor, global_norm, learning_rate};

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

/// Training of one objective on one rank.
pub struct Engine<'a> {
    config: &'a Config,
    comm: &'a dyn Communicator,
    /// The objective and its parameters.
    pub objective: Box<dyn Objective>,
    /// Optimizer state.
    pub optimizer: Adam,
    /// Mean of the weights, once it has begun.
    pub average: Option<Average>,
    /// Segment memory, one entry for each of this rank's micro-steps.
    pub memory: Vec<Memory>,
    /// This rank's share of the global batch.
    pub layout: Layout,
    // Order matters when dropped: hooks before buckets before the thread they feed.
    _hooks: GradHooks<GradientBuckets>,
    buckets: Arc<GradientBuckets>,
    reducer: Option<Reducer>,
}

impl<'a> Engine<'a> {
    /// Sets up buckets, hooks and the communication thread. A collective call.
    pub fn new(
        config: &'a Config,
        objective: Box<dyn Objective>,
        comm: &'a dyn Communicator,
    ) -> Result<Self, TrainError> {
        let layout = Layout::new(&config.train, comm)?;
        let (reducer, ready) = if comm.world_size() == 1 {
            (None, None)
        } else {
            let (reducer, ready) = Reducer::start(comm.duplicate()?, config.train.exact)?;
            (Some(reducer), Some(ready))
        };
        let parameters = objective.parameters();
        let micro_steps = layout.micro_steps.len();
        let buckets =
            Arc::new(GradientBuckets::new(parameters, config.train.bucket_bytes, micro_steps, ready));
        let leaves: Vec<_> = parameters.tensors().iter().collect();
        let hooks = GradHooks::install(&leaves, buckets.clone())?;
        let optimizer = Adam::new(&config.optim, parameters);
        let memory =
            layout.micro_steps.clone().map(|_| objective.memory_start(layout.micro_batch as i64)).collect();
        Ok(Self {
            config,
            comm,
            objective,
            optimizer,
            average: None,
            memory,
            layout,
            _hooks: hooks,
            buckets,
            reducer,
        })
    }

    /// Makes update number `step` (from 1) of the run from one batch for each of this rank's
    /// micro-steps.
    pub fn step(&mut self, step: u64, batches: &[Batch]) -> Result<StepReport, TrainError> {
        let mut sums = Vec::with_capacity(2 * batches.len());
        for (i, batch) in batches.iter().enumerate() {
            let micro_step = self.layout.micro_steps.start + i;
            let seed = derive(self.config.train.seed, Purpose::Dropout, &[step, micro_step as u64]);
            self.buckets.begin(i);
            let loss = self.objective.loss(batch, &self.memory[i], Some(&Noise::new(seed)));
            match &loss.auxiliary {
                Some(auxiliary) => (&loss.sum + auxiliary).f_backward()?,
                None => loss.sum.f_backward()?,
            }
            self.buckets.finish();
            sums.push([loss.sum.double_value(&[]), loss.weight]);
            self.memory[i] = loss.memory;
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
        self.optimizer.step(self.objective.parameters(), &grads, divisor, lr)?;
        if let Some(average) = &mut self.average {
            average.update(self.objective.parameters());
        }
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

    /// From the next step on, keeps the mean of the weights.
    pub fn start_average(&mut self) {
        self.average.get_or_insert_with(|| Average::new(self.objective.parameters()));
    }

    /// Runs `work` on the objective with the mean of the weights in their place, where there is one.
    pub fn with_average<T>(&mut self, work: impl FnOnce(&mut dyn Objective) -> T) -> T {
        let Some(average) = self.average.as_mut().filter(|average| average.count() > 0) else {
            return work(self.objective.as_mut());
        };
        average.swap(self.objective.parameters());
        let result = work(self.objective.as_mut());
        average.swap(self.objective.parameters());
        result
    }

    /// Number of gradient buckets.
    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }
}

fn finite(step: u64, what: &'static str, value: f64) -> Result<f64, TrainError> {
    if value.is_finite() { Ok(value) } else { Err(TrainError::NonFinite { step, what, value }) }
}
