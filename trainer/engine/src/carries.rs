//! What a rank's lanes carry from step to step: begun, forgotten, and as tables of a checkpoint.

use std::ops::Range;

use segue_kernels::{Carry, TrainError};
use tch::Tensor;

use super::learner::Learner;
use super::step::Engine;

impl<L: Learner> Engine<'_, L> {
    /// Lets all lanes begin with a fresh carry.
    pub fn begin_carries(&mut self) {
        let start = |_| self.learner.start(self.layout.micro_batch as i64);
        self.carries = self.layout.micro_steps.clone().map(start).collect();
    }

    /// Lanes that begin anew, or that have left a document behind them, begin with a fresh carry.
    /// `restarts`: as many entries for each of this rank's lanes as it has parts that are forgotten by themselves, or none at all.
    pub fn forget(&mut self, restarts: &[bool]) {
        let lanes = self.layout.micro_batch as i64;
        let each = (restarts.len() / self.carries.len()).max(1);
        for (carry, restarts) in self.carries.iter_mut().zip(restarts.chunks(each)) {
            if restarts.contains(&true) {
                carry.forget(restarts, self.learner.start(lanes));
            }
        }
    }

    /// What this rank's lanes carry, to be put back where a step comes to nothing. The tensors are shared.
    pub fn held_carries(&self) -> Vec<L::Carry> {
        let held =
            |carry: &L::Carry| carry.of_tables(carry.tables().into_iter().map(|(_, table)| table).collect());
        self.carries.iter().map(held).collect()
    }

    /// What this rank's lanes carry: for each micro-step its first lane, numbered over the job, and its tables, which are
    /// shared with it. None where lanes carry nothing.
    pub fn carry_tables(&self) -> Vec<(usize, Vec<(String, Tensor)>)> {
        let first = |micro_step: usize| micro_step * self.layout.micro_batch;
        let own = self.layout.micro_steps.clone().map(first).zip(self.carries.iter().map(Carry::tables));
        own.filter(|(_, tables)| !tables.is_empty()).collect()
    }

    /// Puts in place what this rank's lanes carry. `read` gives the tables of these names of a micro-step's lanes, which
    /// are numbered over the job; it is not asked where lanes carry nothing.
    pub fn restore_carry(
        &mut self,
        mut read: impl FnMut(&[String], Range<usize>) -> Result<Vec<Tensor>, TrainError>,
    ) -> Result<(), TrainError> {
        let names: Vec<String> = self
            .carries
            .first()
            .map_or(Vec::new(), Carry::tables)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let each = self.layout.micro_batch;
        for (carry, micro_step) in self.carries.iter_mut().zip(self.layout.micro_steps.clone()) {
            let stored = read(&names, micro_step * each..(micro_step + 1) * each)?;
            let like = |((_, live), stored): ((String, Tensor), Tensor)| {
                stored.to_device(live.device()).to_kind(live.kind())
            };
            *carry = carry.of_tables(carry.tables().into_iter().zip(stored).map(like).collect());
        }
        Ok(())
    }
}
