//! What a model has no place for.

use segue_configs::model::no_effect;
use segue_configs::{ConfigError, Idle};
use segue_layers::recurrent::InputGate;

use crate::keys::{
    CellKind, DEFAULT_WINDOW, ForgetBias, GateNormKind, InitKind, InputBias, LstmConfig, Wiring,
};

impl LstmConfig {
    /// Whether embeddings are as wide as what predicts words, whatever a budget makes of `d_model`.
    fn never_projects(&self) -> bool {
        if self.scores_states() {
            return true;
        }
        match (self.d_embed, self.d_last) {
            (0, 0) => self.input_embedding_ratio >= 1.0,
            (0, _) | (_, 0) => self.parameters == 0 && !self.projects(),
            (embed, last) => embed == last,
        }
    }

    /// Refuses what layers would not look at.
    pub(super) fn check_layers(&self) -> Result<(), ConfigError> {
        let is_qrnn = self.cell == CellKind::Qrnn;
        let without_state = "a quasi-recurrent layer has no gate that sees its state";
        refuse_first([
            (
                self.d_last > 0 && self.wiring != Wiring::Stack,
                "model.d_last",
                self.d_last.to_string(),
                "needs model.wiring = \"stack\": outputs of all layers are added up",
            ),
            (
                self.d_last > 0 && self.n_layer == 1,
                "model.d_last",
                self.d_last.to_string(),
                "is the width of the only layer\nhint: set model.d_model instead",
            ),
            (
                self.d_embed > 0 && self.input_embedding_ratio != 1.0,
                "model.input_embedding_ratio",
                self.input_embedding_ratio.to_string(),
                "model.d_embed says how wide embeddings are\nhint: set only one of them",
            ),
            (
                self.d_embed > 0 && self.wiring == Wiring::Residual,
                "model.d_embed",
                self.d_embed.to_string(),
                "model.wiring = \"residual\" needs embeddings as wide as the states: 0",
            ),
            (
                self.two_biases && !matches!(self.cell, CellKind::Lstm | CellKind::Gru | CellKind::Elman),
                "model.two_biases",
                "true".into(),
                "needs model.cell = \"lstm\", \"gru\" or \"elman\"",
            ),
            (
                !is_qrnn && self.window != DEFAULT_WINDOW,
                "model.window",
                self.window.to_string(),
                "needs model.cell = \"qrnn\"",
            ),
            (
                is_qrnn && self.mogrifier_rounds > 0,
                "model.mogrifier_rounds",
                self.mogrifier_rounds.to_string(),
                without_state,
            ),
            (
                is_qrnn && self.state_dropout > 0.0,
                "model.state_dropout",
                self.state_dropout.to_string(),
                without_state,
            ),
            (
                self.init == InitKind::Uniform && self.forget_bias == ForgetBias::Chrono,
                "model.forget_bias",
                "chrono".into(),
                "has a place without model.init = \"uniform\" alone",
            ),
        ])
    }

    /// Refuses variants of gates where there are no such gates.
    pub(super) fn check_variants(&self) -> Result<(), ConfigError> {
        let of_an_lstm = matches!(self.cell, CellKind::Lstm | CellKind::Mlstm);
        let needs_an_lstm = "needs model.cell = \"lstm\" or \"mlstm\"";
        let scaled = "true".to_string();
        refuse_first([
            (self.gate_rank > 0 && !of_an_lstm, "model.gate_rank", self.gate_rank.to_string(), needs_an_lstm),
            (
                self.gate_rank > 0 && self.weight_dropout > 0.0,
                "model.weight_dropout",
                self.weight_dropout.to_string(),
                "drops values of whole matrices, and model.gate_rank has none",
            ),
            (
                self.gate_norm != GateNormKind::None && !of_an_lstm,
                "model.gate_norm",
                "layer".into(),
                needs_an_lstm,
            ),
            (
                self.scale_vectors && self.mogrifier_rounds > 0,
                "model.scale_vectors",
                scaled.clone(),
                "stands in the place of a mogrifier\nhint: set model.mogrifier_rounds to 0",
            ),
            (
                self.scale_vectors && self.cell == CellKind::Gru,
                "model.scale_vectors",
                scaled.clone(),
                // It hands h' on: a scale would act once more at every step.
                "has no place with model.cell = \"gru\", which carries no state beside its output",
            ),
            (
                self.scale_vectors && self.cell == CellKind::Qrnn,
                "model.scale_vectors",
                scaled,
                "a quasi-recurrent layer has no gate that sees its state",
            ),
        ])
    }

