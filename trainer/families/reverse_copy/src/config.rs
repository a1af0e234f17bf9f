//! The `[model]` section: the width that its budget gives, and what it refuses.

use std::any::Any;

use segue_configs::model::out_of_range;
use segue_configs::{ConfigError, Idle, ModelSection, OwnSections, SectionType, range};
use segue_kernels::ParameterSpec;
use segue_lstm::{CellKind, widest};

use super::keys::{EvalConfig, ObjectiveConfig, ReverseCopyConfig};
use super::model;

impl ReverseCopyConfig {
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
    fn targets_per_lane(&self, _: &OwnSections) -> usize {
        128
    }

    fn idle(&self, _: &OwnSections) -> Vec<Idle> {
        let mut idle = self.layer().idle_of_cells();
        idle.extend(Idle::without_layers(Self::NETWORKS));
        idle
    }
}

#[cfg(test)]
mod tests {
    use segue_lstm::ForgetBias;

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
