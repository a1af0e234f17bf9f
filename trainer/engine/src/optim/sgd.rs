use segue_configs::OptimConfig;
use segue_kernels::libtorch::{sgd, stored_values};
use segue_kernels::{Parameters, TrainError};
use tch::{Kind, Tensor, no_grad};

use super::optimizer::Optimizer;
use super::piece::Piece;
use super::state::State;
use super::update::Update;

/// Stochastic gradient descent without momentum: w ← w − η (g + λ w). It keeps no tables. Without decay a gradient may be sparse: a value that has none
/// stays as it is.
pub struct Sgd {
    config: OptimConfig,
    state: State,
}

impl Sgd {
    /// For these pieces of `parameters`.
    pub fn of_pieces(config: &OptimConfig, parameters: &Parameters, pieces: Vec<Piece>) -> Self {
        Self { config: config.clone(), state: State::new(config, parameters, pieces, &[]) }
    }
}

/// Numbers of the rows that a sparse gradient lists: `[rows]`, i64.
fn numbers(grad: &Tensor) -> Tensor {
    grad.internal_indices().view([-1])
}

/// What a gradient updates of `weights`: all of them, or a copy of the rows that it lists.
fn rows(weights: &Tensor, grad: &Tensor) -> Tensor {
    match grad.is_sparse() {
        true => no_grad(|| weights.index_select(0, &numbers(grad))),
        false => weights.shallow_clone(),
    }
}

impl Optimizer for Sgd {
    fn update(&mut self, parameters: &Parameters, update: &Update) -> Result<(), TrainError> {
        self.state.count(parameters, update);
        for part in self.state.parts(&self.config, update) {
            let weights = self.state.weights(parameters, &part.members);
            let grads = || part.members.iter().map(|&i| &update.grads[i]);
            let updated: Vec<Tensor> = weights.iter().zip(grads()).map(|(w, g)| rows(w, g)).collect();
            let values: Vec<Tensor> = grads().map(stored_values).collect();
            let divisor = Tensor::full([] as [i64; 0], part.divisor, (Kind::Float, parameters.options().1));
            sgd(&updated, &values, Some(&divisor), part.lr, part.weight_decay)?;
            for ((weights, grad), rows) in weights.iter().zip(grads()).zip(updated) {
                if grad.is_sparse() {
                    let _ = no_grad(|| weights.shallow_clone().index_copy_(0, &numbers(grad), &rows));
                }
            }
        }
        Ok(())
    }

    fn state(&self) -> &State {
        &self.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
