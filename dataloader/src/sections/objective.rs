//! `[objective]`: what a language model is trained to do.

use schemars::JsonSchema;
use segue_configs::range::Range;
use segue_configs::{Config, ConfigError, Fall, Idle, OwnSection, no_effect, out_of_range};
use serde::{Deserialize, Serialize};

/// What a model is trained to do (Yang 2019, §2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ObjectiveKind {
    /// Each token from those before it (2.1). An XLNet then needs `model.attn_type = "uni"`, `data.order = "stream"`
    /// and `model.reuse_len = 0`.
    Lm,
    /// Chosen tokens in a random order, each from those earlier in it (2.3).
    Permutation,
    /// BERT's objective: chosen tokens are corrupted and predicted all at once, from the content stream (2.2).
    Denoising,
}

/// What the sum of a batch's losses is divided by before it is differentiated. Losses are reported a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossOver {
    /// Its targets.
    #[default]
    Targets,
    /// Its lanes: gradients grow with the length of a segment.
    Lanes,
}

/// `[objective]`: what a model is trained to do. All but an XLNet have one `kind`, `lm`; the keys from `samples` on are of recurrent models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// Tokens that are predicted, and from which others.
    pub kind: ObjectiveKind,
    /// Weight of BERT's next-sentence loss, computed from the last token's hidden state; 1 makes the mean over sequences weigh as
    /// much as the mean over targets. It is trained, and not part of the loss that is reported. 0 for none.
    #[schemars(transform = Range::at_least(0.0))]
    pub next_sentence: f64,
    /// Denoising: share of the chosen tokens that become `<mask>`.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub mask_share: f64,
    /// Denoising: share of the chosen tokens that become a random piece; the rest stay.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub random_share: f64,
    /// Dropout masks that each target is predicted with, each with a state of its own; its probability is their mean (Melis 2023, §4.3).
    #[schemars(transform = Range::at_least(1).at_most(1024))]
    pub samples: usize,
    /// What gradients are means over.
    pub loss_over: LossOver,
    /// Weight of the mean cosine between the output vectors of two words, Σ cos(w_i, w_j) / V² over all i ≠ j (Gao et al. 2019). It is
    /// trained, and not part of the loss that is reported.
    #[schemars(transform = Range::at_least(0.0))]
    pub cosine_penalty: f64,
    /// Weight of the mean square of what predicts words, after its dropout (activation regularisation; Merity et al. 2018, §4.6). It is
    /// trained, and not part of the loss that is reported.
    #[schemars(transform = Range::at_least(0.0))]
    pub activation_penalty: f64,
    /// Weight of the mean square of its change from one position of a segment to the next, before its dropout (temporal activation
    /// regularisation). It is trained, and not part of the loss that is reported.
    #[schemars(transform = Range::at_least(0.0))]
    pub slowness_penalty: f64,
    /// Standard deviation of the normal noise that is added to input embeddings in training.
    #[schemars(transform = Range::at_least(0.0))]
    pub input_noise: f64,
    /// How `input_noise` falls over the steps of the schedule.
    pub input_noise_fall: Fall,
}

impl ObjectiveConfig {
    /// Standard deviation of the noise on input embeddings at step `step`, from 1, of `steps`.
    pub fn input_noise_at(&self, step: u64, steps: u64) -> f64 {
        let left = match self.input_noise_fall {
            Fall::Constant => 1.0,
            Fall::Linear => 1.0 - step.min(steps) as f64 / steps.max(1) as f64,
        };
        self.input_noise * left
    }
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self {
            kind: ObjectiveKind::Lm,
            next_sentence: 0.0,
            mask_share: 0.8,
            random_share: 0.1,
            samples: 1,
            loss_over: LossOver::Targets,
            cosine_penalty: 0.0,
            activation_penalty: 0.0,
            slowness_penalty: 0.0,
            input_noise: 0.0,
            input_noise_fall: Fall::Linear,
        }
    }
}

impl OwnSection for ObjectiveConfig {
    const NAME: &'static str = "objective";
    const FOLLOWS_BY: &'static [&'static str] = &["input_noise", "input_noise_fall"];

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        if !config.reads("objective.next_sentence") {
            return Ok(());
        }
        if self.next_sentence > 0.0 && self.kind == ObjectiveKind::Lm {
            let why = "objective.kind = \"lm\" has no pairs of segments";
            return Err(no_effect("objective.next_sentence", self.next_sentence, why));
        }
        if self.mask_share + self.random_share > 1.0 {
            let why = "exceeds 1 together with objective.mask_share";
            return Err(out_of_range("objective.random_share", self.random_share, why));
        }
        Ok(())
    }

    fn idle(&self) -> Vec<Idle> {
        let why = "needs objective.input_noise above 0";
        let idle = self.input_noise == 0.0;
        Idle::all(idle, Self::NAME, &["input_noise_fall"], &["objective.input_noise"], why)
    }

    fn follows_schedule(&self) -> bool {
        self.input_noise > 0.0 && self.input_noise_fall == Fall::Linear
    }
}
