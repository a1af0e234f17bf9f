//! The `[model]` section.

use std::any::Any;

use schemars::JsonSchema;
use segue_configs::model::{out_of_range, size};
use segue_configs::range::{self, Range};
use segue_configs::{Config, ConfigError, Idle, ModelSection, OwnSection, SectionType};
use segue_dataloader::sections::LossOver;
use segue_kernels::ParameterSpec;
use segue_layers::recurrent::InputGate;
use segue_lstm::{CellKind, ForgetBias, InputBias, LstmConfig, widest};
use serde::{Deserialize, Serialize};

use super::model;

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

    /// The same with the width that a budget gives.
    pub fn sized(&self) -> Self {
        match self.parameters {
            0 => self.clone(),
            budget => Self { d_model: widest(budget, |d_model| self.count(d_model)), ..self.clone() },
        }
    }

    /// Number of trained values at a width.
    fn count(&self, d_model: usize) -> usize {
        let model = Self { d_model, ..self.clone() };
        model::specs(&model).iter().map(ParameterSpec::numel).sum()
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

impl ModelSection for ReverseCopyConfig {
    const TYPE: &'static str = "reverse-copy";
    const TITLE: &'static str = "Reverse copy";
    const SECTIONS: &'static [SectionType] =
        &[SectionType::of::<ObjectiveConfig>(), SectionType::of::<EvalConfig>()];
    const READS: &'static [&'static str] =
        &["objective.loss_over", "train.batch_warmup", "train.batch_warmup_from", "eval.group"];

    fn family() -> &'static (dyn Any + Send + Sync) {
        &crate::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        if self.cell == CellKind::Qrnn {
            let why = "carries words, and no state that one network could hand to the other";
            return Err(out_of_range("model.cell", "qrnn", why));
        }
        self.layer().check()?;
        let least = self.count(1);
        if self.parameters > 0 && least > self.parameters {
            let why = format!("is too little for {} tokens: the narrowest model has {least}", self.tokens);
            return Err(out_of_range("model.parameters", self.parameters, &why));
        }
        Ok(())
    }

    /// What losses of a lane have been divided by before they are scaled from the first version on: bits in half precision hang on it.
    fn targets_per_lane(&self, _: &Config) -> usize {
        128
    }

    fn check_run(&self, _: &Config) -> Result<(), ConfigError> {
        Ok(())
    }

    fn idle(&self, _: &Config) -> Vec<Idle> {
        let mut idle = self.layer().idle_of_cells();
        idle.extend(Idle::without_layers(Self::NETWORKS));
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(config: ReverseCopyConfig, parameters: usize) -> (usize, usize, usize) {
        let config = ReverseCopyConfig { parameters, ..config }.sized();
        (config.d_model, config.layer().embed_width(), config.count(config.d_model))
    }

    /// A thousand tokens, with embeddings of `e` for states of `n`.
    fn published(e: usize, n: usize) -> ReverseCopyConfig {
        ReverseCopyConfig { tokens: 1000, input_embedding_ratio: e as f64 / n as f64, ..Default::default() }
    }

    #[test]
    fn a_cell_without_a_state_to_hand_over_is_refused() {
        let of = |cell| ReverseCopyConfig { cell, ..Default::default() }.check();
        assert!(of(CellKind::Qrnn).unwrap_err().to_string().contains("model.cell"));
        assert!(of(CellKind::Mlstm).is_ok());
    }

    /// Melis 2023, §2.3.3: the widths that were found best at N = 150 and 200, within 10 million parameters, and the counts
    /// 3 V e + V + n e + 2 · 4 (n m + n² + n) with V = 1003 and m = e.
    /// Row M17.
    #[test]
    fn budgets_give_the_sizes_of_the_published_models() {
        for (e, n, count) in [(498, 787, 9_988_067), (493, 790, 9_988_790)] {
            assert_eq!(3 * 1003 * e + 1003 + n * e + 8 * (n * e + n * n + n), count);
            assert_eq!(sized(published(e, n), 10_000_000), (n, e, count));
        }
        // What 41 and 1054 leave are gates of one of these ranks.
        for (rounds, ranks) in [(5, 52..=53), (6, 43..=44), (4, 65..=66)] {
            let fits = |rank: &i64| {
                let config = ReverseCopyConfig {
                    mogrifier_rounds: rounds,
                    mogrifier_rank: *rank,
                    ..published(41, 1054)
                };
                let count = config.count(1054);
                count <= 10_000_000 && count + 20_000 > 10_000_000
            };
            let found: Vec<i64> = (1..100).filter(fits).collect();
            assert_eq!(found, ranks.collect::<Vec<_>>(), "{rounds} rounds");
        }
    }

    /// The small task: widths of the models that its figures are of, within 60,000 parameters.
    /// Row M17.
    #[test]
    fn budgets_give_the_sizes_of_the_small_task() {
        let small = |e: usize, n: usize| ReverseCopyConfig {
            input_embedding_ratio: e as f64 / n as f64,
            ..Default::default()
        };
        let mogrified = ReverseCopyConfig { mogrifier_rounds: 5, mogrifier_rank: 8, ..small(20, 67) };
        for (config, e, n) in [(small(38, 61), 38, 61), (mogrified, 20, 67)] {
            let (found_n, found_e, count) = sized(config, 60_000);
            assert_eq!((found_n, found_e), (n, e));
            assert!(count <= 60_000 && count > 58_000, "{count}");
        }
    }

    #[test]
    fn values_outside_their_ranges_are_refused_by_key() {
        let good = ReverseCopyConfig::default();
        good.check().unwrap();
        for (wrong, key) in [
            (ReverseCopyConfig { tokens: 0, ..good.clone() }, "model.tokens"),
            (ReverseCopyConfig { length: 0, ..good.clone() }, "model.length"),
            (ReverseCopyConfig { valid_strings: 0, ..good.clone() }, "model.valid_strings"),
            (ReverseCopyConfig { parameters: 100, ..good.clone() }, "model.parameters"),
            (ReverseCopyConfig { t_max: 2.0, ..good.clone() }, "model.t_max"),
            (
                ReverseCopyConfig { cell: CellKind::Gru, forget_bias: ForgetBias::Chrono, ..good.clone() },
                "model.forget_bias",
            ),
        ] {
            let message = wrong.check().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
        for (key, wrong) in [
            ("train.recompute", "train.recompute=true"),
            ("train.loss", "train.loss=half"),
            ("data.corpus", "data.corpus=somewhere"),
            ("model.mogrifier_rank", "model.mogrifier_rank=8"),
            ("objective.samples", "objective.samples=2"),
            ("adversarial.scale", "adversarial.scale=0.1"),
        ] {
            let overrides = ["model.model_type=reverse-copy", wrong].map(str::to_string);
            let message = segue_testing::models::<crate::ReverseCopyConfig>()
                .load(None, &overrides)
                .unwrap_err()
                .to_string();
            assert!(message.contains(key), "{message}");
        }
    }
}
