use segue_configs::OptimConfig;
use tch::{Kind, Tensor};

use super::optimizer::{Optimizer, Update};
use super::piece::Piece;
use super::state::State;
use crate::libtorch::sgd;
use crate::{Parameters, TrainError};

/// Stochastic gradient descent without momentum: w ← w − η (g + λ w). It keeps no tables.
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

impl Optimizer for Sgd {
    fn update(&mut self, parameters: &Parameters, update: &Update) -> Result<(), TrainError> {
        self.state.count(parameters, update);
        for part in self.state.parts(&self.config, update) {
            let weights = self.state.weights(parameters, &part.members);
            let grads: Vec<Tensor> = part.members.iter().map(|&i| update.grads[i].shallow_clone()).collect();
            let divisor = Tensor::full([] as [i64; 0], part.divisor, (Kind::Float, parameters.options().1));
            sgd(&weights, &grads, Some(&divisor), part.lr, part.weight_decay)?;
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
