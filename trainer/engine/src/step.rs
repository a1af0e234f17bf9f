//! One step of training on one rank: micro-steps, reduction over ranks, updates.

use std::time::{Duration, Instant};

use segue_collectives::Communicator;
use segue_collectives::tree::tree_sum;
use segue_configs::Config;
use segue_faults as faults;
use segue_kernels::libtorch::stream::Event;
use segue_kernels::libtorch::{Autocast, backward_into, stored_values};
use segue_kernels::noise::Noise;
use segue_kernels::{Parameters, TrainError};
use segue_random::{Purpose, derive};
use tch::{Device, Tensor};
use tracing::trace_span;

use super::buckets::GradientBuckets;
use super::doubles;
use super::layout::Layout;
use super::learner::{Learner, Loss, Turn};
use super::micro_step::{MicroStep, put_together, read_at_once};
use super::network::{Network, Updated, finite};
use super::reducer::Reducer;
use super::repeat::Made;
use super::replicas::agreed_norm;
use super::spoil::spoil;
use super::sums::Sums;
use crate::optim::{LossScaler, NoiseEstimate, Scaled};

/// What one global step did.
#[derive(Debug, Clone, Copy)]
pub struct StepReport {
    /// Its number, from 1.
    pub step: u64,
    /// The source its batch came from.
    pub source: usize,
    /// Mean loss over the global batch, in nats a target.
    pub loss: f64,
    /// The same as an adversary makes it, where there is one: what is trained of it.
    pub adversarial_loss: Option<f64>,
    /// Targets of the global batch.
    pub targets: f64,
    /// Learning rate of the first network that was updated.
    pub lr: f64,
    /// Its global gradient norm before clipping.
    pub grad_norm: f64,
    /// Its name.
    pub network: &'static str,
    /// What the step tells of the noise in its gradient, where that was measured.
    pub noise: Option<NoiseEstimate>,
    /// How its loss was scaled before backward, where it was. Without an update where its gradients overflowed.
    pub scaled: Option<Scaled>,
    /// Time this rank waited for reductions after its backward was over, and before or in its forward for weights that others had updated.
    pub communication_exposed: Duration,
}

/// Training of one learner on one rank, with what its lanes carry.
pub struct Engine<'a, L: Learner> {
    pub(super) config: &'a Config,
    pub(super) comm: &'a dyn Communicator,
    /// This rank's share of the global batch.
    pub layout: Layout,
    // Order matters when dropped: networks hold hooks on the learner's parameters and feed the reducer's thread.
    /// What is updated, in the learner's order.
    pub networks: Vec<Network>,
    pub(super) reducer: Option<Reducer>,
    /// What is trained.
    pub learner: L,
    /// What this rank's lanes carry, one entry for each of its micro-steps.
    pub carries: Vec<L::Carry>,
    /// What losses are multiplied by before backward.
    pub loss_scale: LossScaler,
}

impl<'a, L: Learner> Engine<'a, L> {
    /// Sets up buckets, hooks, optimizers, the communication thread, and fresh carries. A collective call.
    pub fn new(config: &'a Config, learner: L, comm: &'a dyn Communicator) -> Result<Self, TrainError> {
        let layout = Layout::new(&config.train, comm)?;
        let (reducer, ready) = if comm.world_size() == 1 {
            (None, None)
        } else {
            let sums = Sums::choose(&config.train, device_of(&learner), comm.duplicate()?)?;
            let (reducer, ready) = Reducer::start(sums)?;
            (Some(reducer), Some(ready))
        };
        let micro_steps = layout.micro_steps.len();
        let network = |(name, parameters): (&'static str, &Parameters)| {
            Network::new(name, config.of_network(name), parameters, micro_steps, ready.clone(), comm)
        };
        let networks = learner.networks().into_iter().map(network).collect::<Result<_, _>>()?;
        let loss_scale = LossScaler::new(&config.loss_scale, config.train.precision, config.loss_divisor());
        let carries = Vec::new();
        let mut engine = Self { config, comm, layout, networks, reducer, learner, carries, loss_scale };
        engine.begin_carries();
        Ok(engine)
    }

    /// Where it computes.
    pub fn device(&self) -> Device {
        device_of(&self.learner)
    }

    /// Makes update number `step` (from 1) of the run from this rank's batch.
    pub fn step(&mut self, step: u64, batch: &L::Batch) -> Result<StepReport, TrainError> {
        self.step_at_rate(step, 1.0, batch)
    }

