//! What a step needs to know of what it trains.

use segue_kernels::noise::Noise;
use segue_kernels::{Carry, Parameters};
use tch::{Device, Tensor};

/// Which networks a step updates, and with which batch. A function of the step and the configuration alone, so that
/// nothing of it is ever saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Networks the step updates, by their place in [`Learner::networks`].
    pub networks: Vec<usize>,
    /// The source its batch comes from.
    pub source: usize,
    /// Which of that source's batches it is, from 1.
    pub nth: u64,
}

impl Turn {
    /// Step `step` of what has one network and one source.
    pub fn only(step: u64) -> Self {
        Self { networks: vec![0], source: 0, nth: step }
    }
}

/// What one micro-step gives.
pub struct Loss<C> {
    /// Scalars to lower, with their graphs: one for each network of the turn. Sums over targets, never means: the
    /// engine divides once, by the weight of the whole batch.
    pub objectives: Vec<Tensor>,
    /// The sum that is reported, in nats; scalar.
    pub reported: Tensor,
    /// Targets it is a sum of.
    pub weight: f64,
    /// What the lanes carry to their next batch.
    pub carry: C,
    /// Sums that [`Learner::updated`] wants over the whole batch, on the device of `reported`; it gets their values one after the other, as many from each
    /// micro-step.
    pub statistics: Vec<Tensor>,
}

impl<C> Loss<C> {
    /// The loss of one network: `sum` over `weight` targets, and what is trained for beside it without being reported.
    pub fn of(sum: Tensor, weight: f64, auxiliary: Option<Tensor>, carry: C) -> Self {
        let objective = match auxiliary {
            Some(auxiliary) => &sum + auxiliary,
            None => sum.shallow_clone(),
        };
        Self { objectives: vec![objective], reported: sum, weight, carry, statistics: Vec::new() }
    }

    /// The loss of a micro-step without a single example: nothing for any network of the turn, which compute on `device`.
    pub fn nothing(networks: usize, device: Device, carry: C) -> Self {
        let zero = || Tensor::zeros([], (tch::Kind::Float, device));
        let objectives = (0..networks).map(|_| zero()).collect();
        Self { objectives, reported: zero(), weight: 0.0, carry, statistics: Vec::new() }
    }
}

/// Data that a learner looks at before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The source it comes from.
    pub source: usize,
    /// Which of that source's batches it is, from 1: of a source whose lanes have cursors, the first.
    pub nth: u64,
}

/// What one micro-step tells of data that a learner looks at before the first step.
pub struct Tally {
    /// Sums over its examples, on the device of the model, as many values in each micro-step.
    pub statistics: Vec<Tensor>,
    /// Examples they are sums over.
    pub weight: f64,
}

/// Networks, and the loss of a micro-step: all that a step of training needs. Whatever it draws is a function of the
/// noise it is given.
pub trait Learner {
    /// What a rank trains on in one step.
    type Batch: Send + 'static;
    /// What lanes keep from step to step.
    type Carry: Carry;

    /// Name and parameters of each network. The first is the one whose weights are *the* model. Initial values are drawn by
    /// the names of parameters, so that these differ between networks that start differently.
    fn networks(&self) -> Vec<(&'static str, &Parameters)>;

    /// Parameters that stay as they are, beside those of the networks. They are alike on all ranks.
    fn frozen(&self) -> Option<&Parameters> {
        None
    }

    /// What step `step` trains, from 1. Steps are asked for in rising order, some twice.
    fn turn(&mut self, step: u64) -> Turn {
        Turn::only(step)
    }

    /// Masks the parameters of network `network` that a step updates; `None` updates all.
    fn reached(&self, turn: &Turn, network: usize) -> Option<&[bool]> {
        let _ = (turn, network);
        None
    }

    /// What a fresh run looks at before its first step, in round `round` (from 0) of as many as it takes; `None` ends them. Rounds are for networks whose
    /// layers are set one after the other, each by what the one below makes of the data (Salimans and Kingma 2016, §3).
    ///
    /// A run that goes on from a checkpoint, or begins with weights of another (`train.init_from`), looks at nothing.
    fn preparation(&self, round: u64) -> Option<Look> {
        let _ = round;
        None
    }

    /// What micro-step number `micro_step` (from 0) of this rank tells of the batch of round `round`. No graph is kept.
    fn look(&self, round: u64, batch: &Self::Batch, micro_step: usize, noise: &Noise) -> Tally {
        let _ = (round, batch, micro_step, noise);
        Tally { statistics: Vec::new(), weight: 0.0 }
    }

    /// Sets weights or tables in place by the sums of [`Tally::statistics`] over the batch of round `round`, all lanes of it, and its weight. Both are the
    /// same whatever the number of ranks, and every rank does the same with them.
    fn prepare(&mut self, round: u64, statistics: &[f64], weight: f64) {
        let _ = (round, statistics, weight);
    }

    /// What `lanes` lanes carry before their first batch.
    fn start(&self, lanes: i64) -> Self::Carry;

    /// Loss of micro-step number `micro_step` (from 0) of this rank's batch.
    fn loss(
        &self,
        turn: &Turn,
        batch: &Self::Batch,
        micro_step: usize,
        carry: &Self::Carry,
        noise: &Noise,
    ) -> Loss<Self::Carry>;

    /// Of the sums of [`Loss::statistics`] over a batch, that of the loss an adversary makes of what is reported, in nats; `None` where there is none.
    fn against(&self, statistics: &[f64]) -> Option<f64> {
        let _ = statistics;
        None
    }

    /// Told after an update, on every rank alike: the sums of [`Loss::statistics`] over the whole batch, and its weight. Weights that other ranks have
    /// updated may still be on their way: [`Parameters::tensors`] waits for them.
    fn updated(&mut self, turn: &Turn, statistics: &[f64], weight: f64) {
        let _ = (turn, statistics, weight);
    }

    /// Tensors that are neither weights nor a lane's, with their names: running means of a batch norm, vectors of a power iteration, baselines. They are
    /// of single precision or whole numbers of 64 bits, as files hold them, lie where the model does, have the same names and shapes at any time, and are
    /// alike on all ranks: [`Learner::prepare`] and [`Learner::updated`] write to them, and nothing else does. Checkpoints and folders of the model hold
    /// them; a restart fills these tensors.
    fn tables(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }

    /// What it has made of them, for a checkpoint.
    fn state(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Goes on from what [`Learner::state`] gave; false where it cannot.
    fn restore(&mut self, state: &serde_json::Value) -> bool {
        state.is_null()
    }
}
