//! Transformer-XL as an encoder: every token sees those before it.

use tch::Tensor;

use super::config::TransfoXlConfig;
use super::model::TransfoXl;
use crate::Parameters;
use crate::families::language_model::{Encoder, Rows, no_memory};
use crate::noise::Noise;

/// A Transformer-XL without memory.
pub struct TransfoXlEncoder(TransfoXl);

impl TransfoXlEncoder {
    /// Over `parameters`, which hold [`TransfoXl::specs`].
    pub fn new(config: &TransfoXlConfig, parameters: &Parameters) -> Self {
        let mut model = TransfoXl::new(config, parameters);
        model.context.mem_len = 0;
        model.context.same_length = None;
        Self(model)
    }
}

impl Encoder for TransfoXlEncoder {
    fn uses(&self, name: &str) -> bool {
        name.starts_with("transformer.")
    }

    fn states(&self, rows: &Rows, noise: Option<&Noise>) -> Tensor {
        let Self(model) = self;
        let memory = no_memory(model.config().n_layer, rows, model.config().d_model);
        let ids = rotated(&rows.ids, &rows.offsets);
        let hidden = model.forward(&ids, &memory, noise).hidden;
        let back: Vec<i64> = rows.offsets.iter().map(|offset| -offset).collect();
        rotated(&hidden, &back)
    }
}

/// Every row of `[rows, length, ..]` rotated to the left by its own number of positions. A model that looks to the
/// left alone does not see padding that has been moved behind the text.
fn rotated(x: &Tensor, offsets: &[i64]) -> Tensor {
    if offsets.iter().all(|&offset| offset == 0) {
        return x.shallow_clone();
    }
    let size = x.size();
    let length = size[1];
    let from: Vec<i64> = offsets
        .iter()
        .flat_map(|offset| (0..length).map(move |position| (position + offset).rem_euclid(length)))
        .collect();
    let mut index = Tensor::from_slice(&from).to_device(x.device()).view([size[0], length]);
    if let Some(&width) = size.get(2) {
        index = index.unsqueeze(2).expand([-1, -1, width], false);
    }
    x.gather(1, &index, false)
}
