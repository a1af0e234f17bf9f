//! `[adversarial]`: words that move away from the states which predict them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::refused;
use crate::range::Range;
use crate::refusal::out_of_range;
use crate::{Config, ConfigError, DeviceKind, Fall, Idle};

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
    /// A `scale` of 0 is trained through the adversary too, who then moves nothing: the bits of a run without one, with its record. For the
    /// baseline of a grid of scales.
    pub always: bool,
    /// Steps over which `scale` rises in a line from 0.
    pub warmup: u64,
    /// How `scale` falls from there on, over the steps of the schedule.
    pub fall: Fall,
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
            always: false,
            warmup: 0,
            fall: Fall::Constant,
            kind: MarginKind::Relative,
            gradient: MarginGradient::Delta,
            gate: false,
            clusters: false,
        }
    }
}

impl AdversarialConfig {
    /// Whether losses are trained through the adversary.
    pub fn takes_part(&self) -> bool {
        self.scale > 0.0 || self.always
    }

    /// Size of the ball at step `step`, from 1, of a schedule of `steps`.
    pub fn scale_at(&self, step: u64, steps: u64) -> f64 {
        let (step, warmup) = (step as f64, self.warmup as f64);
        if step < warmup {
            return self.scale * step / warmup;
        }
        match self.fall {
            Fall::Constant => self.scale,
            Fall::Linear => self.scale * ((steps as f64 - step) / (steps as f64 - warmup)).max(0.0),
        }
    }

    /// Whether the ball shrinks over the steps of the schedule.
    pub fn falls(&self) -> bool {
        self.scale > 0.0 && self.fall == Fall::Linear
    }
}

impl Config {
    /// Refuses a card. `what` says what is done on the processor alone, such as `this model trains`.
    pub fn check_on_processor(&self, what: &str) -> Result<(), ConfigError> {
        if self.train.device == DeviceKind::Cuda {
            let why = format!("{what} on the processor\nhint: leave train.device out");
            return Err(refused(self, "train.device", &why));
        }
        Ok(())
    }

    pub(crate) fn idle_adversarial(&self) -> Vec<Idle> {
        let (keys, by) = (["warmup", "fall", "kind", "gradient", "gate", "clusters"], ["adversarial.scale"]);
        let still = self.adversarial.scale == 0.0;
        let mut idle = Idle::all(still, "adversarial", &keys, &by, "needs adversarial.scale above 0");
        idle.extend(Idle::all(!still, "adversarial", &["always"], &by, "needs an adversarial.scale of 0"));
        idle
    }

    /// The scale has risen before it falls to 0.
    pub(crate) fn check_adversarial(&self) -> Result<(), ConfigError> {
        let (adversarial, steps) = (&self.adversarial, self.schedule_steps());
        if adversarial.falls() && adversarial.warmup >= steps {
            let why =
                format!("must be below the {steps} steps over which adversarial.fall lets the scale fall");
            return Err(out_of_range("adversarial.warmup", adversarial.warmup, &why));
        }
        Ok(())
    }

    /// Of a model without `clusters` of words: the key that moves their vectors.
    pub fn idle_clusters(&self, clusters: usize) -> Vec<Idle> {
        let idle = self.adversarial.scale > 0.0 && clusters == 0;
        let why = "needs model.cutoffs, which make clusters of words";
        Idle::all(idle, "adversarial", &["clusters"], &["model.cutoffs"], why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MODELS;

    /// Row S2.
    #[test]
    fn the_scale_rises_in_a_line_and_falls_in_another() {
        let of = |warmup, fall| AdversarialConfig { scale: 0.8, warmup, fall, ..Default::default() };
        let at = |config: AdversarialConfig| [0, 1, 2, 4, 7, 10, 11].map(|step| config.scale_at(step, 10));
        assert_eq!(at(of(0, Fall::Constant)), [0.8; 7]);
        assert_eq!(at(of(4, Fall::Constant)), [0.0, 0.2, 0.4, 0.8, 0.8, 0.8, 0.8]);
        assert_eq!(at(of(4, Fall::Linear)), [0.0, 0.2, 0.4, 0.8, 0.4, 0.0, 0.0]);
        let falling = at(of(0, Fall::Linear));
        assert!(falling[0] == 0.8 && (falling[2] - 0.64).abs() < 1e-15 && falling[5..] == [0.0; 2]);
    }

    /// Row S2.
    #[test]
    fn a_scale_that_falls_before_it_has_risen_is_refused() {
        let load = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            MODELS.load(None, &keys).map(|_| ()).map_err(|error| error.to_string())
        };
        let rising = ["adversarial.scale=0.1", "adversarial.warmup=10", "train.steps=10"];
        load(&rising).unwrap();
        let found = load(&[&rising[..], &["adversarial.fall=linear"]].concat()).unwrap_err();
        assert!(found.contains("`adversarial.warmup` = 10") && found.contains("10 steps"), "{found}");
        load(&[&rising[..], &["adversarial.fall=linear", "schedule.steps=20"]].concat()).unwrap();
    }
}
