//! `[adversarial]`: words that move away from the states which predict them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::refused;
use crate::range::Range;
use crate::{Config, ConfigError, DataOrder, DecidingLoss, DeviceKind, Idle, LossOver};

/// How far the vector of a word may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MarginKind {
    /// `scale` times its length.
    Relative,
    /// `scale`, whatever the word.
    Fixed,
}

/// What of a margin is differentiated. Its value is the same with all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MarginGradient {
    /// Nothing: the margin is a number, as the paper's text has it.
    Scalar,
    /// The length of the state: the word's shift is held fixed, as in the paper's algorithm and in the authors' program.
    Delta,
    /// The lengths of state and word.
    Full,
}

/// `[adversarial]`: adversarial training of the softmax (Wang, Gong and Liu 2019): in training, the vector of each target is
/// moved against the state that predicts it, as far as it may. The loss that is reported is that of the vectors as they are; evaluation
/// never moves them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdversarialConfig {
    /// Size of the ball that a word's vector may move in; 0 for none.
    #[schemars(transform = Range::at_least(0.0))]
    pub scale: f64,
    /// How the size of the ball is meant.
    pub kind: MarginKind,
    /// What of a margin is differentiated; its value is the same.
    pub gradient: MarginGradient,
    /// Words move only where they point to the same side as the state.
    pub gate: bool,
    /// The vectors that stand for the clusters of a split softmax move too.
    pub clusters: bool,
}

impl Default for AdversarialConfig {
    fn default() -> Self {
        Self {
            scale: 0.0,
            kind: MarginKind::Relative,
            gradient: MarginGradient::Delta,
            gate: false,
            clusters: false,
        }
    }
}

impl Config {
    /// Refuses each key that changes what is trained and that is neither at its default nor among `supported`: the model of the run has no
    /// place for it.
    pub fn check_trained(&self, supported: &[&str]) -> Result<(), ConfigError> {
        let objective = &self.objective;
        let set = [
            (self.adversarial.scale > 0.0, "adversarial.scale"),
            (objective.samples > 1, "objective.samples"),
            (objective.loss_over != LossOver::Targets, "objective.loss_over"),
            (objective.cosine_penalty > 0.0, "objective.cosine_penalty"),
            (objective.activation_penalty > 0.0, "objective.activation_penalty"),
            (objective.slowness_penalty > 0.0, "objective.slowness_penalty"),
            (objective.input_noise > 0.0, "objective.input_noise"),
            (self.data.order == DataOrder::Episodes, "data.order"),
            (self.train.drop_state > 0.0, "train.drop_state"),
            (self.average.decide_by != DecidingLoss::Validation, "average.decide_by"),
        ];
        match set.into_iter().find(|(set, key)| *set && !supported.contains(key)) {
            Some((_, key)) => Err(refused(self, key, "this model is not trained that way")),
            None => Ok(()),
        }
    }

    /// Refuses a card. `what` says what is done on the processor alone, such as `this model trains`.
    pub fn check_on_processor(&self, what: &str) -> Result<(), ConfigError> {
        if self.train.device == DeviceKind::Cuda {
            let why = format!("{what} on the processor\nhint: leave train.device out");
            return Err(refused(self, "train.device", &why));
        }
        Ok(())
    }

    pub(crate) fn idle_adversarial(&self) -> Vec<Idle> {
        let keys = ["kind", "gradient", "gate", "clusters"];
        let why = "needs adversarial.scale above 0";
        Idle::all(self.adversarial.scale == 0.0, "adversarial", &keys, &["adversarial.scale"], why)
    }

    /// Of a model without `clusters` of words: the key that moves their vectors.
    pub fn idle_clusters(&self, clusters: usize) -> Vec<Idle> {
        let idle = self.adversarial.scale > 0.0 && clusters == 0;
        let why = "needs model.cutoffs, which make clusters of words";
        Idle::all(idle, "adversarial", &["clusters"], &["model.cutoffs"], why)
    }
}
