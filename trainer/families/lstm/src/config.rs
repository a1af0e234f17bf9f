//! `model_type = "lstm"`: what a run reads beside it, and what it refuses.

mod checks;

use std::any::Any;

use segue_configs::model::out_of_range;
use segue_configs::{ConfigError, Idle, ModelSection, OwnSections, SectionType, range};
use segue_dataloader::sections::{
    DataConfig, DataOrder, DocumentEnd, ObjectiveConfig, ObjectiveKind, SegmentConfig, TextEvalConfig,
};
use segue_layers::AdversarialConfig;
use segue_tasks::TaskConfig;

use super::keys::{CellKind, LstmConfig, Wiring};

impl ModelSection for LstmConfig {
    const TYPE: &'static str = "lstm";
    const TITLE: &'static str = "LSTM";
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<SegmentConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<AdversarialConfig>(),
        SectionType::of::<TextEvalConfig>(),
        SectionType::of::<TaskConfig>(),
    ];
    const READS: &'static [&'static str] = &[
        "data",
        "task",
        "objective.kind",
        "objective.samples",
        "objective.loss_over",
        "objective.cosine_penalty",
        "objective.activation_penalty",
        "objective.slowness_penalty",
        "objective.input_noise",
        "objective.input_noise_fall",
        "adversarial",
        "train.segment",
        "train.loss",
        "train.varlen",
        "train.segment_half",
        "train.segment_spread",
        "train.segment_most",
        "train.segment_rate",
        "train.segment_rest",
        "train.roll",
        "train.at_document_end",
        "train.batch_warmup",
        "train.batch_warmup_from",
        "train.drop_state",
        "eval.lanes",
        "eval.group",
        "eval.segment",
        "eval.mem_len",
        "average.decide_by",
    ];

    fn family() -> &'static (dyn Any + Send + Sync) {
        &crate::FAMILY
    }

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
        self.check_layers()?;
        self.check_variants()?;
        self.check_used()
    }

    fn check_sections(&self, own: &OwnSections) -> Result<(), ConfigError> {
        let (train, eval) = (own.get::<SegmentConfig>(), own.get::<TextEvalConfig>());
        let unread = "a recurrent model has read what comes again: its state cannot go back";
        let unseen = "a recurrent model has no attention, which this sets";
        let without = [
            (
                own.get::<ObjectiveConfig>().kind != ObjectiveKind::Lm,
                "objective.kind",
                "needs model.model_type = \"xlnet\"",
            ),
            (
                !matches!(
                    own.get::<DataConfig>().order,
                    DataOrder::Stream | DataOrder::Lines | DataOrder::Episodes
                ),
                "data.order",
                "a recurrent model reads streams of text, lines or episodes",
            ),
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
            Some((_, key, why)) => Err(own.refused(key, why)),
            None => Ok(()),
        }
    }

    fn idle(&self, own: &OwnSections) -> Vec<Idle> {
        let mut idle = self.idle_of_cells();
        idle.extend(self.idle_masks());
        let why = "needs model.mixture = 1: more are a mixture anyway";
        idle.extend(Idle::all(self.mixture > 1, "model", &["mixture_of_one"], &["model.mixture"], why));
        idle.extend(own.get::<AdversarialConfig>().idle_clusters(self.cutoffs.len()));
        idle
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

    fn targets_per_lane(&self, own: &OwnSections) -> usize {
        segue_dataloader::sections::targets_per_lane(own)
    }
}

#[cfg(test)]
mod tests;
