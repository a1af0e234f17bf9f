//! `[adversarial]`: words that move away from the states which predict them.

use schemars::JsonSchema;
use segue_configs::range::Range;
use segue_configs::{Config, ConfigError, Fall, Idle, OwnSection, out_of_range};
use serde::{Deserialize, Serialize};

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
    fn falls(&self) -> bool {
        self.scale > 0.0 && self.fall == Fall::Linear
    }

    /// Of a model without `clusters` of words: the key that moves their vectors.
    pub fn idle_clusters(&self, clusters: usize) -> Vec<Idle> {
        let idle = self.scale > 0.0 && clusters == 0;
        let why = "needs model.cutoffs, which make clusters of words";
        Idle::all(idle, Self::NAME, &["clusters"], &["model.cutoffs"], why)
    }
}

impl OwnSection for AdversarialConfig {
    const NAME: &'static str = "adversarial";
    const FOLLOWS_BY: &'static [&'static str] = &["scale", "fall"];

    /// The scale has risen before it falls to 0.
    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        let steps = config.schedule_steps();
        if self.falls() && self.warmup >= steps {
            let why =
                format!("must be below the {steps} steps over which adversarial.fall lets the scale fall");
            return Err(out_of_range("adversarial.warmup", self.warmup, &why));
        }
        Ok(())
    }

    fn idle(&self) -> Vec<Idle> {
        let (keys, by) = (["warmup", "fall", "kind", "gradient", "gate", "clusters"], ["adversarial.scale"]);
        let still = self.scale == 0.0;
        let mut idle = Idle::all(still, Self::NAME, &keys, &by, "needs adversarial.scale above 0");
        idle.extend(Idle::all(!still, Self::NAME, &["always"], &by, "needs an adversarial.scale of 0"));
        idle
    }

    fn follows_schedule(&self) -> bool {
        self.falls()
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use segue_configs::{ModelSection, SectionType};
    use segue_testing::models;

    use super::*;

    /// A model without keys of its own, whose words may be moved.
    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
    struct Plain {}

    impl ModelSection for Plain {
        const TYPE: &'static str = "plain";
        const TITLE: &'static str = "Plain";
        const SECTIONS: &'static [SectionType] = &[SectionType::of::<AdversarialConfig>()];
        const READS: &'static [&'static str] = &["adversarial"];

        fn check(&self) -> Result<(), ConfigError> {
            Ok(())
        }
    }

    fn load(keys: &[&str]) -> Result<(), String> {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        models::<Plain>().load(None, &keys).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_without_effect_are_refused_by_name() {
        for (keys, says) in [
            (
                &["adversarial.kind=fixed"][..],
                "`adversarial.kind` = fixed is invalid: needs adversarial.scale above 0",
            ),
            (&["adversarial.gradient=full"], "`adversarial.gradient` = full is invalid"),
            (&["adversarial.gate=true"], "`adversarial.gate` = true is invalid"),
            (&["adversarial.clusters=true"], "`adversarial.clusters` = true is invalid"),
            (
                &["adversarial.warmup=5"],
                "`adversarial.warmup` = 5 is invalid: needs adversarial.scale above 0",
            ),
            (&["adversarial.fall=linear"], "`adversarial.fall` = linear is invalid"),
            (
                &["adversarial.scale=0.1", "adversarial.always=true"],
                "`adversarial.always` = true is invalid: needs an adversarial.scale of 0",
            ),
        ] {
            let found = load(keys).unwrap_err();
            assert!(found.contains(says), "{keys:?}: {found}");
        }
        load(&["adversarial.gate=false"]).unwrap();
        load(&["adversarial.gate=true", "adversarial.scale=0.1", "adversarial.scale=0"]).unwrap();
        let falling = ["adversarial.scale=0.2", "adversarial.fall=linear"];
        let steps = ["schedule.kind=constant", "schedule.steps=10"];
        load(&[&steps[..], &falling].concat()).unwrap();
        assert!(load(&steps).is_err());
    }

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
        let rising = ["adversarial.scale=0.1", "adversarial.warmup=10", "train.steps=10"];
        load(&rising).unwrap();
        let found = load(&[&rising[..], &["adversarial.fall=linear"]].concat()).unwrap_err();
        assert!(found.contains("`adversarial.warmup` = 10") && found.contains("10 steps"), "{found}");
        load(&[&rising[..], &["adversarial.fall=linear", "schedule.steps=20"]].concat()).unwrap();
    }
}
