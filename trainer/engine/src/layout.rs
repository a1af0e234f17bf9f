use std::ops::Range;

use segue_collectives::Communicator;
use segue_collectives::tree::aligned_blocks;
use segue_configs::{TrainConfig, counted};
use segue_kernels::TrainError;

/// Which lanes and micro-steps of the global step are this rank's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Lanes of the whole job.
    pub lanes: usize,
    /// Lanes of one micro-step.
    pub micro_batch: usize,
    /// This rank's micro-steps, numbered over the job.
    pub micro_steps: Range<usize>,
}

impl Layout {
    /// Contiguous equal blocks of micro-steps. With `train.exact` each block is a subtree of the
    /// reduction tree, so that sums do not depend on the number of ranks.
    pub fn new(train: &TrainConfig, comm: &dyn Communicator) -> Result<Self, TrainError> {
        let each = check_ranks(train, comm.world_size())?;
        let first = comm.rank() * each;
        Ok(Self { lanes: train.lanes, micro_batch: train.micro_batch, micro_steps: first..first + each })
    }

    /// This rank's micro-steps of step `step`: the place of each among the rank's, and its number in the job.
    pub fn taking_part(&self, train: &TrainConfig, step: u64) -> Vec<(usize, usize)> {
        self.micro_steps.clone().enumerate().filter(|(_, number)| train.takes_part(step, *number)).collect()
    }

    /// This rank's lanes, numbered over the job.
    pub fn lane_range(&self) -> Range<usize> {
        self.micro_steps.start * self.micro_batch..self.micro_steps.end * self.micro_batch
    }
}

/// Micro-steps of each of `world` ranks, if that many can share a step.
pub fn check_ranks(train: &TrainConfig, world: usize) -> Result<usize, TrainError> {
    let (lanes, micro_batch) = (train.lanes, train.micro_batch);
    let micro_steps = lanes / micro_batch;
    if world == 0 || !micro_steps.is_multiple_of(world) {
        return Err(TrainError::Layout(format!(
            "{world} ranks do not divide the {} of a step ({} in micro-batches of {micro_batch})\n\
             hint: choose train.lanes as a multiple of {}, or another number of ranks",
            counted(micro_steps, "micro-step"),
            counted(lanes, "lane"),
            micro_batch.saturating_mul(world.max(1))
        )));
    }
    if train.exact {
        aligned_blocks(micro_steps, world).map_err(|e| {
            let hint = e.hint().unwrap_or_default();
            TrainError::Layout(format!(
                "{e}\nhint: {hint}; or give up equal bits at any number of ranks with train.exact=false"
            ))
        })?;
    }
    let each = micro_steps / world;
    if !each.is_multiple_of(train.batch_warmup_from) {
        return Err(TrainError::Layout(format!(
            "each of {world} ranks has {each} micro-steps, of which not one in train.batch_warmup_from = {} can take part\n\
             hint: lower train.batch_warmup_from or train.micro_batch, or use fewer ranks",
            train.batch_warmup_from
        )));
    }
    Ok(each)
}
