//! What one optimizer updates.

use std::sync::Arc;

use segue_collectives::{CollectiveError, Communicator};
use segue_configs::{AverageConfig, AverageKind, Config, CountOf, OptimConfig, Shard};
use segue_kernels::libtorch::GradHooks;
use segue_kernels::libtorch::stream::Event;
use segue_kernels::{Parameters, TrainError};
use segue_world::Sender;
use tch::Tensor;

use super::buckets::{GradientBuckets, group};
use super::fill::fill;
use super::jobs::{Gather, Job};
use super::shard::{Kept, Row, Shards};
use super::state::FineTuning;
use crate::optim::averaging::{self, Averaging, AveragingError, CandidateLoss, Choice, NoAveraging, Saved};
use crate::optim::{self, Optimizer, Schedule, Update, clip_factor, joint_norm, norms};

/// One network of a run: its optimizer, the averages of its weights, and the buckets of its gradients.
pub struct Network {
    /// Its name.
    pub name: &'static str,
    /// Its update rule, with state.
    pub optimizer: Box<dyn Optimizer>,
    /// Averages of its weights.
    pub averaging: Box<dyn Averaging>,
    /// What is left of the learning rate, after a run has diverged.
    pub rate: f64,
    optim: OptimConfig,
    schedule: Schedule,
    average: AverageConfig,
    /// Steps between evaluations; 0 for the end only.
    evaluated_every: u64,
    shards: Shards,
    /// Its weights by bucket, where ranks divide them.
    rows: Vec<Row>,
    /// What this rank has of its weights to average, where ranks divide them.
    part: Option<Parameters>,
    /// Of gradients that are divided: what this rank has of the step's.
    kept: Kept,
    /// Where its jobs of communication go.
    jobs: Option<Sender<Job>>,
    /// Whether ranks have agreed on the order of its buckets.
    ordered: bool,
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
    /// Sets hooks on `parameters`. `config` is that of this network; see [`Config::of_network`]. Sums of `micro_steps` gradients go to `jobs`, bucket
    /// by bucket. `comm` says which rank this is.
    pub fn new(
        name: &'static str,
        config: Config,
        parameters: &Parameters,
        micro_steps: usize,
        jobs: Option<Sender<Job>>,
        comm: &dyn Communicator,
    ) -> Result<Self, TrainError> {
        let groups = group(parameters.specs(), config.train.bucket_bytes);
        let shards = Shards::new(config.train.shard, parameters, &groups, comm.rank(), comm.world_size());
        // Before anybody has a part of them.
        let rows = shards.lay_out(parameters, &groups);
        let buckets = GradientBuckets::new(parameters, &groups, micro_steps, jobs.clone());
        // What ranks divide by values has no rows. By the configuration, so that any number of ranks does alike.
        let by_rows = config.train.shard == Shard::None && optim::updates_rows(&config.optim);
        let buckets = Arc::new(match () {
            () if shards.divides_gradients() => buckets.divided(&shards),
            () if by_rows => buckets.by_rows(),
            () => buckets,
        });
        let leaves: Vec<_> = parameters.leaves().iter().collect();
        let hooks = GradHooks::install(&leaves, buckets.clone())?;
        let optimizer = optim::build(&config.optim, parameters, shards.own().to_vec());
        let part = shards.part(parameters);
        let averaged = part.as_ref().unwrap_or(parameters);
        let averaging = averaging::build(&config.average, config.eval.every, averaged);
        let schedule =
            Schedule::new(&config.schedule, config.peak_lr(), config.schedule_steps(), config.rising);
        let (rate, kept) = (1.0, Kept::default());
        Ok(Self {
            name,
            optimizer,
            averaging,
            rate,
            optim: config.optim,
            schedule,
            average: config.average,
            evaluated_every: config.eval.every,
            shards,
            rows,
            part,
            kept,
            jobs,
            ordered: false,
            _hooks: hooks,
            buckets,
        })
    }

    /// Which rank updates what.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Takes what this rank keeps of a step's sums, where gradients are divided, and those that do not lie in their buckets.
    pub fn keep(&mut self, mut kept: Kept) {
        std::mem::take(&mut kept.tables)
            .into_iter()
            .for_each(|(bucket, total)| self.buckets.put(bucket, total));
        kept.gradients.sort_by_key(|(piece, _)| *piece);
        self.kept = kept;
    }

