//! The keys of `[model]`, and those that translation has of `[data]`, `[objective]` and `[eval]`.

use schemars::JsonSchema;
use segue_configs::model::{rate, size, vocabulary};
use segue_configs::range::Range;
use segue_configs::{ConfigError, Idle, OwnSection, out_of_range};
use segue_data_error::DataError;
use segue_decode::{BeamSettings, Finish, LengthPenalty};
use segue_layers::cross_entropy::{Distribution, SmoothingForm};
use segue_layers::{Activation, NormPlace};
use segue_measure::translation::{Bleu, SmoothingMethod, Tokenizer as BleuTokenizer};
use segue_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

/// More layers than any model has.
const MOST_LAYERS: usize = 1 << 10;
/// More tokens than a batch has on any machine.
const MOST_TOKENS: usize = 1 << 24;

/// `model_type = "marian"`: a Transformer that translates (Vaswani et al. 2017). Keys are those of Marian models in Hugging Face's package, which
/// opens the folders of models with norms after sums and biases in attention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TranslationConfig {
    /// Entries of the vocabulary that both languages share, padding among them; 0 until the corpus is known.
    #[schemars(transform = vocabulary())]
    pub vocab_size: usize,
    /// Width of states and of the table of words, which serves source, target and softmax.
    #[schemars(transform = size())]
    pub d_model: usize,
    /// Layers that read the source.
    #[schemars(transform = Range::at_least(1).at_most(MOST_LAYERS))]
    pub encoder_layers: usize,
    /// Layers that write the target.
    #[schemars(transform = Range::at_least(1).at_most(MOST_LAYERS))]
    pub decoder_layers: usize,
    /// Heads of the encoder's attention.
    #[schemars(transform = size())]
    pub encoder_attention_heads: usize,
    /// Heads of the decoder's attention, to itself and to the source.
    #[schemars(transform = size())]
    pub decoder_attention_heads: usize,
    /// Inner width of the encoder's feed-forward blocks.
    #[schemars(transform = size())]
    pub encoder_ffn_dim: usize,
    /// Inner width of the decoder's feed-forward blocks.
    #[schemars(transform = size())]
    pub decoder_ffn_dim: usize,
    /// Dropout of embeddings, and of what each sublayer adds.
    #[schemars(transform = rate())]
    pub dropout: f64,
    /// Dropout of attention weights.
    #[schemars(transform = rate())]
    pub attention_dropout: f64,
    /// Dropout of the activations of feed-forward blocks.
    #[schemars(transform = rate())]
    pub activation_dropout: f64,
    /// Activation of feed-forward blocks.
    pub activation_function: Activation,
    /// Multiply embeddings by the root of `d_model`.
    pub scale_embedding: bool,
    /// Where norms stand.
    pub norm: NormPlace,
    /// The linear maps of attention have biases.
    pub attention_bias: bool,
    /// The softmax has a bias for each word.
    pub output_bias: bool,
    /// Most tokens of a sentence that `segue translate` reads, and of a translation. Training reads what the corpus has.
    #[schemars(transform = size())]
    pub max_position_embeddings: usize,
    /// Id of padding, with which a target begins; set with the vocabulary.
    #[schemars(transform = vocabulary())]
    pub pad_token_id: usize,
    /// Id of the token that ends a text; set with the vocabulary.
    #[schemars(transform = vocabulary())]
    pub eos_token_id: usize,
}

impl Default for TranslationConfig {
    /// The base model of the paper.
    fn default() -> Self {
        Self {
            vocab_size: 0,
            d_model: 512,
            encoder_layers: 6,
            decoder_layers: 6,
            encoder_attention_heads: 8,
            decoder_attention_heads: 8,
            encoder_ffn_dim: 2048,
            decoder_ffn_dim: 2048,
            dropout: 0.1,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            activation_function: Activation::Relu,
            scale_embedding: true,
            norm: NormPlace::Post,
            attention_bias: true,
            output_bias: false,
            max_position_embeddings: 1024,
            pad_token_id: 0,
            eos_token_id: 0,
        }
    }
}

