//! Training of one objective on one rank, with the memory of its lanes.

use segue_collectives::Communicator;
use segue_configs::Config;

use super::updater::{MicroLoss, StepReport, Updater};
use crate::TrainError;
use crate::model::Memory;
use crate::objective::{Batch, Objective};
use crate::optim::Average;

/// Training of one objective on one rank.
pub struct Engine<'a> {
    /// Updates of its parameters. Before them when dropped: it holds hooks on them.
    pub updater: Updater<'a>,
    /// The objective and its parameters.
    pub objective: Box<dyn Objective>,
    /// Mean of the weights, once it has begun.
    pub average: Option<Average>,
    /// Segment memory, one entry for each of this rank's micro-steps.
    pub memory: Vec<Memory>,
}

impl<'a> Engine<'a> {
    /// Sets up what updates need, and fresh memory. A collective call.
    pub fn new(
        config: &'a Config,
        objective: Box<dyn Objective>,
        comm: &'a dyn Communicator,
    ) -> Result<Self, TrainError> {
        let updater = Updater::new(config, objective.parameters(), comm)?;
        let layout = &updater.layout;
        let memory =
            layout.micro_steps.clone().map(|_| objective.memory_start(layout.micro_batch as i64)).collect();
        Ok(Self { updater, objective, average: None, memory })
    }

    /// Makes update number `step` (from 1) of the run from one batch for each of this rank's
    /// micro-steps.
    pub fn step(&mut self, step: u64, batches: &[Batch]) -> Result<StepReport, TrainError> {
        let Self { updater, objective, average, memory } = self;
        let report = updater.step(objective.parameters(), step, None, |i, noise| {
            let loss = objective.loss(&batches[i], &memory[i], Some(noise));
            memory[i] = loss.memory;
            MicroLoss { sum: loss.sum, weight: loss.weight, auxiliary: loss.auxiliary }
        })?;
        if let Some(average) = average {
            average.update(objective.parameters());
        }
        Ok(report)
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
}
