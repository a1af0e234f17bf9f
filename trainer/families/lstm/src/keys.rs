//! The keys of `[model]`, and the widths that follow from them.

use schemars::JsonSchema;
use segue_configs::model::{rate, size, vocabulary, width};
use segue_configs::range::Range;
use segue_layers::recurrent::{InputGate, MogrifierShape};
use serde::{Deserialize, Serialize};

/// Beyond what any machine holds, and where widths are still far from overflowing.
const MOST_PARAMETERS: u64 = 1 << 40;
const MOST_RANK: i64 = 1 << 20;
/// That of Merity et al. (2018) for all corpora of words.
pub(super) const DEFAULT_WINDOW: usize = 2;

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
    /// The quasi-recurrent network: gates see neighbouring inputs and no state (Bradbury et al. 2017).
    Qrnn,
}

/// What the sums of a gate go through before its bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GateNormKind {
    /// Nothing.
    None,
    /// A layer norm over the places of the gate, with a gain for each (Ba et al. 2016; Melis 2023, §2.3.4).
    Layer,
}

/// How layers are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Wiring {
    /// A layer reads the one below; the outputs of all are added up (Melis 2023, ch. 2).
    Skip,
    /// A layer reads the sum of all below (Melis 2023, eq. 4.1).
    Residual,
    /// A layer reads the one below, and the last one's output alone predicts words (Merity et al. 2018).
    Stack,
}

/// How values start that are not those of forget gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InitKind {
    /// By normal distributions whose tails are cut (Melis 2023).
    Truncated,
    /// Uniform: words in ±0.1, a layer's weights and biases in ±1/√n, with n the width of its state or, of a QRNN, that of what it reads
    /// (Merity et al. 2018, and PyTorch).
    Uniform,
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

/// How the biases of input gates start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputBias {
    /// As those of other gates (Melis 2023, §4.4).
    Ordinary,
    /// As those of forget gates with the other sign (Tallec and Ollivier 2018).
    Opposite,
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
    /// Width of the last layer's state, with `wiring = "stack"`; 0 for `d_model`. Where it is not that of the embeddings, states are
    /// projected to their width, or the mixture's experts are as wide.
    #[schemars(transform = width())]
    pub d_last: usize,
    /// Width of the embeddings; 0 for `input_embedding_ratio`.
    #[schemars(transform = width())]
    pub d_embed: usize,
    /// Width of the embeddings as a fraction of `d_model`; from 1 on they are as wide, and nothing is projected.
    #[schemars(transform = Range::at_least(0.0))]
    pub input_embedding_ratio: f64,
    /// Number of layers.
    #[schemars(transform = size())]
    pub n_layer: usize,
    /// What a layer steps.
    pub cell: CellKind,
    /// With `cell = "qrnn"`: inputs that a position of the first layer reads, itself the last; layers above read one.
    #[schemars(transform = Range::at_least(1).at_most(64))]
    pub window: usize,
    /// Gates have a bias of the state beside that of the input, as PyTorch keeps them: of an LSTM, a GRU or Elman's network.
    pub two_biases: bool,
    /// How much of a candidate a cell takes in.
    pub input_gate: InputGate,
    /// Rank of each gate's two matrices, of an LSTM and of that in an mLSTM, each a product of two then; 0 for whole ones (Melis 2023, §2.3.4).
    #[schemars(transform = Range::at_least(0).at_most(MOST_RANK))]
    pub gate_rank: usize,
    /// What the sums of a gate go through before its bias, of an LSTM and of that in an mLSTM.
    pub gate_norm: GateNormKind,
    /// Learnt vectors scale input and state before a step, the same at every position, in the place of a mogrifier (Melis 2023, §2.3.4).
    pub scale_vectors: bool,
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
    /// The output table is the input embeddings. That of a `wiring = "stack"` that is not, and mixes no softmaxes, is as wide as the last
    /// state, which nothing projects.
    pub tie_word_embeddings: bool,
    /// First ids of the clusters that a split softmax has beside its most frequent words, rising, above 0 and below the vocabulary; empty
    /// for one softmax.
    pub cutoffs: Vec<usize>,
    /// Softmaxes that are mixed (Yang et al. 2018); 1 for an ordinary one.
    #[schemars(transform = size())]
    pub mixture: usize,
    /// With `mixture = 1`: states go through a layer with tanh and a bias, as wide as the embeddings, before the softmax, as in a mixture of
    /// more: a mixture of one.
    pub mixture_of_one: bool,
    /// Dropout of single recurrent weights, one mask a micro-step (DropConnect; Wan et al. 2013, Merity et al. 2018); of a QRNN, which has
    /// none, of the weights of its inputs.
    #[schemars(transform = rate())]
    pub weight_dropout: f64,
    /// Dropout of words in the input: a word that is dropped is dropped everywhere in a micro-step.
    #[schemars(transform = rate())]
    pub embedding_dropout: f64,
    /// Masks of dropout are the same at all positions of a segment; that of the state is so anyway.
    pub locked_dropout: bool,
    /// Dropout of embeddings.
    #[schemars(transform = rate())]
    pub input_dropout: f64,
    /// Dropout of the input of all layers but the first, unless `wiring = "residual"`.
    #[schemars(transform = rate())]
    pub inter_layer_dropout: f64,
    /// Dropout of each layer's output, with `wiring = "residual"`.
    #[schemars(transform = rate())]
    pub cell_output_dropout: f64,
    /// Dropout of the state that gates see, one mask for all positions of a segment.
    #[schemars(transform = rate())]
    pub state_dropout: f64,
    /// Dropout of the sum of all layers, or of the last one's output with `wiring = "stack"`.
    #[schemars(transform = rate())]
    pub output_dropout: f64,
    /// Dropout of what is projected from it; below 0 as `output_dropout`.
    #[schemars(transform = Range::at_least(-1.0).below(1.0))]
    pub projection_dropout: f64,
    /// How weights start.
    pub init: InitKind,
    /// How the biases of forget gates start, unless `init = "uniform"`.
    pub forget_bias: ForgetBias,
    /// Longest time that `forget_bias = "chrono"` remembers, in steps.
    #[schemars(transform = Range::above(2.0))]
    pub t_max: f64,
    /// How the biases of input gates start; `opposite` needs `forget_bias = "chrono"`.
    pub input_bias: InputBias,
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
            d_last: 0,
            d_embed: 0,
            input_embedding_ratio: 1.0,
            n_layer: 2,
            cell: CellKind::Lstm,
            window: DEFAULT_WINDOW,
            two_biases: false,
            input_gate: InputGate::Capped,
            gate_rank: 0,
            gate_norm: GateNormKind::None,
            scale_vectors: false,
            mogrifier_rounds: 0,
            mogrifier_rank: 0,
            mogrifier_bias: true,
            mogrifier_zigzag: true,
            wiring: Wiring::Skip,
            tie_word_embeddings: true,
            cutoffs: Vec::new(),
            mixture: 1,
            mixture_of_one: false,
            weight_dropout: 0.0,
            embedding_dropout: 0.0,
            locked_dropout: false,
            input_dropout: 0.0,
            inter_layer_dropout: 0.0,
            cell_output_dropout: 0.0,
            state_dropout: 0.0,
            output_dropout: 0.0,
            projection_dropout: -1.0,
            init: InitKind::Truncated,
            forget_bias: ForgetBias::One,
            t_max: 32.0,
            input_bias: InputBias::Ordinary,
            eos_token_id: 0,
        }
    }
}

