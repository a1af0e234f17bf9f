//! `model_type = "lstm"`.

use schemars::JsonSchema;
use segue_configs::model::{out_of_range, rate, refused, size, vocabulary};
use segue_configs::range::{self, Range};
use segue_configs::{Config, ConfigError, DataOrder, DocumentEnd, ModelSection, ObjectiveKind};
use serde::{Deserialize, Serialize};

use super::model;
use crate::ParameterSpec;
use crate::layers::recurrent::{InputGate, MogrifierShape};

/// Beyond what any machine holds, and where widths are still far from overflowing.
const MOST_PARAMETERS: u64 = 1 << 40;
const MOST_RANK: i64 = 1 << 20;

/// The cells there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CellKind {
    /// Long short-term memory (Hochreiter and Schmidhuber 1997).
    Lstm,
    /// The multiplicative LSTM (Krause et al. 2017).
    Mlstm,
    /// The rewired LSTM (Melis 2023, §4.1).
    Rewired,
    /// The gated recurrent unit (Cho et al. 2014).
    Gru,
    /// Elman's network (1990).
    Elman,
}

/// How layers are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Wiring {
    /// A layer reads the one below; the outputs of all are added up (Melis 2023, ch. 2).
    Skip,
    /// A layer reads the sum of all below (Melis 2023, eq. 4.1).
    Residual,
}

/// How the biases of forget gates start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForgetBias {
    /// Around 1.
    One,
    /// ln u with u uniform in [1, `t_max` − 1] (Tallec and Ollivier 2018).
    Chrono,
}

/// `model_type = "lstm"`: recurrent language models (Melis 2023, ch. 2 and 4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LstmConfig {
    /// Entries of the vocabulary, at least the corpus'; 0 takes the corpus'.
    #[schemars(transform = vocabulary())]
    pub vocab_size: usize,
    /// Budget of parameters: `d_model` becomes the largest that stays within it; 0 takes `d_model` as it is.
    #[schemars(transform = Range::at_least(0).at_most(MOST_PARAMETERS))]
    pub parameters: usize,
    /// Width of the state of each layer.
    #[schemars(transform = size())]
    pub d_model: usize,
    /// Width of the embeddings as a fraction of `d_model`; from 1 on they are as wide, and nothing is projected.
    #[schemars(transform = Range::at_least(0.0))]
    pub input_embedding_ratio: f64,
    /// Number of layers.
    #[schemars(transform = size())]
    pub n_layer: usize,
    /// What a layer steps.
    pub cell: CellKind,
    /// How much of a candidate a cell takes in.
    pub input_gate: InputGate,
    /// Gates that input and state open for each other before a step; 0 for none.
    #[schemars(transform = Range::at_least(0).at_most(64))]
    pub mogrifier_rounds: usize,
    /// Rank of their matrices; 0 or less for whole ones.
    #[schemars(transform = Range::at_least(-MOST_RANK).at_most(MOST_RANK))]
    pub mogrifier_rank: i64,
    /// They have a bias.
    pub mogrifier_bias: bool,
    /// Each sees what the one before it has changed.
    pub mogrifier_zigzag: bool,
    /// How layers are joined.
    pub wiring: Wiring,
    /// The output table is the input embeddings.
    pub tie_word_embeddings: bool,
    /// First ids of the clusters that a split softmax has beside its most frequent words, rising, above 0 and below the vocabulary; empty
    /// for one softmax.
    pub cutoffs: Vec<usize>,
    /// Softmaxes that are mixed (Yang et al. 2018); 1 for an ordinary one.
    #[schemars(transform = size())]
    pub mixture: usize,
    /// Dropout of embeddings.
    #[schemars(transform = rate())]
    pub input_dropout: f64,
    /// Dropout of the input of all layers but the first, with `wiring = "skip"`.
    #[schemars(transform = rate())]
    pub inter_layer_dropout: f64,
    /// Dropout of each layer's output, with `wiring = "residual"`.
    #[schemars(transform = rate())]
    pub cell_output_dropout: f64,
    /// Dropout of the state that gates see, one mask for all positions of a segment.
    #[schemars(transform = rate())]
    pub state_dropout: f64,
    /// Dropout of the sum of all layers.
    #[schemars(transform = rate())]
    pub output_dropout: f64,
    /// Dropout of what is projected from it; below 0 as `output_dropout`.
    #[schemars(transform = Range::at_least(-1.0).below(1.0))]
    pub projection_dropout: f64,
    /// How the biases of forget gates start.
    pub forget_bias: ForgetBias,
    /// Longest time that `forget_bias = "chrono"` remembers, in steps.
    #[schemars(transform = Range::above(2.0))]
    pub t_max: f64,
    /// Id of the end of a text; the corpus' where it has one.
    #[schemars(transform = Range::any())]
    pub eos_token_id: i64,
}

