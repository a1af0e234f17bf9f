//! What a fresh run does before its first step: its learner sets weights and tables by the data.

use segue_dataloader::Prefetcher;
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_random::{Purpose, derive};

use super::family::{Family, Place};
use super::learner::{Learner, Look};
use super::micro_step::{put_together, read_at_once};
use super::step::Engine;

/// Data-dependent initialisation, in as many rounds as the learner asks for. The result is a function of the seed and the data: sums over micro-steps
/// are made in the order of the gradients' reduction tree. A collective call.
pub(super) fn prepare<F: Family>(
    family: &F,
    engine: &mut Engine<F::Learner>,
    cursors: &[F::Cursor],
) -> Result<(), TrainError> {
    let mut rounds = 0;
    while let Some(Look { source, nth }) = engine.learner.preparation(rounds) {
        let place = Place { source, layout: engine.layout.clone(), cursors: cursors.to_vec() };
        let batch = Prefetcher::spawn(family.reader(place)?, nth)?.next_batch()?.batch;
        engine.prepare(rounds, &batch)?;
        rounds += 1;
    }
    match engine.first_spoiled().filter(|_| rounds > 0) {
        None => Ok(()),
        Some(what) => {
            let hint = "look at the data of the first batch, and at the keys that set weights by it";
            Err(TrainError::Layout(format!(
                "before the first step {what} holds a value that is not finite\nhint: {hint}"
            )))
        }
    }
}

impl<L: Learner> Engine<'_, L> {
    /// Lets the learner set weights or tables by `batch`, this rank's share of that of round `round`. A collective call.
    pub fn prepare(&mut self, round: u64, batch: &L::Batch) -> Result<(), TrainError> {
        let mut rows = Vec::new();
        for (i, number) in self.layout.micro_steps.clone().enumerate() {
            // The same noise in all rounds: what a round finds below its layer is what the round before has set.
            let seed = derive(self.config.train.seed, Purpose::Preparation, &[number as u64]);
            let seen = tch::no_grad(|| self.learner.look(round, batch, i, &Noise::new(seed)));
            let statistics = read_at_once(&seen.statistics)?.into_iter().flatten();
            rows.push([seen.weight].into_iter().chain(statistics).collect());
        }
        let (sums, _) = put_together(&rows, &[], self.comm)?;
        tch::no_grad(|| self.learner.prepare(round, &sums[1..], sums[0]));
        Ok(())
    }
}
