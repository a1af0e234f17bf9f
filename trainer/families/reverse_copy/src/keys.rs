//! The keys of `[model]`, and those that strings have of `[objective]` and `[eval]`.

use schemars::JsonSchema;
use segue_configs::OwnSection;
use segue_configs::model::size;
use segue_configs::range::Range;
use segue_dataloader::sections::LossOver;
use segue_layers::recurrent::InputGate;
use segue_lstm::{CellKind, ForgetBias, InputBias, LstmConfig};
use serde::{Deserialize, Serialize};

/// Ids beside the tokens: the mark that ends a string, and two that nothing uses, a separator and an unknown token, which the published
/// models count.
const MARKS: usize = 3;
/// Beyond what any machine holds, and where widths are still far from overflowing.
const MOST_PARAMETERS: u64 = 1 << 40;
const MOST_RANK: i64 = 1 << 20;

/// `model_type = "reverse-copy"`: a recurrent network reads a string of drawn tokens, another one writes it backwards (Melis 2023, §2.3.3).
/// It reads no corpus: strings are functions of the seed and of their number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReverseCopyConfig {
    /// Different tokens, each as likely as any other.
    #[schemars(transform = size())]
    pub tokens: usize,
    /// Tokens of every string.
    #[schemars(transform = size())]
    pub length: usize,
    /// Strings to train on, in another order each time that all were seen; 0 for new ones in every step.
    #[schemars(transform = Range::at_least(0))]
    pub train_strings: u64,
    /// Strings of an evaluation, drawn apart from those of training.
    #[schemars(transform = Range::at_least(1))]
    pub valid_strings: u64,
    /// Strings of a test, drawn apart from both, which each evaluation reports beside its own and decides nothing by; 0 for none.
    #[schemars(transform = Range::at_least(0))]
    pub test_strings: u64,
    /// Budget of parameters: `d_model` becomes the largest that stays within it; 0 takes `d_model` as it is.
    #[schemars(transform = Range::at_least(0).at_most(MOST_PARAMETERS))]
    pub parameters: usize,
    /// Width of both states.
    #[schemars(transform = size())]
    pub d_model: usize,
    /// Width of the embeddings as a fraction of `d_model`; from 1 on they are as wide, and nothing is projected.
    #[schemars(transform = Range::at_least(0.0))]
    pub input_embedding_ratio: f64,
    /// What both networks step.
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
    /// How the biases of forget gates start.
    pub forget_bias: ForgetBias,
    /// Longest time that `forget_bias = "chrono"` remembers, in steps.
    #[schemars(transform = Range::above(2.0))]
    pub t_max: f64,
    /// How the biases of input gates start, with `forget_bias = "chrono"`.
    pub input_bias: InputBias,
}

impl Default for ReverseCopyConfig {
    fn default() -> Self {
        let LstmConfig {
            input_embedding_ratio,
            cell,
            input_gate,
            mogrifier_rounds,
            mogrifier_rank,
            mogrifier_bias,
            mogrifier_zigzag,
            forget_bias,
            t_max,
            input_bias,
            ..
        } = LstmConfig::default();
        Self {
            tokens: 64,
            length: 12,
            train_strings: 0,
            valid_strings: 1000,
            test_strings: 1000,
            parameters: 0,
            d_model: 64,
            input_embedding_ratio,
            cell,
            input_gate,
            mogrifier_rounds,
            mogrifier_rank,
            mogrifier_bias,
            mogrifier_zigzag,
            forget_bias,
            t_max,
            input_bias,
        }
    }
}

impl ReverseCopyConfig {
    /// Ids that a table has a row for.
    pub fn vocabulary(&self) -> i64 {
        (self.tokens + MARKS) as i64
    }

    /// Id of the mark that ends a string, and that the writing begins with.
    pub fn end(&self) -> i64 {
        self.tokens as i64
    }

    /// What is predicted of each string: its tokens, and the mark.
    pub fn targets(&self) -> usize {
        self.length + 1
    }

    /// The recurrent layer of both networks.
    pub(super) fn layer(&self) -> LstmConfig {
        LstmConfig {
            d_model: self.d_model,
            input_embedding_ratio: self.input_embedding_ratio,
            n_layer: 1,
            cell: self.cell,
            input_gate: self.input_gate,
            mogrifier_rounds: self.mogrifier_rounds,
            mogrifier_rank: self.mogrifier_rank,
            mogrifier_bias: self.mogrifier_bias,
            mogrifier_zigzag: self.mogrifier_zigzag,
            forget_bias: self.forget_bias,
            t_max: self.t_max,
            input_bias: self.input_bias,
            ..Default::default()
        }
    }
}

/// `[objective]`: what the loss of strings is divided by.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// What gradients are means over: targets, or strings.
    pub loss_over: LossOver,
}

impl OwnSection for ObjectiveConfig {
    const NAME: &'static str = "objective";
    const TITLE: &'static str = "reverse-copy";
}

/// Keys of `[eval]`: how strings are evaluated.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalConfig {
    /// Strings of one forward pass; 0 for `train.micro_batch`. The last bits of a result depend on it, and its speed.
    #[schemars(transform = Range::read(0))]
    pub group: usize,
}

impl OwnSection for EvalConfig {
    const NAME: &'static str = "eval";
    const TITLE: &'static str = "reverse-copy";
}