impl LstmConfig {
    /// Width of the embeddings, input and output.
    pub fn embed_width(&self) -> usize {
        if self.d_embed > 0 {
            return self.d_embed;
        }
        let wide = (self.input_embedding_ratio * self.d_model as f64).round() as usize;
        wide.clamp(1, self.d_model)
    }

    /// Width of the rows that score words: that of the embeddings, or of the last layer's state where a stack has a table of its own for them.
    pub fn output_width(&self) -> usize {
        if self.scores_states() { self.last_width() } else { self.embed_width() }
    }

    /// Whether a stack's own output table scores states as they are.
    pub(super) fn scores_states(&self) -> bool {
        self.wiring == Wiring::Stack && !self.tie_word_embeddings && !self.mixes()
    }

    /// Width of what predicts words: the last layer's state.
    pub fn last_width(&self) -> usize {
        if self.d_last > 0 { self.d_last } else { self.d_model }
    }

    /// Width of the state of layer `layer`, from 0.
    pub fn state_width(&self, layer: usize) -> usize {
        if layer + 1 == self.n_layer { self.last_width() } else { self.d_model }
    }

    /// Width of the input of layer `layer`, from 0.
    pub fn input_width(&self, layer: usize) -> usize {
        if layer == 0 { self.embed_width() } else { self.d_model }
    }

    /// Inputs that a position of layer `layer`, from 0, reads.
    pub fn window_of(&self, layer: usize) -> usize {
        if self.cell == CellKind::Qrnn && layer == 0 { self.window } else { 1 }
    }

    /// Widths of the two tables that layer `layer`, from 0, carries from segment to segment: h, or the last inputs of a QRNN, and c.
    pub fn carried_widths(&self, layer: usize) -> [usize; 2] {
        let n = self.state_width(layer);
        match self.cell {
            CellKind::Qrnn => [(self.window_of(layer) - 1) * self.input_width(layer), n],
            _ => [n, n],
        }
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

    /// Whether words are predicted by a mixture of softmaxes, of one or more.
    pub fn mixes(&self) -> bool {
        self.mixture > 1 || self.mixture_of_one
    }

    /// Whether states are mapped to vectors as wide as the embeddings by nothing but a matrix.
    pub fn projects(&self) -> bool {
        !self.mixes() && self.output_width() != self.last_width()
    }

    /// Dropout of these vectors.
    pub fn projected_dropout(&self) -> f64 {
        if self.projection_dropout < 0.0 { self.output_dropout } else { self.projection_dropout }
    }
}
