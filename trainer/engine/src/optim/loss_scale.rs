//! What losses are multiplied by before backward, so that small gradients do not vanish in 16 bits (Micikevicius et al. 2018).
//!
//! The scale follows PyTorch's rules (`torch.amp.GradScaler`): it shrinks with a step whose gradients overflow, which makes no update, and grows
//! after so many steps in a row without one. Whether they overflow, the norm of the summed gradients tells, which is read in every step and is the
//! same on all ranks. Every factor is a power of two and rounds nothing.

use segue_configs::{LossScaleConfig, Precision};
use serde::{Deserialize, Serialize};

/// The scale of a run's losses, and what it follows from: part of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// The scale.
    pub scale: f64,
    /// Steps in a row without an overflow since it changed last.
    pub steps: u64,
    /// Steps that have made no update for an overflow.
    pub skipped: u64,
}

/// How a step was scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaled {
    /// The scale of its loss.
    pub scale: f64,
    /// Whether its gradients overflowed, so that it made no update.
    pub overflowed: bool,
    /// Steps of the run so far that have made none, this one included.
    pub skipped: u64,
}

/// Scales losses, or leaves them as they are.
pub struct LossScaler {
    config: LossScaleConfig,
    divisor: f64,
    state: Option<LossScale>,
}

impl LossScaler {
    /// As the configuration says of products in `precision`, at the first step. `divisor`: what the sum over a step's targets is divided by
    /// before it is scaled.
    pub fn new(config: &LossScaleConfig, precision: Precision, divisor: f64) -> Self {
        let state = LossScale { scale: config.init, steps: 0, skipped: 0 };
        Self { config: config.clone(), divisor, state: config.scales(precision).then_some(state) }
    }

    /// What the sum over a step's targets is multiplied by before backward: a power of two, 1 where nothing is scaled.
    pub fn factor(&self) -> f64 {
        self.state.map_or(1.0, |state| state.scale / self.divisor)
    }

    /// Takes a step's gradients in: whether all of them are finite. `None` where nothing is scaled, or where gradients overflow under the
    /// smallest scale: the scale is not to blame then.
    pub fn observe(&mut self, finite: bool) -> Option<Scaled> {
        let LossScaleConfig { growth, backoff, interval, floor, .. } = self.config;
        let state = self.state.as_mut()?;
        let scale = state.scale;
        if finite {
            state.steps += 1;
            // An interval that was made shorter may have passed already.
            if state.steps >= interval {
                state.steps = 0;
                let grown = scale * growth;
                state.scale = if grown.is_finite() { grown } else { scale };
            }
        } else {
            if scale <= floor {
                return None;
            }
            state.steps = 0;
            state.skipped += 1;
            state.scale = (scale * backoff).max(floor);
        }
        Some(Scaled { scale, overflowed: !finite, skipped: state.skipped })
    }

    /// What a checkpoint stores; nothing where nothing is scaled.
    pub fn state(&self) -> Option<LossScale> {
        self.state
    }

    /// Goes on from it, not below a floor that was raised. A run that scales its losses from here on begins with the first scale.
    pub fn restore(&mut self, stored: Option<LossScale>) {
        let floor = self.config.floor;
        let raised = |stored: LossScale| LossScale { scale: stored.scale.max(floor), ..stored };
        self.state = self.state.map(|fresh| stored.map_or(fresh, raised));
    }
}

#[cfg(test)]
mod tests {
    use segue_testing::MODELS;

    use super::*;

    fn scaler(keys: &[&str]) -> LossScaler {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        let config = MODELS.load(None, &keys).unwrap().config;
        LossScaler::new(&config.loss_scale, config.train.precision, config.loss_divisor())
    }

    /// Scales after steps with finite gradients (`true`) and others, computed by hand from PyTorch's documentation of GradScaler.
    #[test]
    fn the_scale_follows_the_rules_of_pytorch() {
        let mut own = scaler(&[
            "train.precision=fp16",
            "loss_scale.init=16",
            "loss_scale.interval=3",
            "loss_scale.growth=4",
            "loss_scale.floor=4",
        ]);
        let steps = [true, true, false, true, true, true, true, false, false, true];
        let scales = [16.0, 16.0, 8.0, 8.0, 8.0, 32.0, 32.0, 16.0, 8.0, 8.0];
        for (finite, scale) in steps.into_iter().zip(scales) {
            let before = own.state().unwrap().scale;
            let told = own.observe(finite).unwrap();
            assert_eq!((told.scale, told.overflowed), (before, !finite));
            assert_eq!(own.state().unwrap().scale, scale);
        }
        assert_eq!(own.state().unwrap().skipped, 3);
        assert!(own.observe(false).is_some_and(|told| told.scale == 8.0 && told.skipped == 4));
        // At the floor an overflow is a failure, and changes nothing.
        let at_floor = own.state();
        assert_eq!((own.observe(false), own.state()), (None, at_floor));
        assert_eq!(at_floor.unwrap().scale, 4.0);
    }

    #[test]
    fn defaults_are_those_of_pytorch() {
        let mut own = scaler(&["train.precision=fp16", "train.lanes=1024"]);
        assert_eq!((own.state().unwrap().scale, own.factor()), (65536.0, 64.0));
        (0..1999).for_each(|_| _ = own.observe(true));
        assert_eq!(own.state().unwrap().scale, 65536.0);
        own.observe(true);
        assert_eq!(own.state().unwrap().scale, 131_072.0);
        own.observe(false);
        assert_eq!(own.state().unwrap(), LossScale { scale: 65536.0, steps: 0, skipped: 1 });
    }

    /// A checkpoint of a run with a longer interval and a lower floor.
    #[test]
    fn a_scale_goes_on_under_other_keys() {
        let mut own = scaler(&["train.precision=fp16", "loss_scale.interval=10", "loss_scale.floor=8"]);
        own.restore(Some(LossScale { scale: 2.0, steps: 1500, skipped: 3 }));
        assert_eq!(own.state().unwrap().scale, 8.0);
        own.observe(true);
        assert_eq!(own.state().unwrap(), LossScale { scale: 16.0, steps: 0, skipped: 3 });
    }

    #[test]
    fn without_a_scale_nothing_is_multiplied_or_left_out() {
        let mut own = scaler(&["train.precision=bf16"]);
        assert_eq!((own.factor(), own.observe(false), own.state()), (1.0, None, None));
        own.restore(Some(LossScale { scale: 2.0, steps: 1, skipped: 0 }));
        assert_eq!((own.factor(), own.state()), (1.0, None));
    }
}