    /// The same with learning rates that are multiplied by `rate`.
    pub fn step_at_rate(&mut self, step: u64, rate: f64, batch: &L::Batch) -> Result<StepReport, TrainError> {
        faults::point("step.begin");
        let turn = self.learner.turn(step);
        let active = self.layout.taking_part(&self.config.train, step);
        self.open(&turn, active.len());
        self.await_the_rest()?;
        let mut made: Vec<MicroStep> = Vec::with_capacity(active.len());
        for (place, &(i, number)) in active.iter().enumerate() {
            let place = MicroStepPlace { place, of: active.len(), i, number };
            made.push(self.micro_step(&turn, step, batch, place)?);
        }
        faults::point("step.sum");
        self.await_backward()?;
        let targets = self.targets(&made)?;
        // Those of the step before, which this one has begun without.
        let communication_exposed = self.await_sums(&turn)? + self.waited_for_weights();
        spoil("gradient", || stored_values(&self.networks[turn.networks[0]].gradients()[0]));
        let factor = self.loss_scale.factor();
        for &n in &turn.networks {
            let (_, parameters) = self.learner.networks()[n];
            self.networks[n].penalise(parameters, targets * factor, self.learner.reached(&turn, n));
        }
        // All of them before any update: a step that is not finite changes nothing.
        let (mut sums, norms) = self.measure(&turn, &made, factor, targets)?;
        let loss = finite(step, "the loss", sums[0] / targets)?;
        let norms: Vec<f64> =
            norms.iter().map(|of_ranks| agreed_norm(step, of_ranks)).collect::<Result<_, _>>()?;
        let mut statistics = sums.split_off(1);
        let parts =
            self.measures_noise(step).then(|| statistics.split_off(statistics.len() - NoiseEstimate::PARTS));
        let scaled = self.loss_scale.observe(norms.iter().all(|norm| norm.is_finite()));
        let (source, network) = (turn.source, self.networks[turn.networks[0]].name);
        let mut report = StepReport {
            step,
            source,
            loss,
            adversarial_loss: self.learner.against(&statistics).map(|sum| sum / targets),
            targets,
            lr: 0.0,
            grad_norm: norms[0],
            network,
            noise: None,
            scaled,
            communication_exposed,
        };
        if scaled.is_some_and(|scaled| scaled.overflowed) {
            // What the lanes carry is of the forward pass, which is as it should be.
            report.lr = self.networks[turn.networks[0]].learning_rate(step) * rate;
            return Ok(report);
        }
        for norm in &norms {
            finite(step, "the gradient norm", *norm)?;
        }
        report.noise = parts.and_then(|parts| NoiseEstimate::of(&parts, norms[0] * targets, targets));
        faults::point("step.update");
        let _span = trace_span!(target: "compute", "update").entered();
        let mut updated: Option<Updated> = None;
        for (&n, norm) in turn.networks.iter().zip(norms) {
            let (_, parameters) = self.learner.networks()[n];
            let reached = self.learner.reached(&turn, n);
            let lr = self.networks[n].learning_rate(step) * rate;
            let done = self.networks[n].update(parameters, lr, targets * factor, norm, reached)?;
            updated.get_or_insert(done);
        }
        self.learner.updated(&turn, &statistics, targets);
        spoil("weights", || self.learner.networks()[turn.networks[0]].1.tensors()[0].shallow_clone());
        // Networks whose turn it was not too, unless each counts its own updates: averages are over steps, and all of them begin and switch together.
        for n in 0..self.networks.len() {
            let Some(step) = self.networks[n].step_of_averages(step, turn.networks.contains(&n)) else {
                continue;
            };
            if self.networks[n].average(step, self.learner.networks()[n].1) {
                self.gather(n)?;
            }
        }
        if let Some([first, ..]) = self.networks[turn.networks[0]].averaging.chosen() {
            spoil("average", || first.shallow_clone());
        }
        if let Some(Updated { lr, grad_norm }) = updated {
            (report.lr, report.grad_norm) = (lr, grad_norm);
        }
        Ok(report)
    }

    /// Waits for a card's backward where ranks add up: what it takes, here or on a slower rank, is not communication. A rank alone goes on without waiting.
    fn await_backward(&self) -> Result<(), TrainError> {
        if self.reducer.is_none() {
            return Ok(());
        }
        let _span = trace_span!(target: "compute", "wait for backward").entered();
        Event::now(self.device())?.wait()
    }