    /// Refuses what the model would not look at.
    pub(super) fn check_used(&self) -> Result<(), ConfigError> {
        let gated = matches!(self.cell, CellKind::Lstm | CellKind::Mlstm | CellKind::Rewired);
        let forgets = gated || self.cell == CellKind::Qrnn;
        refuse_first([
            (
                self.mixes() && !self.cutoffs.is_empty(),
                "model.cutoffs",
                format!("{:?}", self.cutoffs),
                "has a place without a mixture of softmaxes alone",
            ),
            (
                self.wiring == Wiring::Residual && self.inter_layer_dropout > 0.0,
                "model.inter_layer_dropout",
                self.inter_layer_dropout.to_string(),
                "has a place with model.wiring = \"skip\" or \"stack\" alone",
            ),
            (
                self.wiring != Wiring::Residual && self.cell_output_dropout > 0.0,
                "model.cell_output_dropout",
                self.cell_output_dropout.to_string(),
                "has a place with model.wiring = \"residual\" alone",
            ),
            (
                !forgets && self.forget_bias == ForgetBias::Chrono,
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
                self.input_bias == InputBias::Opposite && !(gated && self.input_gate != InputGate::Tied),
                "model.input_bias",
                "opposite".into(),
                "needs a cell with an input gate that is not tied",
            ),
            (
                self.projection_dropout > 0.0 && !self.mixes() && self.never_projects(),
                "model.projection_dropout",
                self.projection_dropout.to_string(),
                "has a place where states are projected, or softmaxes mixed",
            ),
        ])
    }
}

impl LstmConfig {
    /// Keys of cells and their gates that nothing looks at.
    pub fn idle_of_cells(&self) -> Vec<Idle> {
        let mogrifier = ["mogrifier_rank", "mogrifier_bias", "mogrifier_zigzag"];
        let (rounds, why) = (["model.mogrifier_rounds"], "needs model.mogrifier_rounds of at least 1");
        let mut idle = Idle::all(self.mogrifier_rounds == 0, "model", &mogrifier, &rounds, why);
        let (never, why) = (self.forget_bias != ForgetBias::Chrono, "needs model.forget_bias = \"chrono\"");
        idle.extend(Idle::all(never, "model", &["t_max", "input_bias"], &["model.forget_bias"], why));
        idle
    }

    /// Masks that would be locked, were there any.
    pub(super) fn idle_masks(&self) -> Vec<Idle> {
        let rates = [
            ("model.input_dropout", self.input_dropout),
            ("model.inter_layer_dropout", self.inter_layer_dropout),
            ("model.cell_output_dropout", self.cell_output_dropout),
            ("model.output_dropout", self.output_dropout),
            ("model.projection_dropout", self.projection_dropout),
        ];
        let none = rates.iter().all(|(_, rate)| *rate <= 0.0);
        let why = "needs masks that it locks: model.input_dropout or another of these rates above 0";
        Idle::all(none, "model", &["locked_dropout"], &rates.map(|(key, _)| key), why)
    }
}

/// The first of these that holds, as an error: key, value, and what it lacks.
fn refuse_first<const N: usize>(cases: [(bool, &'static str, String, &str); N]) -> Result<(), ConfigError> {
    let found = cases.into_iter().find(|(unused, ..)| *unused);
    found.map_or(Ok(()), |(_, key, value, why)| Err(no_effect(key, value, why)))
}