impl Default for LstmConfig {
    fn default() -> Self {
        Self {
            vocab_size: 0,
            parameters: 0,
            d_model: 256,
            input_embedding_ratio: 1.0,
            n_layer: 2,
            cell: CellKind::Lstm,
            input_gate: InputGate::Capped,
            mogrifier_rounds: 0,
            mogrifier_rank: 0,
            mogrifier_bias: true,
            mogrifier_zigzag: true,
            wiring: Wiring::Skip,
            tie_word_embeddings: true,
            cutoffs: Vec::new(),
            mixture: 1,
            input_dropout: 0.0,
            inter_layer_dropout: 0.0,
            cell_output_dropout: 0.0,
            state_dropout: 0.0,
            output_dropout: 0.0,
            projection_dropout: -1.0,
            forget_bias: ForgetBias::One,
            t_max: 32.0,
            eos_token_id: 0,
        }
    }
}

impl LstmConfig {
    /// Width of the embeddings, input and output.
    pub fn embed_width(&self) -> usize {
        let wide = (self.input_embedding_ratio * self.d_model as f64).round() as usize;
        wide.clamp(1, self.d_model)
    }

    /// Width of the input of layer `layer`, from 0.
    pub fn input_width(&self, layer: usize) -> usize {
        if layer == 0 { self.embed_width() } else { self.d_model }
    }

    /// The gates before each step.
    pub fn mogrifier(&self) -> MogrifierShape {
        MogrifierShape {
            rounds: self.mogrifier_rounds,
            rank: self.mogrifier_rank.max(0) as usize,
            bias: self.mogrifier_bias,
            zigzag: self.mogrifier_zigzag,
        }
    }

    /// Cluster borders `[0, cutoffs.., vocab_size]`.
    pub fn cluster_ends(&self) -> Vec<usize> {
        [0].into_iter().chain(self.cutoffs.iter().copied()).chain([self.vocab_size]).collect()
    }

    /// Whether states are mapped to vectors as wide as the embeddings.
    pub fn projects(&self) -> bool {
        self.mixture == 1 && self.embed_width() != self.d_model
    }

    /// Dropout of these vectors.
    pub fn projected_dropout(&self) -> f64 {
        if self.projection_dropout < 0.0 { self.output_dropout } else { self.projection_dropout }
    }

    /// Refuses what the model would not look at.
    fn check_used(&self) -> Result<(), ConfigError> {
        let gated = matches!(self.cell, CellKind::Lstm | CellKind::Mlstm | CellKind::Rewired);
        let skips = self.wiring == Wiring::Skip;
        let unused: [(bool, &'static str, String, &str); 6] = [
            (
                self.mixture > 1 && !self.cutoffs.is_empty(),
                "model.cutoffs",
                format!("{:?}", self.cutoffs),
                "has a place without a mixture of softmaxes alone",
            ),
            (
                !skips && self.inter_layer_dropout > 0.0,
                "model.inter_layer_dropout",
                self.inter_layer_dropout.to_string(),
                "has a place with model.wiring = \"skip\" alone",
            ),
            (
                skips && self.cell_output_dropout > 0.0,
                "model.cell_output_dropout",
                self.cell_output_dropout.to_string(),
                "has a place with model.wiring = \"residual\" alone",
            ),
            (
                !gated && self.forget_bias == ForgetBias::Chrono,
                "model.forget_bias",
                "chrono".into(),
                "needs a cell with a forget gate",
            ),
            (
                !gated && self.input_gate != InputGate::Capped,
                "model.input_gate",
                format!("{:?}", self.input_gate).to_lowercase(),
                "needs a cell with an input gate",
            ),
            (
                self.projection_dropout > 0.0 && self.mixture == 1 && self.input_embedding_ratio >= 1.0,
                "model.projection_dropout",
                self.projection_dropout.to_string(),
                "has a place where states are projected, or softmaxes mixed",
            ),
        ];
        let found = unused.into_iter().find(|(unused, ..)| *unused);
        found.map_or(Ok(()), |(_, key, value, why)| Err(out_of_range(key, value, why)))
    }

    /// Number of trained values.
    fn count(&self) -> usize {
        model::specs(self).iter().map(ParameterSpec::numel).sum()
    }

    /// Sets `d_model` to the largest whose model stays within `parameters`: both count and width rise together.
    fn fit_budget(&mut self) -> Result<(), ConfigError> {
        let count = |d_model: usize| Self { d_model, ..self.clone() }.count();
        if count(1) > self.parameters {
            let why =
                format!("is too little for {} words: the narrowest model has {}", self.vocab_size, count(1));
            return Err(out_of_range("model.parameters", self.parameters, &why));
        }
        self.d_model = widest(self.parameters, count);
        Ok(())
    }
}

/// The largest width whose `count` of parameters, which rises with it, stays within `budget`; 1 where none does. A recurrent layer has a
/// matrix of as many values as its width squared.
pub(crate) fn widest(budget: usize, count: impl Fn(usize) -> usize) -> usize {
    let (mut fits, mut exceeds) = (1, budget.isqrt() + 2);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if count(middle) <= budget {
            fits = middle;
        } else {
            exceeds = middle;
        }
    }
    fits
}