    /// Lets all ranks hand over buckets in the order in which rank 0's were complete in its first step: the order of parameters says only roughly when
    /// backward is through with them, and a bucket that waits for one before it is added up late. A collective call.
    pub fn order_buckets(&mut self, comm: &dyn Communicator) -> Result<(), CollectiveError> {
        if std::mem::replace(&mut self.ordered, true) {
            return Ok(());
        }
        let mut order: Vec<u32> = self.buckets.arrived().into_iter().map(|bucket| bucket as u32).collect();
        comm.broadcast(0, bytemuck::cast_slice_mut(&mut order))?;
        tracing::debug!(network = self.name, ?order, "buckets go in the order of rank 0's backward");
        self.buckets.hand_over_in(order.into_iter().map(|bucket| bucket as usize).collect());
        Ok(())
    }

    /// The kind of average that it keeps.
    pub fn average_kind(&self) -> AverageKind {
        self.average.kind
    }

    /// What its averages are of: `parameters`, or this rank's part of them.
    pub fn averaged<'a>(&'a self, parameters: &'a Parameters) -> &'a Parameters {
        self.part.as_ref().unwrap_or(parameters)
    }

    /// Takes the weights after update number `step` into its averages, and lets training go on from one whose time has come: true where it does,
    /// and other ranks have the other parts.
    pub fn average(&mut self, step: u64, parameters: &Parameters) -> bool {
        let own = self.part.as_ref().unwrap_or(parameters);
        self.averaging.fold(step, own);
        let average = self.averaging.hand_over(step);
        let Some(average) = average else { return false };
        // What is sent of the trained ones is out by then.
        parameters.arrivals().wait_for_all();
        fill(own.tensors().iter().zip(average));
        true
    }

    /// Tells its averages the losses of what they offer, and whether the evaluation `counts`.
    pub fn choose(
        &mut self,
        step: u64,
        counts: bool,
        losses: &[CandidateLoss],
        parameters: &Parameters,
    ) -> Choice {
        let own = self.part.as_ref().unwrap_or(parameters);
        match counts {
            true => self.averaging.observe(step, losses, own),
            false => self.averaging.compare(step, losses, own),
        }
    }

    /// Goes on with averages of a checkpoint, of which `saved` holds this rank's part.
    pub fn restore_averages(&mut self, saved: Saved, parameters: &Parameters) -> Result<(), AveragingError> {
        self.averaging.restore(saved, self.part.as_ref().unwrap_or(parameters))
    }

    /// This rank's part of weights of all parameters.
    pub fn part_of(&self, weights: Vec<Tensor>) -> Vec<Tensor> {
        match self.part {
            None => weights,
            Some(_) => self.shards.own().iter().map(|piece| piece.of(&weights[piece.parameter])).collect(),
        }
    }

    /// Lets the communication thread bring in what other ranks have of `parameters`, where they divide them, bucket by bucket: those first that backward
    /// is through with last, as a forward pass reads them first. Whoever reads some waits for them.
    pub fn gather(&self, parameters: &Parameters) -> Result<(), TrainError> {
        let Some(jobs) = self.jobs.as_ref().filter(|_| self.shards.is_divided()) else { return Ok(()) };
        let (order, device) = (self.buckets.order(), parameters.options().1);
        let members = self.rows.iter().map(|row| row.members.clone());
        // Before anything is announced: what does not come after that is the thread's to explain.
        let made = Arc::new(Event::now(device)?);
        let bring = parameters.arrivals().announce(members, device);
        for row in order.iter().rev().map(|bucket| &self.rows[*bucket]) {
            let job = Gather {
                values: row.values.shallow_clone(),
                slices: row.slices.clone(),
                members: row.members.clone(),
                made: made.clone(),
                bring: bring.clone(),
            };
            // As with buckets: whoever waits learns of a thread that has ended.
            let _ = jobs.send(Job::Gather(job));
        }
        Ok(())
    }

    /// Lets averages begin with the weights as they are now, in the stage of the run that `stage` says.
    pub fn begin_averages(&mut self, parameters: &Parameters, stage: &FineTuning) {
        self.averaging = self.fresh_averages(parameters, stage);
    }