/// `[data]`: the pairs of sentences, and how they make batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Corpus of pairs, as `segue data build --preset pairs` writes it. Required.
    pub corpus: String,
    /// Largest batch in tokens: pairs times the longest source or target among them. `train.lanes` batches make a step.
    #[schemars(transform = Range::at_least(1).at_most(MOST_TOKENS))]
    pub batch_tokens: usize,
    /// Most pairs of a batch; 0 for any number.
    #[schemars(transform = Range::at_least(0).at_most(MOST_TOKENS))]
    pub batch_sentences: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self { corpus: String::new(), batch_tokens: 4096, batch_sentences: 0 }
    }
}

impl OwnSection for DataConfig {
    const NAME: &'static str = "data";
    const TITLE: &'static str = "translation";
}

/// `[objective]`: the loss of target tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// Probability that label smoothing takes from each target (Szegedy et al. 2016); 0 for none. Losses that are reported are those of the targets themselves.
    #[schemars(transform = rate())]
    pub label_smoothing: f64,
    /// Which words share it.
    pub smoothing_form: SmoothingForm,
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self { label_smoothing: 0.1, smoothing_form: SmoothingForm::All }
    }
}

impl ObjectiveConfig {
    /// What a position is trained to predict; `None` for its target alone.
    pub fn smoothing(&self, model: &TranslationConfig) -> Option<Distribution> {
        (self.label_smoothing > 0.0).then(|| {
            self.smoothing_form.distribution(
                self.label_smoothing,
                model.vocab_size,
                model.pad_token_id as i64,
            )
        })
    }
}

impl OwnSection for ObjectiveConfig {
    const NAME: &'static str = "objective";
    const TITLE: &'static str = "translation";

    fn idle(&self) -> Vec<Idle> {
        let none = self.label_smoothing == 0.0;
        let why = "needs objective.label_smoothing above 0";
        Idle::all(none, Self::NAME, &["smoothing_form"], &["objective.label_smoothing"], why)
    }
}

/// The measure that the best model is chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeadingMeasure {
    /// Validation loss, in nats a token.
    #[default]
    Loss,
    /// BLEU of translations of the validation split, in percent.
    Bleu,
}

/// Keys of `[eval]`: what evaluations translate, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TranslationEvalConfig {
    /// The measure that the best model is chosen by, and that `patience` watches.
    pub lead: LeadingMeasure,
    /// Pairs of the validation split that each evaluation translates, from the first on, to measure BLEU; 0 for none, with `lead = "loss"`.
    #[schemars(transform = Range::at_least(0).at_most(1u64 << 32))]
    pub translated: u64,
    /// Translations that each evaluation shows, with source and reference.
    #[schemars(transform = Range::at_least(0).at_most(100))]
    pub shown: usize,
    /// BLEU compares lower-cased text.
    pub lower_case: bool,
    /// How BLEU divides text into tokens: `none` for a corpus of text that was tokenised before.
    pub tokenize: BleuTokenizer,
    /// What BLEU takes for matches of an order that has none.
    pub smooth: SmoothingMethod,
    /// The number that `smooth` has, as `floor` and `add-k`; 0 for 0.1 and 1.
    #[schemars(transform = Range::at_least(0.0).at_most(100))]
    pub smooth_value: f64,
    /// BLEU splits compounds at their hyphens after tokenisation, as the published figures of WMT 2014 English to German do (Vaswani et al. 2017).
    pub compounds: bool,
    /// Beams; 1 writes the most probable token each time.
    #[schemars(transform = Range::at_least(1).at_most(1 << 10))]
    pub beams: usize,
    /// Exponent α of the length penalty.
    #[schemars(transform = Range::at_least(0.0).at_most(10))]
    pub length_penalty: f64,
    /// What a translation's log-probability is divided by.
    pub length_form: LengthPenalty,
    /// Weight β of the coverage penalty (Wu et al. 2016, eq. 14).
    #[schemars(transform = Range::at_least(0.0).at_most(10))]
    pub coverage_penalty: f64,
    /// When a search ends.
    pub finish: Finish,
    /// Tokens that a translation may have more than its source.
    #[schemars(transform = Range::at_least(1).at_most(1 << 16))]
    pub more_tokens: usize,
}

