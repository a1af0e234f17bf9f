use segue_kernels::Parameters;
use segue_kernels::libtorch::{Onto, precise, put_each};
use tch::Tensor;

use super::AveragingError;

/// A running average of weights: one table per parameter, on its device. Parameters in half precision have tables in
/// single precision: increments of order 1 / count would vanish in bfloat16 after some 256 steps.
#[derive(Default)]
pub(super) struct Mean {
    tables: Vec<Tensor>,
    count: u64,
}

impl Mean {
    /// These weights, as the first of an average.
    pub fn of(parameters: &Parameters) -> Self {
        let mut mean = Self::default();
        mean.fold(parameters);
        mean
    }

    /// Weights in it.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The average, in the order of the parameters; nothing of use where `count` is 0.
    pub fn tables(&self) -> &[Tensor] {
        &self.tables
    }

    /// Forgets all weights, and keeps the memory.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Takes in the weights, each as much as any other.
    pub fn fold(&mut self, parameters: &Parameters) {
        self.fold_weighted(parameters, 1.0 / (self.count + 1) as f64);
    }

    /// average ← average + `share` · (weights − average). The first weights are copied.
    pub fn fold_weighted(&mut self, parameters: &Parameters, share: f64) {
        if self.count == 0 {
            // Copied, not interpolated: what the tables hold may be of another average, or no number.
            self.copy(parameters.tensors());
        } else {
            let pairs = self.tables.iter().zip(parameters.tensors());
            let weights: Vec<Tensor> = tch::no_grad(|| pairs.map(|(t, w)| w.to_kind(t.kind())).collect());
            put_each(Onto::Towards(share), &self.tables, &weights)
                .expect("tables are of their parameters' shapes, and lie where they do");
        }
        self.count += 1;
    }

    /// Takes over these weights, which are an average of `count`.
    pub fn set(&mut self, weights: &[Tensor], count: u64) {
        self.copy(weights);
        self.count = count;
    }

    fn allocate(&mut self, like: &[Tensor]) {
        let table = |w: &Tensor| Tensor::empty(w.size(), (precise(w.kind()), w.device()));
        self.tables = like.iter().map(table).collect();
    }

    fn copy(&mut self, weights: &[Tensor]) {
        tch::no_grad(|| {
            if self.tables.is_empty() {
                self.allocate(weights);
            }
            for (table, weight) in self.tables.iter_mut().zip(weights) {
                table.copy_(weight);
            }
        });
    }

    /// Takes over an average of `count` from a checkpoint, in the kind and on the device of `parameters`.
    pub fn restore(
        &mut self,
        stored: Vec<Tensor>,
        count: u64,
        parameters: &Parameters,
    ) -> Result<(), AveragingError> {
        if stored.len() != parameters.tensors().len() {
            return Err(AveragingError::Count { found: stored.len(), expected: parameters.tensors().len() });
        }
        for (spec, table) in parameters.specs().iter().zip(&stored) {
            if table.size() != spec.shape {
                let (name, expected) = (spec.name.clone(), spec.shape.clone());
                return Err(AveragingError::Shape { name, found: table.size(), expected });
            }
        }
        self.allocate(parameters.tensors());
        self.set(&stored, count);
        Ok(())
    }
}