impl ModelSection for LstmConfig {
    const TYPE: &'static str = "lstm";
    const TITLE: &'static str = "LSTM";

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        // Of any width: that of a budget is not known yet.
        if self.wiring == Wiring::Residual && self.input_embedding_ratio < 1.0 {
            let why = "model.wiring = \"residual\" needs embeddings as wide as the states: 1";
            return Err(out_of_range("model.input_embedding_ratio", self.input_embedding_ratio, why));
        }
        if self.cell == CellKind::Gru && self.state_dropout > 0.0 {
            // It hands h' on: what dropout scales up would grow from step to step.
            let why = "must be 0 with model.cell = \"gru\", which carries no state beside its output";
            return Err(out_of_range("model.state_dropout", self.state_dropout, why));
        }
        self.check_used()
    }

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        let (train, eval) = (&config.train, &config.eval);
        let unread = "a recurrent model has read what comes again: its state cannot go back";
        let unseen = "a recurrent model has no attention, which this sets";
        let without = [
            (
                config.objective.kind != ObjectiveKind::Lm,
                "objective.kind",
                "needs model.model_type = \"xlnet\"",
            ),
            (
                config.data.order != DataOrder::Stream,
                "data.order",
                "a recurrent model reads streams of text alone",
            ),
            (train.recompute, "train.recompute", "recurrent layers are not made again"),
            (train.ext_len > 0, "train.ext_len", unread),
            (eval.ext_len > 0, "eval.ext_len", unread),
            (
                train.at_document_end == DocumentEnd::Mask,
                "train.at_document_end",
                "a recurrent model supports carry and reset",
            ),
            (eval.same_length, "eval.same_length", unseen),
            (eval.clamp_len != 0, "eval.clamp_len", unseen),
            (eval.mem_len > 1, "eval.mem_len", "a recurrent model carries one state: 1, or 0 for none"),
        ];
        match without.into_iter().find(|(asked, ..)| *asked) {
            Some((_, key, why)) => Err(refused(config, key, why)),
            None => {
                config.check_trained(&[
                    "adversarial.scale",
                    "objective.samples",
                    "objective.loss_over",
                    "objective.cosine_penalty",
                    "objective.input_noise",
                ])?;
                config.check_text()
            }
        }
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn set_vocabulary(&mut self, size: usize, eos: Option<u32>) -> Result<(), ConfigError> {
        self.vocab_size = size;
        self.eos_token_id = eos.map_or(self.eos_token_id, i64::from);
        if !self.cutoffs.is_empty() && self.cluster_ends().windows(2).any(|ends| ends[0] >= ends[1]) {
            let why = format!("cutoffs must rise and stay below the vocabulary of {size}");
            return Err(out_of_range("model.cutoffs", format!("{:?}", self.cutoffs), &why));
        }
        if self.parameters > 0 { self.fit_budget() } else { Ok(()) }
    }

    /// The state before a segment is all that is remembered.
    fn mem_len(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(vocab_size: usize, parameters: usize, config: LstmConfig) -> (usize, usize, usize) {
        let mut config = LstmConfig { parameters, ..config };
        config.set_vocabulary(vocab_size, None).unwrap();
        (config.d_model, config.embed_width(), config.count())
    }

    /// Melis 2023, appendix 2.A: models as large as their budgets allow.
    #[test]
    fn m07_budgets_give_the_sizes_of_the_published_models() {
        let plain = LstmConfig::default();
        let mogrifier =
            |rounds, rank| LstmConfig { mogrifier_rounds: rounds, mogrifier_rank: rank, ..plain.clone() };
        let untied = |n_layer, config| LstmConfig { n_layer, tie_word_embeddings: false, ..config };
        let mixed =
            |input_embedding_ratio, config| LstmConfig { mixture: 2, input_embedding_ratio, ..config };
        let rewired = |config| LstmConfig { cell: CellKind::Rewired, ..config };
        let cases = [
            (10_001, 24_000_000, plain.clone(), (951, 951, 23_998_976)),
            (10_001, 24_000_000, mogrifier(5, 84), (912, 912, 23_987_393)),
            (
                10_001,
                24_000_000,
                LstmConfig { mogrifier_bias: false, ..mogrifier(5, 84) },
                (912, 912, 23_978_273),
            ),
            (10_001, 24_000_000, rewired(mogrifier(5, 84)), (956, 956, 23_989_349)),
            (33_279, 35_000_000, mixed(0.353_077_045_777_942_4, plain.clone()), (1211, 428, 34_997_757)),
            (33_279, 35_000_000, mixed(0.199_319_496_059_621_3, mogrifier(6, 48)), (1366, 272, 34_991_825)),
            (206, 48_000_000, untied(4, plain.clone()), (1218, 1218, 47_994_278)),
            (206, 48_000_000, untied(4, mogrifier(6, 79)), (1160, 1160, 47_982_446)),
            (206, 96_000_000, untied(4, plain.clone()), (1725, 1725, 95_958_506)),
            (206, 96_000_000, untied(4, mogrifier(5, 61)), (1687, 1687, 95_943_270)),
            (206, 48_000_000, untied(6, rewired(mogrifier(6, 79))), (998, 998, 47_980_054)),
        ];
        for (words, budget, config, expected) in cases {
            assert_eq!(sized(words, budget, config.clone()), expected, "{config:?}");
        }
        let tiny = LstmConfig { vocab_size: 11, d_model: 8, ..mogrifier(3, 2) };
        assert_eq!((tiny.count(), rewired(tiny).count()), (1427, 1299));
        let narrow = LstmConfig { vocab_size: 11, d_model: 8, ..untied(2, mixed(0.5, plain)) };
        assert_eq!(narrow.count(), 1147);
    }

    /// Keys that nothing would look at are told.
    #[test]
    fn what_a_model_has_no_place_for_is_refused() {
        let refused = |config: LstmConfig, key: &str| {
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        };
        let plain = LstmConfig::default;
        let residual = || LstmConfig { wiring: Wiring::Residual, ..plain() };
        refused(LstmConfig { inter_layer_dropout: 0.1, ..residual() }, "model.inter_layer_dropout");
        refused(LstmConfig { cell_output_dropout: 0.1, ..plain() }, "model.cell_output_dropout");
        refused(LstmConfig { projection_dropout: 0.1, ..plain() }, "model.projection_dropout");
        refused(LstmConfig { input_embedding_ratio: 0.999, ..residual() }, "model.input_embedding_ratio");
        let gru = || LstmConfig { cell: CellKind::Gru, ..plain() };
        refused(LstmConfig { state_dropout: 0.1, ..gru() }, "model.state_dropout");
        refused(LstmConfig { forget_bias: ForgetBias::Chrono, ..gru() }, "model.forget_bias");
        refused(LstmConfig { input_gate: InputGate::Tied, ..gru() }, "model.input_gate");
        refused(LstmConfig { mogrifier_rank: i64::MAX, ..plain() }, "model.mogrifier_rank");
        assert!(plain().check().is_ok() && residual().check().is_ok() && gru().check().is_ok());
    }

    #[test]
    fn m07_a_budget_that_no_width_meets_is_refused() {
        let mut config = LstmConfig { parameters: 10, ..Default::default() };
        let message = config.set_vocabulary(100, None).unwrap_err().to_string();
        assert!(message.contains("model.parameters") && message.contains("100 words"), "{message}");
    }
}