    /// The same where the weights have gone back to earlier ones: what was reported best stays.
    pub fn begin_averages_anew(&mut self, parameters: &Parameters, stage: &FineTuning) {
        let fresh = self.fresh_averages(parameters, stage);
        let before = std::mem::replace(&mut self.averaging, Box::new(NoAveraging));
        self.averaging = before.begin_anew(fresh);
    }

    fn fresh_averages(&self, parameters: &Parameters, stage: &FineTuning) -> Box<dyn Averaging> {
        let mut average = self.average.clone();
        average.start = stage.averages_after(average.left_out()).unwrap_or(average.start);
        averaging::build(&average, self.evaluated_every, self.averaged(parameters))
    }

    /// Learning rate of step `step` of the run, before its update.
    pub fn learning_rate(&self, step: u64) -> f64 {
        let step = match self.schedule.counts_updates() {
            true => self.optimizer.counts().updates() + 1,
            false => step,
        };
        self.schedule.rate(step) * self.rate
    }

    /// The number by which its averages know step `step` of the run, after it: whether that has updated the network says `updated`. `None` where they do
    /// not take it in.
    pub fn step_of_averages(&self, step: u64, updated: bool) -> Option<u64> {
        match self.average.of {
            CountOf::Run => Some(step),
            CountOf::Network => updated.then(|| self.optimizer.counts().updates()),
        }
    }

    /// Where its gradients add up.
    pub fn buckets(&self) -> &GradientBuckets {
        &self.buckets
    }

    /// Sums of the gradients that this rank updates with, one for each piece.
    pub fn gradients(&self) -> Vec<Tensor> {
        if self.shards.divides_gradients() {
            return self.kept.gradients.iter().map(|(_, sum)| sum.shallow_clone()).collect();
        }
        let whole = self.buckets.gradients();
        self.shards.own().iter().map(|piece| piece.of(&whole[piece.parameter])).collect()
    }

    /// Adds to the step's sums, whose mean is these over `weight`, what `optim.l2` asks for of the parameters that it reaches.
    pub fn penalise(&self, parameters: &Parameters, weight: f64, reached: Option<&[bool]>) {
        let strength = self.optim.l2 * weight;
        if strength == 0.0 {
            return;
        }
        let sums = self.buckets.gradients();
        let pairs = sums.into_iter().zip(parameters.tensors()).enumerate();
        tch::no_grad(|| {
            for (_, (mut sum, values)) in pairs.filter(|(i, _)| reached.is_none_or(|reached| reached[*i])) {
                sum += values * strength;
            }
        });
    }

    /// Norms of the step's gradients that this rank takes, in f64, where they lie.
    pub fn norms(&self) -> Vec<Tensor> {
        match self.shards.divides_gradients() {
            true => self.kept.norms.iter().map(|(_, norms)| norms.shallow_clone()).collect(),
            false => vec![norms(&self.buckets.gradients())],
        }
    }

    /// Norm of the step's gradients, of which this rank has taken [`norms`](Self::norms), `taken`. A collective call where these are divided.
    pub fn gradient_norm(&self, taken: &[f64], comm: &dyn Communicator) -> Result<f64, TrainError> {
        match self.shards.divides_gradients() {
            true => Ok(joint_norm(&self.kept.gather_norms(taken, self.shards.chunks(), comm)?)),
            false => Ok(joint_norm(taken)),
        }
    }

    /// Makes this rank's part of an update at the learning rate `lr` with sums of gradients whose mean is these over `weight`: the number of targets,
    /// times what losses were scaled by. The norm of the mean is `grad_norm`. Where updates are divided, the communication thread brings in the others' parts.
    pub fn update(
        &mut self,
        parameters: &Parameters,
        lr: f64,
        weight: f64,
        grad_norm: f64,
        reached: Option<&[bool]>,
    ) -> Result<Updated, TrainError> {
        let grads = self.gradients();
        self.kept = Kept::default();
        let divisor = weight / clip_factor(grad_norm, self.optim.clip);
        self.optimizer.update(parameters, &Update { grads: &grads, divisor, lr, reached })?;
        self.gather(parameters)?;
        Ok(Updated { lr, grad_norm })
    }
}

/// Refuses a value that is NaN or infinite.
pub fn finite(step: u64, what: &'static str, value: f64) -> Result<f64, TrainError> {
    if value.is_finite() { Ok(value) } else { Err(TrainError::NonFinite { step, what, value }) }
}
