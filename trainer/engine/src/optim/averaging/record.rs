use serde::{Deserialize, Serialize};

/// How losses have gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The lowest; `None` before a finite one.
    best: Option<f64>,
    /// Evaluations since.
    bad: u64,
}

impl Record {
    /// The record of these losses, one after the other.
    pub fn of(losses: &[f64]) -> Self {
        let mut record = Self::default();
        losses.iter().for_each(|loss| record.note(*loss));
        record
    }

    /// Takes note of a loss. One that is as low as the lowest is no new lowest, nor is one that is not finite.
    pub fn note(&mut self, loss: f64) {
        if loss.is_finite() && self.best.is_none_or(|best| loss < best) {
            *self = Self { best: Some(loss), bad: 0 };
        } else {
            self.bad += 1;
        }
    }

    /// Whether the lowest is `patience` evaluations old or older.
    pub fn stagnates(&self, patience: u64) -> bool {
        self.bad >= patience
    }
}
