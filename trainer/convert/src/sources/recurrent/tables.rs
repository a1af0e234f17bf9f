//! Names of the programs' tensors.

use crate::rules::{Operation, Piece, Rule, rule, skip};
use crate::sources::place::OPTIMIZER;

use Operation::{Copy, Gates, Reverse};

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecurrentLayout {
    /// `word_language_model` of pytorch/examples.
    WordLanguageModel,
    /// salesforce/awd-lstm-lm.
    AwdLstm,
    /// zihangdai/mos.
    Mos,
}

impl RecurrentLayout {
    /// What reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::WordLanguageModel => "word_language_model",
            Self::AwdLstm => "awd_lstm_lm",
            Self::Mos => "mos",
        }
    }
}

/// A cell of these programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// `torch.nn.LSTM`, gates i, f, g and o.
    Lstm,
    /// `torch.nn.GRU`, gates r, z and n.
    Gru,
    /// `torch.nn.RNN` with tanh.
    Elman,
    /// `torchqrnn.QRNNLayer`, gates z, f and o; the first layer reads so many inputs.
    Qrnn {
        /// 1 or 2.
        window: usize,
    },
}

impl Cell {
    /// Blocks of rows in its matrices.
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru | Self::Qrnn { .. } => 3,
            Self::Elman => 1,
        }
    }
}

/// Where a layer keeps its tensors; one of `word_language_model` in itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matrices {
    /// In the layer.
    Plain,
    /// In the layer inside a wrapper.
    Wrapped,
    /// In the layer inside the one that drops weights, the matrix that they are dropped of under a name of its own, `.._raw`.
    Raw,
}

impl Matrices {
    /// Those that a program has, the surest to tell first.
    pub fn of(layout: RecurrentLayout) -> &'static [Self] {
        match layout {
            RecurrentLayout::WordLanguageModel => &[Self::Plain],
            RecurrentLayout::AwdLstm | RecurrentLayout::Mos => &[Self::Raw, Self::Wrapped, Self::Plain],
        }
    }
}

/// What a table of names depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// The program.
    pub layout: RecurrentLayout,
    /// Its layers.
    pub cell: Cell,
    /// The output table is the input embeddings.
    pub tied: bool,
    /// Where layers keep their tensors.
    pub matrices: Matrices,
}

/// Names of a layer's `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`.
macro_rules! layer {
    ($before:literal, $number:literal, $raw:literal) => {
        [
            concat!($before, "weight_ih_l", $number),
            concat!($before, "weight_hh_l", $number, $raw),
            concat!($before, "bias_ih_l", $number),
            concat!($before, "bias_hh_l", $number),
        ]
    };
}

/// i, f, g, o become f, j, o, i.
const LSTM_WEIGHT: [Piece; 1] = [Piece { blocks: &[1, 2, 3, 0], ..Piece::NONE }];
/// The bias of f is a parameter of its own.
const LSTM_BIAS: [Piece; 2] =
    [Piece { ending: "_f", blocks: &[1], ..Piece::NONE }, Piece { blocks: &[2, 3, 0], ..Piece::NONE }];
const LSTM_BIAS_OF_STATE: [Piece; 2] = [
    Piece { ending: "fh", blocks: &[1], ..Piece::NONE },
    Piece { ending: "h", blocks: &[2, 3, 0], ..Piece::NONE },
];
/// z, f, o become f, z, o. Their f scales what is taken in, ours what is kept: 1 − σ(x) = σ(−x).
const QRNN_WEIGHT: [Piece; 1] = [Piece { blocks: &[1, 0, 2], negated: &[1], ..Piece::NONE }];
const QRNN_BIAS: [Piece; 2] =
    [Piece { ending: "_f", blocks: &[1], negated: &[1] }, Piece { blocks: &[0, 2], ..Piece::NONE }];

