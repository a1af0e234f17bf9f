//! The keys of `[model]`, and those that sentences with latent variables have of `[data]`, `[objective]` and `[eval]`.

use schemars::JsonSchema;
use segue_configs::model::{rate, size, vocabulary};
use segue_configs::range::Range;
use segue_configs::{Idle, OwnSection};
use serde::{Deserialize, Serialize};

use crate::estimator::Estimator;
use crate::network::{Dropout, LatentSizes, Sizes};
use crate::objective::{Counts, Objective};

/// More samples than any sentence has.
const MOST_SAMPLES: i64 = 1 << 16;
/// More latent variables, or values of one, than any model has.
const MOST_LATENTS: usize = 1 << 16;
/// More tokens than any sentence has.
const MOST_TOKENS: usize = 1 << 20;

/// What latent variables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LatentKind {
    /// Normal, with a standard normal prior.
    #[default]
    Gaussian,
    /// Of several values each, all as likely before a sentence is seen.
    Categorical,
}

/// `model_type = "latent"`: a language model of sentences with latent variables, which an LSTM reads from a sentence and another one writes it from (Melis 2023, §5.7.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatentConfig {
    /// Entries of the vocabulary; 0 until the corpus is known.
    #[schemars(transform = vocabulary())]
    pub vocab_size: usize,
    /// Id of the token that ends a sentence, and stands before its first; set with the vocabulary.
    #[schemars(transform = vocabulary())]
    pub eos_token_id: usize,
    /// Width of the vectors of words, of each network its own.
    #[schemars(transform = size())]
    pub d_embed: usize,
    /// Units of the encoder in each direction.
    #[schemars(transform = size())]
    pub d_encoder: usize,
    /// Units of the decoder.
    #[schemars(transform = size())]
    pub d_model: usize,
    /// What latent variables are.
    pub latents: LatentKind,
    /// Latent variables of a sentence.
    #[schemars(transform = Range::at_least(1).at_most(MOST_LATENTS))]
    pub latent_count: usize,
    /// Values of each categorical one.
    #[schemars(transform = Range::at_least(2).at_most(MOST_LATENTS))]
    pub latent_values: usize,
    /// Width of the vectors that stand for these, whose sum the decoder reads.
    #[schemars(transform = size())]
    pub d_latent: usize,
    /// Dropout of the decoder's input, with a new mask at each position.
    #[schemars(transform = rate())]
    pub dropout_input: f64,
    /// Dropout of its recurrent state, with one mask for all positions (Gal and Ghahramani 2016).
    #[schemars(transform = rate())]
    pub dropout_state: f64,
    /// Dropout of its output, before the softmax, with a new mask at each position.
    #[schemars(transform = rate())]
    pub dropout_output: f64,
    /// All samples of a sentence have the same masks of dropout: differences of their scores then are differences of their latents.
    pub shared_masks: bool,
}

impl Default for LatentConfig {
    /// The normal latents of the thesis, without dropout.
    fn default() -> Self {
        Self {
            vocab_size: 0,
            eos_token_id: 0,
            d_embed: 128,
            d_encoder: 128,
            d_model: 128,
            latents: LatentKind::Gaussian,
            latent_count: 40,
            latent_values: 10,
            d_latent: 128,
            dropout_input: 0.0,
            dropout_state: 0.0,
            dropout_output: 0.0,
            shared_masks: true,
        }
    }
}

impl LatentConfig {
    /// Sizes of both networks.
    pub fn sizes(&self) -> Sizes {
        let count = self.latent_count as i64;
        let latents = match self.latents {
            LatentKind::Gaussian => LatentSizes::Gaussian { count },
            LatentKind::Categorical => {
                let (values, width) = (self.latent_values as i64, self.d_latent as i64);
                LatentSizes::Categorical { count, values, width }
            }
        };
        Sizes {
            words: self.vocab_size as i64,
            embed: self.d_embed as i64,
            encoder: self.d_encoder as i64,
            decoder: self.d_model as i64,
            latents,
        }
    }

    /// Rates of the decoder's dropout.
    pub fn dropout(&self) -> Dropout {
        Dropout {
            input: self.dropout_input,
            state: self.dropout_state,
            output: self.dropout_output,
            shared: self.shared_masks,
        }
    }
}

/// `[data]`: the sentences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Corpus of sentences, as `segue data build --preset sentences` writes it. Required.
    pub corpus: String,
    /// Tokens of a sentence that are read, its end among them; 0 for all. The thesis cuts at 35, in validation too.
    #[schemars(transform = Range::at_least(0).at_most(MOST_TOKENS))]
    pub max_length: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self { corpus: String::new(), max_length: 35 }
    }
}

impl OwnSection for DataConfig {
    const NAME: &'static str = "data";
    const TITLE: &'static str = "latent variables";
}