    /// Waits until gradients are summed over ranks. Gives how long that took.
    fn await_sums(&mut self, turn: &Turn) -> Result<Duration, TrainError> {
        let Some(reducer) = &self.reducer else { return Ok(Duration::ZERO) };
        let waiting = Instant::now();
        let _span = trace_span!(target: "communication", "wait for sums").entered();
        for &n in &turn.networks {
            let network = &mut self.networks[n];
            network.keep(reducer.wait(network.buckets().len())?);
            network.order_buckets(self.comm)?;
        }
        Ok(waiting.elapsed())
    }

    /// What a step has come to: sums over the job's micro-steps, the loss first; and for each network of the turn the norm of its gradient, of the mean
    /// over `targets`, as each rank has found it. A card is read once. `factor` is what losses were multiplied by. A collective call.
    fn measure(
        &self,
        turn: &Turn,
        made: &[MicroStep],
        factor: f64,
        targets: f64,
    ) -> Result<(Vec<f64>, Vec<Vec<f64>>), TrainError> {
        let taken: Vec<Vec<Tensor>> = turn.networks.iter().map(|&n| self.networks[n].norms()).collect();
        let computed = made.iter().flat_map(MicroStep::computed).chain(taken.iter().flatten());
        let mut read = read_at_once(computed)?.into_iter();
        let rows: Vec<Vec<f64>> = made.iter().map(|made| made.row(&mut read, factor)).collect();
        let mut found = Vec::new();
        for (&n, taken) in turn.networks.iter().zip(&taken) {
            let taken: Vec<f64> = read.by_ref().take(taken.len()).flatten().collect();
            found.push(self.networks[n].gradient_norm(&taken, self.comm)? / factor / targets);
        }
        put_together(&rows, &found, self.comm)
    }

    /// Waits until this rank has all weights that the others have updated, where updates are divided: who reads one waits by itself, and here learns of
    /// those that do not come.
    pub(super) fn settle(&self) -> Result<(), TrainError> {
        self.learner.networks().iter().for_each(|(_, parameters)| parameters.arrivals().wait_for_all());
        // It is no part of a step.
        self.waited_for_weights();
        self.refuse_lost()
    }

    /// Waits for weights of other ranks that nobody waits for who reads them.
    fn await_the_rest(&self) -> Result<(), TrainError> {
        self.learner.networks().iter().for_each(|(_, parameters)| parameters.arrivals().wait_for_the_rest());
        self.refuse_lost()
    }

    /// Ends what was begun without weights that do not come, before this rank asks others for anything: they wait for the weights themselves.
    fn refuse_lost(&self) -> Result<(), TrainError> {
        let is_lost = |(_, parameters): &(_, &Parameters)| parameters.arrivals().is_lost();
        match self.reducer.as_ref().filter(|_| self.learner.networks().iter().any(is_lost)) {
            Some(reducer) => Err(reducer.failure()),
            None => Ok(()),
        }
    }

    /// How long weights of other ranks were waited for since this was asked last.
    fn waited_for_weights(&self) -> Duration {
        self.learner.networks().iter().map(|(_, parameters)| parameters.arrivals().waited()).sum()
    }

    /// Whether the noise in the gradient of the first network of a step's turn is measured. It changes nothing of the step.
    fn measures_noise(&self, step: u64) -> bool {
        let every = self.config.log.noise_scale_every;
        every > 0 && step.is_multiple_of(every)
    }

    /// Buckets sum as many micro-steps as take part. Networks whose turn it is not get no gradients: their leaves want none, and
    /// their buckets refuse any.
    fn open(&self, turn: &Turn, micro_steps: usize) {
        turn.networks.iter().for_each(|&n| self.networks[n].buckets().expect(micro_steps));
        if self.networks.len() == 1 {
            return;
        }
        for (n, (_, parameters)) in self.learner.networks().into_iter().enumerate() {
            let own = turn.networks.contains(&n);
            parameters.leaves().iter().for_each(|leaf| _ = leaf.set_requires_grad(own));
        }
    }

