//! `[optim]`: how gradients become updates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::idle::Overlooked;
use crate::range::Range;
use crate::refusal::out_of_range;
use crate::{Config, ConfigError, LogConfig, Shard, TrainConfig};

/// The update rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OptimKind {
    /// Weight decay, if any, is added to the gradient.
    Adam,
    /// Weight decay is taken off the weights.
    Adamw,
    /// AdamW's step of each parameter, made as long as the parameter itself before the rate scales it: for large batches
    /// (You et al. 2020, algorithm 2).
    Lamb,
    /// Plain gradient descent, without momentum. Weight decay, if any, is added to the gradient.
    Sgd,
    /// Adam with `beta1 = 0`, whose `eps` is added to the root before its bias is corrected (Melis 2023, §2.2.2); with
    /// `bias_correction = false` the usual RMSProp.
    Rmsprop,
    /// Adam whose rate is lowered, and whose first steps follow the mean of gradients alone, as long as few squares are
    /// known (Liu et al. 2020).
    Radam,
}

/// `[optim]`: how gradients become updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OptimConfig {
    /// Update rule that turns gradients into steps: Adam's, AdamW's, LAMB's, plain gradient descent's, RMSProp's or
    /// rectified Adam's.
    pub kind: OptimKind,
    /// Peak learning rate, which the schedule scales.
    #[schemars(transform = Range::above(0.0))]
    pub lr: f64,
    /// Decay of the mean of gradients. `sgd` keeps none, and `rmsprop` has 0.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub beta1: f64,
    /// Decay of the mean of squares.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub beta2: f64,
    /// Added to the root of the mean of squares; with `lamb` also to the length that a step is divided by.
    #[schemars(transform = Range::above(0.0))]
    pub eps: f64,
    /// Strength of weight decay: with `adamw` and `lamb` the share of each weight, times the learning rate, that a step takes off.
    #[schemars(transform = Range::at_least(0.0))]
    pub weight_decay: f64,
    /// Parameters whose name contains one of these are not decayed. `bias` spares attention's `r_w_bias`, `r_r_bias`
    /// and `r_s_bias` too; `.bias` does not.
    pub no_decay: Vec<String>,
    /// Correct the bias of Adam's moments towards zero (Kingma and Ba 2015). `false` is what XLNet's own AdamW does:
    /// steps of a new run are up to three times as long.
    pub bias_correction: bool,
    /// With `lamb`: parameters whose name contains one of these make AdamW's step, whatever their length. The published
    /// runs of You et al. spare biases and norms; NVIDIA's Transformer-XL spares none.
    pub no_trust: Vec<String>,
    /// With `lamb`: a parameter counts as no longer than this (φ of You et al. 2020); 0 for no limit. NVIDIA's
    /// Transformer-XL has 10.
    #[schemars(transform = Range::at_least(0.0))]
    pub trust_limit: f64,
    /// With `radam`: a step is adaptive where as many squares as this are known, in effect (ρ_t). Liu et al. 2020 have 4,
    /// and most programs 5; with `beta2 = 0.999` the first adaptive step is the fifth or the sixth.
    #[schemars(transform = Range::at_least(4.0))]
    pub rectify_above: f64,
    /// Times each weight, biases and embeddings included, is added to the gradient of the mean loss before it is clipped:
    /// the penalty `l2 / 2 · θ²` a target, of all parameters that a step reaches. `weight_decay` is of the update.
    #[schemars(transform = Range::at_least(0.0))]
    pub l2: f64,
    /// Largest global norm of the gradient of the mean loss; 0 for no clipping.
    #[schemars(transform = Range::at_least(0.0))]
    pub clip: f64,
    /// Each layer below the last learns at this share of the rate of the one above it; embeddings and heads learn at
    /// the full rate (Yang et al. 2019, table of fine-tuning).
    #[schemars(transform = Range::above(0.0).at_most(1.0))]
    pub layer_decay: f64,
    /// What `layer_decay` is a share of.
    pub layer_decay_of: LayerDecay,
}

/// What layer-wise decay scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LayerDecay {
    /// The learning rate, as published.
    Rate,
    /// The clipped gradient, as the XLNet reference's code does, which Adam nearly undoes.
    Gradient,
}