/// What is maximized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ObjectiveKind {
    /// A bound on ln p(x).
    #[default]
    Bound,
    /// And information between sentence and latents, by the divergence of Kullback and Leibler.
    Kl,
    /// The same by the divergence of Rényi of order `order`.
    Renyi,
    /// The bound on the power `order` of the likelihood, divided by `order`.
    Power,
}

/// How gradients by the encoder's parameters are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EstimatorKind {
    /// Through normal samples and through their density: variational and importance-weighted autoencoders.
    Reparametrized,
    /// Through normal samples alone: STL of one sample, DReG of several.
    #[default]
    DoublyReparametrized,
    /// By the score function.
    Reinforce,
    /// By the score function, each sample against the mean of the others.
    Vimco,
}

/// `[objective]`: what is maximized, and how its gradient is estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// What is maximized.
    pub kind: ObjectiveKind,
    /// λ: how much the information counts beside ln p(x). Of one sample, 1 − λ is the β of a β-VAE.
    #[schemars(transform = Range::at_least(-1.0).at_most(1))]
    pub information: f64,
    /// α of Rényi's divergence, and of the power.
    #[schemars(transform = Range::at_least(0.01).at_most(100))]
    pub order: f64,
    /// How gradients by the encoder's parameters are estimated.
    pub estimator: EstimatorKind,
    /// Samples of a sentence.
    #[schemars(transform = Range::at_least(1).at_most(MOST_SAMPLES))]
    pub samples: i64,
    /// Of these, the ones that the information is estimated from, or more; 0 for as many.
    #[schemars(transform = Range::at_least(0).at_most(MOST_SAMPLES))]
    pub information_samples: i64,
    /// The divergence from the prior is computed and not sampled, of one sample: the evidence lower bound in its closed form.
    pub analytic: bool,
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self {
            kind: ObjectiveKind::Bound,
            information: 0.5,
            order: 2.0,
            estimator: EstimatorKind::DoublyReparametrized,
            samples: 16,
            information_samples: 0,
            analytic: false,
        }
    }
}

impl ObjectiveConfig {
    /// What is maximized.
    pub fn objective(&self) -> Objective {
        let (weight, order) = (self.information, self.order);
        match self.kind {
            ObjectiveKind::Bound => Objective::Bound,
            ObjectiveKind::Kl => Objective::Kl { weight },
            ObjectiveKind::Renyi => Objective::Renyi { weight, order },
            ObjectiveKind::Power => Objective::Power { order },
        }
    }

    /// Samples of its terms.
    pub fn counts(&self) -> Counts {
        let information = if self.information_samples > 0 { self.information_samples } else { self.samples };
        match self.kind {
            ObjectiveKind::Kl | ObjectiveKind::Renyi => Counts { bound: self.samples, information },
            ObjectiveKind::Bound | ObjectiveKind::Power => Counts::of(self.samples),
        }
    }

    /// How gradients by the encoder's parameters are estimated.
    pub fn estimator(&self) -> Estimator {
        match self.estimator {
            EstimatorKind::Reparametrized => Estimator::Reparametrized,
            EstimatorKind::DoublyReparametrized => Estimator::DoublyReparametrized,
            EstimatorKind::Reinforce => Estimator::Reinforce,
            EstimatorKind::Vimco => Estimator::Vimco,
        }
    }
}

impl OwnSection for ObjectiveConfig {
    const NAME: &'static str = "objective";
    const TITLE: &'static str = "latent variables";

    fn idle(&self) -> Vec<Idle> {
        let of = |idle: bool, key: &str, why| Idle::all(idle, Self::NAME, &[key], &["objective.kind"], why);
        let has_information = matches!(self.kind, ObjectiveKind::Kl | ObjectiveKind::Renyi);
        let has_order = matches!(self.kind, ObjectiveKind::Renyi | ObjectiveKind::Power);
        let why = "needs objective.kind of kl or renyi";
        [
            of(!has_information, "information", why),
            of(!has_information, "information_samples", why),
            of(!has_order, "order", "needs objective.kind of renyi or power"),
        ]
        .concat()
    }
}

/// `[eval]`: what validation estimates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatentEvalConfig {
    /// Samples of a sentence that its likelihood and its information are estimated from.
    #[schemars(transform = Range::at_least(1).at_most(MOST_SAMPLES))]
    pub samples: i64,
    /// Scores that are computed side by side: sentences times samples.
    #[schemars(transform = Range::at_least(1).at_most(MOST_TOKENS))]
    pub together: usize,
}

impl Default for LatentEvalConfig {
    fn default() -> Self {
        Self { samples: 100, together: 1000 }
    }
}

impl OwnSection for LatentEvalConfig {
    const NAME: &'static str = "eval";
    const TITLE: &'static str = "latent variables";
}