const GATES: fn(&'static [Piece]) -> Operation = |pieces| Gates { pieces, windows: 1 };

impl Table {
    /// The names of the first layer's two matrices, of the input and of the state; of a QRNN the one it has twice.
    pub fn first_matrices(self) -> [String; 2] {
        let names = match self.cell {
            Cell::Qrnn { .. } => [self.qrnn()[0]; 2],
            _ => [self.layer()[0], self.layer()[1]],
        };
        names.map(str::to_string)
    }

    fn layer(self) -> [&'static str; 4] {
        match (self.layout, self.matrices) {
            (RecurrentLayout::WordLanguageModel, _) => layer!("rnn.", "{i}", ""),
            (_, Matrices::Plain) => layer!("rnns.{i}.", "0", ""),
            (_, Matrices::Wrapped) => layer!("rnns.{i}.module.", "0", ""),
            (_, Matrices::Raw) => layer!("rnns.{i}.module.", "0", "_raw"),
        }
    }

    /// Names of weight and bias of a QRNN's layer.
    fn qrnn(self) -> [&'static str; 2] {
        match self.matrices {
            Matrices::Plain => ["rnns.{i}.linear.weight", "rnns.{i}.linear.bias"],
            Matrices::Wrapped => ["rnns.{i}.linear.module.weight", "rnns.{i}.linear.module.bias"],
            Matrices::Raw => ["rnns.{i}.linear.module.weight_raw", "rnns.{i}.linear.module.bias"],
        }
    }

    /// The same of its first layer.
    fn first_qrnn(self) -> &'static str {
        match self.matrices {
            Matrices::Plain => "rnns.0.linear.weight",
            Matrices::Wrapped => "rnns.0.linear.module.weight",
            Matrices::Raw => "rnns.0.linear.module.weight_raw",
        }
    }

    /// The lines that lead here, and those of what is left behind.
    pub fn rules(self) -> Vec<Rule> {
        const DROPPED: &str = "what dropout made of the weights beside it, named _raw, in the last step";
        let output = if self.tied { "embedding.weight" } else { "output.weight" };
        let mut rules = vec![rule("encoder.weight", "embedding.weight", Copy)];
        rules.extend(self.layers());
        rules.extend([rule("decoder.weight", output, Copy), rule("decoder.bias", "output.bias", Copy)]);
        match self.layout {
            RecurrentLayout::WordLanguageModel => {}
            // Its tail i takes the head's entry -i, here i - 1.
            RecurrentLayout::AwdLstm => rules.extend([
                rule("criterion.tail_vectors", "clusters.weight", Reverse),
                rule("criterion.tail_bias", "clusters.bias", Reverse),
            ]),
            RecurrentLayout::Mos => rules.extend([
                rule("prior.weight", "mixture.prior", Copy),
                rule("latent.0.weight", "mixture.weight", Copy),
                rule("latent.0.bias", "mixture.bias", Copy),
            ]),
        }
        if self.matrices == Matrices::Raw {
            rules.extend([
                skip("rnns.{i}.module.weight_hh_l0", DROPPED),
                skip("rnns.{i}.linear.module.weight", DROPPED),
            ]);
        }
        rules.push(OPTIMIZER);
        rules
    }

    fn layers(self) -> Vec<Rule> {
        let [of_input, of_state, bias, bias_of_state] = self.layer();
        match self.cell {
            Cell::Lstm => vec![
                rule(of_input, "layers.{i}.weight_x", GATES(&LSTM_WEIGHT)),
                rule(of_state, "layers.{i}.weight_h", GATES(&LSTM_WEIGHT)),
                rule(bias, "layers.{i}.bias", GATES(&LSTM_BIAS)),
                rule(bias_of_state, "layers.{i}.bias_", GATES(&LSTM_BIAS_OF_STATE)),
            ],
            // r, z and n lie here as there.
            Cell::Gru | Cell::Elman => vec![
                rule(of_input, "layers.{i}.weight_x", Copy),
                rule(of_state, "layers.{i}.weight_h", Copy),
                rule(bias, "layers.{i}.bias", Copy),
                rule(bias_of_state, "layers.{i}.bias_h", Copy),
            ],
            Cell::Qrnn { window } => {
                let [weight, bias] = self.qrnn();
                let first = Gates { pieces: &QRNN_WEIGHT, windows: window };
                vec![
                    rule(self.first_qrnn(), "layers.0.weight_x", first),
                    rule(weight, "layers.{i}.weight_x", GATES(&QRNN_WEIGHT)),
                    rule(bias, "layers.{i}.bias", GATES(&QRNN_BIAS)),
                ]
            }
        }
    }
}