impl Default for OptimConfig {
    fn default() -> Self {
        Self {
            kind: OptimKind::Adam,
            lr: 2.5e-4,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            no_decay: vec!["bias".into(), "layer_norm".into()],
            bias_correction: true,
            no_trust: vec!["bias".into(), "layer_norm".into()],
            trust_limit: 0.0,
            rectify_above: 5.0,
            l2: 0.0,
            clip: 0.25,
            layer_decay: 1.0,
            layer_decay_of: LayerDecay::Rate,
        }
    }
}

impl OptimConfig {
    /// Tables of one value a parameter that the rule keeps.
    pub fn tables(&self) -> u64 {
        if self.kind == OptimKind::Sgd { 0 } else { 2 }
    }

    /// Keys that nothing looks at.
    fn overlooked(&self) -> Vec<Overlooked> {
        let means: &[&str] = match self.kind {
            OptimKind::Sgd => &["beta1", "beta2", "eps", "bias_correction"],
            OptimKind::Rmsprop if self.beta1 != 0.0 => &["beta1"],
            _ => &[],
        };
        let lengths: &[&str] = if self.kind == OptimKind::Lamb { &[] } else { &["no_trust", "trust_limit"] };
        let by_rule = means
            .iter()
            .chain(lengths)
            .map(|key| -> Overlooked { (key, &["kind"], "the rule of optim.kind does not look at it") });
        let others: [(bool, Overlooked); 3] = [
            (self.kind != OptimKind::Radam, ("rectify_above", &["kind"], "needs optim.kind = \"radam\"")),
            (
                self.layer_decay == 1.0,
                ("layer_decay_of", &["layer_decay"], "needs optim.layer_decay below 1"),
            ),
            (self.weight_decay == 0.0, ("no_decay", &["weight_decay"], "needs optim.weight_decay above 0")),
        ];
        by_rule.chain(others.into_iter().filter_map(|(idle, key)| idle.then_some(key))).collect()
    }

    /// Refuses what the rule would not look at, or cannot do without.
    fn check(&self, train: &TrainConfig, log: &LogConfig) -> Result<(), ConfigError> {
        let is_radam = self.kind == OptimKind::Radam;
        if is_radam && !self.bias_correction {
            let why = "optim.kind = \"radam\" is about the bias of moments; must be true";
            return Err(out_of_range("optim.bias_correction", false, why));
        }
        let refuse = |why| Err(out_of_range("optim.l2", self.l2, why));
        match self.l2 > 0.0 {
            true if train.shard == Shard::Gradients => {
                refuse("needs gradients that a rank has whole: train.shard")
            }
            true if log.noise_scale_every > 0 => {
                refuse("hides the noise that log.noise_scale_every is to measure")
            }
            _ => Ok(()),
        }
    }
}

impl Config {
    pub(crate) fn overlooked_of_optim(&self) -> Vec<Overlooked> {
        self.optim.overlooked()
    }

    pub(crate) fn check_optim(&self) -> Result<(), ConfigError> {
        let check = |optim: &OptimConfig| optim.check(&self.train, &self.log);
        check(&self.optim)?;
        self.networks_of("optim").try_for_each(|network| check(&self.of_network(network).optim))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::MODELS;

    #[test]
    fn what_a_rule_would_not_look_at_is_refused() {
        let load = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            MODELS.load(None, &keys).map(|loaded| loaded.config.optim.kind).map_err(|e| e.to_string())
        };
        for (keys, named) in [
            (&["optim.rectify_above=4"][..], "optim.rectify_above"),
            (&["optim.kind=radam", "optim.rectify_above=3"], "optim.rectify_above"),
            (&["optim.kind=radam", "optim.bias_correction=false"], "optim.bias_correction"),
            (&["optim.l2=1e-4", "train.shard=gradients"], "optim.l2"),
            (&["optim.l2=1e-4", "log.noise_scale_every=5", "train.micro_batch=1"], "optim.l2"),
            (&["optim.l2=-1"], "optim.l2"),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(&format!("`{named}`")), "{keys:?}: {message}");
        }
        for kind in ["sgd", "rmsprop", "radam"] {
            assert!(load(&[&format!("optim.kind={kind}"), "optim.l2=1e-4", "train.shard=optimizer"]).is_ok());
        }
        assert!(load(&["optim.kind=radam", "optim.rectify_above=4"]).is_ok());
    }
}
