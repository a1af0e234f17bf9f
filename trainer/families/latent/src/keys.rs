//! The keys of `[model]`, and those that models with latent variables have of `[data]`, `[objective]` and `[eval]`.

use schemars::JsonSchema;
use segue_configs::model::{rate, size, vocabulary};
use segue_configs::range::Range;
use segue_configs::{Idle, OwnSection};
use serde::{Deserialize, Serialize};

use crate::estimator::Estimator;
use crate::latents::largest_log_variance;
use crate::network::{Dropout, LatentSizes, NetworkKind, Sizes};
use crate::objective::{Counts, Objective};

/// More samples than any sentence has.
const MOST_SAMPLES: i64 = 1 << 16;
/// More latent variables, or values of one, than any model has.
const MOST_LATENTS: usize = 1 << 16;
/// More tokens than any sentence has.
const MOST_TOKENS: usize = 1 << 20;
/// More symbols than anybody draws.
const MOST_SYMBOLS: usize = 1 << 24;
/// More steps than any run has.
const MOST_STEPS: u64 = 1 << 40;

/// Places of the networks in [`Learner::networks`].
pub const DECODER: usize = 0;
/// See [`DECODER`].
pub const ENCODER: usize = 1;

/// What latent variables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LatentKind {
    /// Normal, with a standard normal prior.
    #[default]
    Gaussian,
    /// Of several values each, all as likely before a sentence is seen.
    Categorical,
    /// Vectors of a codebook, the nearest ones to what the encoder tells: VQ-VAE (van den Oord et al. 2017), a baseline.
    Codebook,
}

/// `model_type = "latent"`: a language model of sentences with latent variables, which one network reads from a sentence and another one writes it from (Melis 2023,
/// chapter 5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatentConfig {
    /// What networks are made of.
    pub network: NetworkKind,
    /// Entries of the vocabulary; 0 until the corpus is known.
    #[schemars(transform = vocabulary())]
    pub vocab_size: usize,
    /// Id of the token that ends a sentence, and stands before its first; set with the vocabulary.
    #[schemars(transform = vocabulary())]
    pub eos_token_id: usize,
    /// Width of the vectors of words, of each network its own.
    #[schemars(transform = size())]
    pub d_embed: usize,
    /// Units of the encoder, in each direction or layer.
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
    /// Values of each categorical one, and vectors of each codebook.
    #[schemars(transform = Range::at_least(2).at_most(MOST_LATENTS))]
    pub latent_values: usize,
    /// Width of the vectors that stand for these, whose sum the decoder reads.
    #[schemars(transform = size())]
    pub d_latent: usize,
    /// Nats that each normal latent is from its prior at least, as its variance is bounded (δ-VAE, Razavi et al. 2019); 0 for no bound.
    #[schemars(transform = Range::at_least(0.0).at_most(100))]
    pub committed_rate: f64,
    /// Fraction of a codebook's recent uses that is left after a step.
    #[schemars(transform = Range::above(0.0).below(1.0))]
    pub codebook_decay: f64,
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
            network: NetworkKind::Recurrent,
            vocab_size: 0,
            eos_token_id: 0,
            d_embed: 128,
            d_encoder: 128,
            d_model: 128,
            latents: LatentKind::Gaussian,
            latent_count: 40,
            latent_values: 10,
            d_latent: 128,
            committed_rate: 0.0,
            codebook_decay: 0.99,
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
        let [count, values, width] = [self.latent_count, self.latent_values, self.d_latent].map(|n| n as i64);
        let bound = (self.committed_rate > 0.0).then(|| largest_log_variance(self.committed_rate));
        let latents = match self.latents {
            LatentKind::Gaussian => LatentSizes::Gaussian { count, largest_log_variance: bound },
            LatentKind::Categorical => LatentSizes::Categorical { count, values, width },
            LatentKind::Codebook => LatentSizes::Codebook { count, values, width },
        };
        Sizes {
            network: self.network,
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

/// `[data]`: the sentences, or symbols in their place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Corpus of sentences, as `segue data build --preset sentences` writes it. Required, but for symbols.
    pub corpus: String,
    /// Tokens of a sentence that are read, its end among them; 0 for all. The thesis cuts at 35, in validation too.
    #[schemars(transform = Range::at_least(0).at_most(MOST_TOKENS))]
    pub max_length: usize,
    /// Symbols, all of them as frequent, that are trained and evaluated on in the place of sentences (Melis 2023, §5.7.1); 0 for none.
    #[schemars(transform = Range::at_least(0).at_most(MOST_SYMBOLS))]
    pub symbols: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self { corpus: String::new(), max_length: 35, symbols: 0 }
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
    /// Nats of each latent's divergence that are not lowered, of the closed form (free bits, Kingma et al. 2016).
    #[schemars(transform = Range::at_least(0.0).at_most(100))]
    pub free_bits: f64,
    /// Steps over which the weight of the divergence from the prior rises from 0 to 1, of one sample (Bowman et al. 2016); 0 for none.
    #[schemars(transform = Range::at_least(0).at_most(MOST_STEPS))]
    pub warm_up: u64,
    /// Steps of the encoder alone before each step of the decoder alone (aggressive training, He et al. 2019); 0 trains both in every step.
    #[schemars(transform = Range::at_least(0).at_most(MOST_STEPS))]
    pub encoder_steps: u64,
    /// Last step that `encoder_steps` are for: both are trained in those after it; 0 for all.
    #[schemars(transform = Range::at_least(0).at_most(MOST_STEPS))]
    pub encoder_steps_until: u64,
    /// Weight of the squared distance between what the encoder tells and the nearest vectors of a codebook.
    #[schemars(transform = Range::at_least(0.0).at_most(1000))]
    pub commitment: f64,
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
            free_bits: 0.0,
            warm_up: 0,
            encoder_steps: 0,
            encoder_steps_until: 0,
            commitment: 0.25,
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

    /// What the divergence from the prior counts in step `step`.
    pub fn weight_of_divergence(&self, step: u64) -> f64 {
        match self.warm_up {
            0 => 1.0,
            steps => (step as f64 / steps as f64).min(1.0),
        }
    }

    /// Networks that step `step` trains.
    pub fn networks(&self, step: u64) -> Vec<usize> {
        let until = if self.encoder_steps_until == 0 { u64::MAX } else { self.encoder_steps_until };
        match self.encoder_steps {
            alone if alone == 0 || step > until => vec![DECODER, ENCODER],
            alone if step.is_multiple_of(alone + 1) => vec![DECODER],
            _ => vec![ENCODER],
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
        let until = "encoder_steps_until";
        let steps = "needs objective.encoder_steps above 0";
        [
            of(!has_information, "information", why),
            of(!has_information, "information_samples", why),
            of(!has_order, "order", "needs objective.kind of renyi or power"),
            Idle::all(self.encoder_steps == 0, Self::NAME, &[until], &["objective.encoder_steps"], steps),
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