impl Default for TranslationEvalConfig {
    /// The search of the paper.
    fn default() -> Self {
        let BeamSettings { beams, alpha, form, coverage, finish, .. } = BeamSettings::default();
        Self {
            lead: LeadingMeasure::Loss,
            translated: 0,
            shown: 0,
            lower_case: false,
            tokenize: BleuTokenizer::default(),
            smooth: SmoothingMethod::default(),
            smooth_value: 0.0,
            compounds: false,
            beams,
            length_penalty: alpha,
            length_form: form,
            coverage_penalty: coverage,
            finish,
            more_tokens: 50,
        }
    }
}

impl TranslationEvalConfig {
    /// How translations are scored.
    pub fn bleu(&self) -> Bleu {
        let value = (self.smooth_value > 0.0).then_some(self.smooth_value);
        Bleu {
            tokenizer: self.tokenize,
            lower_case: self.lower_case,
            split_compounds: self.compounds,
            smoothing: self.smooth.with(value),
            ..Bleu::default()
        }
    }

    /// How translations are searched for.
    pub fn search(&self) -> BeamSettings {
        BeamSettings {
            beams: self.beams,
            alpha: self.length_penalty,
            form: self.length_form,
            coverage: self.coverage_penalty,
            finish: self.finish,
            ..BeamSettings::default()
        }
    }
}

impl OwnSection for TranslationEvalConfig {
    const NAME: &'static str = "eval";
    const TITLE: &'static str = "translation";

    fn idle(&self) -> Vec<Idle> {
        let one = self.translated > 0 && self.beams == 1;
        let why = "chooses between candidates: needs eval.beams above 1";
        let keys = ["length_penalty", "length_form", "coverage_penalty", "finish"];
        let mut idle = Idle::all(one, Self::NAME, &keys, &["eval.beams"], why);
        let no_value = self.translated > 0 && !self.smooth.has_value();
        let why = "needs eval.smooth of floor or add-k";
        idle.extend(Idle::all(no_value, Self::NAME, &["smooth_value"], &["eval.smooth"], why));
        let none = self.translated == 0;
        let why = "needs eval.translated above 0";
        let keys = [
            "shown",
            "lower_case",
            "tokenize",
            "smooth",
            "smooth_value",
            "compounds",
            "beams",
            "length_penalty",
            "length_form",
            "coverage_penalty",
            "finish",
            "more_tokens",
        ];
        idle.extend(Idle::all(none, Self::NAME, &keys, &["eval.translated"], why));
        idle
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.lead == LeadingMeasure::Bleu && self.translated == 0 {
            let why = "needs eval.translated above 0: that many pairs are translated to measure it";
            return Err(out_of_range("eval.lead", "bleu", why));
        }
        Ok(())
    }
}

impl TranslationConfig {
    /// Takes the vocabulary of `tokenizer`, and one more entry where that has no padding. Refuses one without an end of texts.
    pub fn fit_tokenizer(&mut self, tokenizer: &Tokenizer) -> Result<(), DataError> {
        let Some(end) = tokenizer.eos_id() else {
            let why = "its tokenizer has no token that ends a text, and translations end with one";
            return Err(DataError::Usage(format!(
                "{why}\nhint: train it with `segue data build --preset pairs`"
            )));
        };
        let size = tokenizer.vocab_size();
        // Of other kinds `<pad>` may be a word of the text.
        let padding = tokenizer.pad_id();
        self.eos_token_id = end as usize;
        self.pad_token_id = padding.map_or(size, |padding| padding as usize);
        self.vocab_size = size + usize::from(padding.is_none());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
