//! The model as an encoder: every token sees those before it.

use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_language::{Encoder, Rows, rotated};
use tch::Tensor;

use super::keys::LstmConfig;
use super::model::Model;

/// A recurrent model that begins with each row.
pub struct LstmEncoder(Model);

impl LstmEncoder {
    /// Over `parameters`, which hold [`specs`](super::model::specs).
    pub fn new(config: &LstmConfig, parameters: &Parameters) -> Self {
        Self(Model::new(config, parameters))
    }
}

impl Encoder for LstmEncoder {
    fn uses(&self, name: &str) -> bool {
        name.starts_with("embedding.") || name.starts_with("layers.")
    }

    fn states(&self, rows: &Rows, noise: Option<&Noise>) -> Tensor {
        let Self(model) = self;
        let memory = model.memory_start(rows.offsets.len() as i64);
        let hidden = model.forward(&rotated(&rows.ids, &rows.offsets), &memory, noise).hidden;
        let back: Vec<i64> = rows.offsets.iter().map(|offset| -offset).collect();
        rotated(&hidden, &back)
    }
}
