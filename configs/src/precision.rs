//! `[loss_scale]`: what keeps small gradients of 16 bits from vanishing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::Range;
use crate::refusal::out_of_range;
use crate::{Config, ConfigError, Idle, Precision};

/// When a loss is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossScaleKind {
    /// With `train.precision = "fp16"`, and not otherwise.
    Auto,
    /// In every precision.
    Dynamic,
    /// Never.
    None,
}

/// `[loss_scale]`: what a loss is multiplied by before backward, so that small gradients do not vanish in 16 bits (Micikevicius et al.
/// 2018). All factors are powers of two, which round nothing: single precision gives the same bits with a scale as without. The loss is
/// divided by the largest power of two that is at most the number of targets before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossScaleConfig {
    /// When a loss is scaled.
    pub kind: LossScaleKind,
    /// Scale of the first step, a power of two.
    #[schemars(transform = Range::above(0.0).in_double())]
    pub init: f64,
    /// What the scale is multiplied by after `interval` steps in a row without an overflow, a power of two.
    #[schemars(transform = Range::at_least(1.0).in_double())]
    pub growth: f64,
    /// What it is multiplied by after a step whose gradients overflow, a power of two. That step makes no update.
    #[schemars(transform = Range::above(0.0).below(1.0).in_double())]
    pub backoff: f64,
    /// Steps in a row without an overflow after which the scale grows.
    #[schemars(transform = Range::at_least(1))]
    pub interval: u64,
    /// Smallest scale, a power of two: gradients that overflow under it are a failure, which `[recovery]` decides about.
    #[schemars(transform = Range::above(0.0).in_double())]
    pub floor: f64,
}

impl Default for LossScaleConfig {
    fn default() -> Self {
        Self {
            kind: LossScaleKind::Auto,
            init: 65536.0,
            growth: 2.0,
            backoff: 0.5,
            interval: 2000,
            floor: 1.0,
        }
    }
}

impl LossScaleConfig {
    /// Whether losses of products in `precision` are scaled.
    pub fn scales(&self, precision: Precision) -> bool {
        match self.kind {
            LossScaleKind::Auto => precision == Precision::Fp16,
            LossScaleKind::Dynamic => true,
            LossScaleKind::None => false,
        }
    }
}

impl Config {
    /// What a sum over the targets of a step is divided by before it is scaled: the largest power of two that is at most their number.
    pub fn loss_divisor(&self) -> f64 {
        let per_lane = if self.task.name.is_empty() { self.model.targets_per_lane(&self.own) } else { 1 };
        let targets = (self.train.lanes * per_lane).max(1);
        f64::from(targets.ilog2()).exp2()
    }

    pub(crate) fn idle_loss_scale(&self) -> Vec<Idle> {
        let keys = ["init", "growth", "backoff", "interval", "floor"];
        let by = ["train.precision", "loss_scale.kind"];
        let why = "needs train.precision = \"fp16\" or loss_scale.kind = \"dynamic\"";
        Idle::all(!self.loss_scale.scales(self.train.precision), "loss_scale", &keys, &by, why)
    }

    pub(crate) fn check_precision(&self) -> Result<(), ConfigError> {
        let scale = &self.loss_scale;
        let LossScaleConfig { init, growth, backoff, floor, .. } = *scale;
        let factors = [
            ("loss_scale.init", init),
            ("loss_scale.growth", growth),
            ("loss_scale.backoff", backoff),
            ("loss_scale.floor", floor),
        ];
        if let Some((key, value)) = factors.into_iter().find(|(_, value)| !is_power_of_two(*value)) {
            let why = "must be a power of two, such as 0.5 or 65536: any other scale rounds the gradients";
            return Err(out_of_range(key, value, why));
        }
        if scale.floor > scale.init {
            let why = format!("must be at most loss_scale.init, which is {}", scale.init);
            return Err(out_of_range("loss_scale.floor", scale.floor, &why));
        }
        Ok(())
    }
}

/// Of a positive number: whether its mantissa is 1.
fn is_power_of_two(value: f64) -> bool {
    value.is_normal() && value.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MODELS;

    fn load(keys: &[&str]) -> Result<Config, ConfigError> {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        MODELS.load(None, &keys).map(|loaded| loaded.config)
    }

    #[test]
    fn scales_that_would_round_are_refused_by_their_keys() {
        for (key, value, why) in [
            ("loss_scale.init", "1000", "power of two"),
            ("loss_scale.growth", "3", "power of two"),
            ("loss_scale.backoff", "0.3", "power of two"),
            ("loss_scale.floor", "0.7", "power of two"),
            ("loss_scale.floor", "131072", "at most loss_scale.init"),
            ("loss_scale.backoff", "1", "(0, 1)"),
            ("loss_scale.interval", "0", "1"),
            ("train.precision", "fp8", "f32"),
        ] {
            let error = load(&[&format!("{key}={value}")]).unwrap_err();
            assert_eq!(error.exit_code(), 78, "{key}={value}");
            let told = format!("{error} {}", error.hint().unwrap_or_default());
            assert!(told.contains(key) && told.contains(why), "{key}={value}: {told}");
        }
        assert!(
            load(&[
                "loss_scale.kind=dynamic",
                "loss_scale.init=0.25",
                "loss_scale.floor=0.125",
                "loss_scale.growth=1"
            ])
            .is_ok()
        );
    }

    #[test]
    fn the_loss_is_scaled_where_gradients_have_5_bits_of_exponent() {
        let scales = |keys: &[&str]| {
            let config = load(keys).unwrap();
            config.loss_scale.scales(config.train.precision)
        };
        assert!(!scales(&[]) && !scales(&["train.precision=bf16"]) && scales(&["train.precision=fp16"]));
        assert!(!scales(&["train.precision=fp16", "loss_scale.kind=none"]));
        assert!(scales(&["loss_scale.kind=dynamic"]));
    }

    #[test]
    fn the_loss_is_divided_by_a_power_of_two_below_the_number_of_targets() {
        let divisor = |keys: &[&str]| load(keys).unwrap().loss_divisor();
        assert_eq!(divisor(&["train.lanes=8", "train.segment=100"]), 512.0);
        assert_eq!(divisor(&["train.lanes=8", "train.segment=128"]), 1024.0);
        assert_eq!(divisor(&["train.lanes=1", "train.micro_batch=1", "train.segment=1"]), 1.0);
    }
}