    /// Makes one of this rank's micro-steps.
    fn micro_step(
        &mut self,
        turn: &Turn,
        step: u64,
        batch: &L::Batch,
        MicroStepPlace { place, of, i, number }: MicroStepPlace,
    ) -> Result<MicroStep, TrainError> {
        let buckets = || turn.networks.iter().map(|&n| self.networks[n].buckets());
        let every = self.config.train.check_repeats_every;
        // Another micro-step each time, so that all lanes and all parts of memory have their turn.
        let repeated = every > 0 && step.is_multiple_of(every) && (step / every) % of as u64 == place as u64;
        let rehearsed = match repeated {
            false => None,
            true => {
                buckets().for_each(|buckets| _ = (buckets.listen(), buckets.rehearse()));
                let loss = self.forward_and_backward(turn, step, batch, i, number)?;
                let made = Made::of(&loss, buckets().map(GradientBuckets::heard).collect())?;
                buckets().for_each(GradientBuckets::listen);
                Some(made)
            }
        };
        let measured = self.networks[turn.networks[0]].buckets();
        if self.measures_noise(step) {
            measured.measure();
        }
        buckets().for_each(|buckets| buckets.begin(place));
        let loss = self.forward_and_backward(turn, step, batch, i, number)?;
        if let Some(rehearsed) = rehearsed {
            let made = Made::of(&loss, buckets().map(GradientBuckets::heard).collect())?;
            if let Some(what) = rehearsed.difference(&made, |n, p| self.name(turn.networks[n], p)) {
                return Err(TrainError::RepeatDiffers {
                    step,
                    rank: self.comm.rank(),
                    micro_step: number,
                    what,
                });
            }
        }
        let norms = self.measures_noise(step).then(|| measured.measured());
        self.carries[i] = loss.carry;
        // Without their graphs: they are read when the step is over.
        let statistics = loss.statistics.iter().map(Tensor::detach).collect();
        Ok(MicroStep { reported: loss.reported.detach(), statistics, norms, weight: loss.weight })
    }

    /// Into buckets that are open, and are closed afterwards.
    fn forward_and_backward(
        &self,
        turn: &Turn,
        step: u64,
        batch: &L::Batch,
        i: usize,
        number: usize,
    ) -> Result<Loss<L::Carry>, TrainError> {
        let seed = derive(self.config.train.seed, Purpose::Dropout, &[step, number as u64]);
        faults::point("step.forward");
        let span = trace_span!(target: "compute", "forward", micro_step = number).entered();
        let forward = || self.learner.loss(turn, batch, i, &self.carries[i], &Noise::new(seed));
        let loss = match Autocast::to(self.config.train.precision, self.device()) {
            Some(casts) => casts.during(forward),
            None => forward(),
        };
        drop(span);
        self.refuse_lost()?;
        faults::point("step.backward");
        let _span = trace_span!(target: "compute", "backward", micro_step = number).entered();
        assert_eq!(loss.objectives.len(), turn.networks.len(), "one objective for each network of the turn");
        let networks = self.learner.networks();
        let last = turn.networks.len() - 1;
        let factor = self.loss_scale.factor();
        for (place, (objective, &n)) in loss.objectives.iter().zip(&turn.networks).enumerate() {
            match last {
                _ if loss.weight == 0.0 && !objective.requires_grad() => {}
                0 => scaled(objective, factor).f_backward()?,
                // Each is lowered by its own network alone, whatever else it depends on.
                _ => backward_into(&scaled(objective, factor), networks[n].1.leaves(), place < last)?,
            }
            // Before the next network's buckets fill: all ranks hand buckets over in one order.
            self.networks[n].buckets().finish();
        }
        Ok(loss)
    }

    /// The name of a parameter.
    fn name(&self, network: usize, parameter: usize) -> String {
        self.learner.networks()[network].1.specs()[parameter].name.clone()
    }

    /// Targets of all micro-steps of the job. A collective call.
    fn targets(&self, made: &[MicroStep]) -> Result<f64, TrainError> {
        let all = self.comm.all_gather(&doubles::to_bytes(made.iter().map(|made| made.weight)))?;
        Ok(tree_sum(doubles::of_bytes(&all.concat()), |a, b| a + b).unwrap_or(0.0))
    }

    /// Bytes of optimizer state that this rank holds.
    pub fn optimizer_bytes(&self) -> u64 {
        let tables = self.networks.iter().flat_map(|network| network.optimizer.tables());
        let tensors = tables.flat_map(|(_, tensors)| tensors);
        tensors.map(|tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64).sum()
    }

    /// Number of gradient buckets of all networks.
    pub fn bucket_count(&self) -> usize {
        self.networks.iter().map(|network| network.buckets().len()).sum()
    }
}

/// Where a learner computes.
fn device_of(learner: &impl Learner) -> Device {
    learner.networks().first().map_or(Device::Cpu, |(_, parameters)| parameters.options().1)
}

/// What backward begins with.
fn scaled(objective: &Tensor, factor: f64) -> Tensor {
    if factor == 1.0 { objective.shallow_clone() } else { objective * factor }
}

/// One of a rank's micro-steps of a step.
struct MicroStepPlace {
    /// Its place among those that take part, and their number.
    place: usize,
    of: usize,
    /// Its place among all of the rank.
    i: usize,
    /// Its number in the job.
    number: usize,
}
