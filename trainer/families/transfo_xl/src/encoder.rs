//! Transformer-XL as an encoder: every token sees those before it.

use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_language::{Encoder, Rows, no_memory, rotated};
use tch::Tensor;

use super::config::TransfoXlConfig;
use super::model::{Segment, TransfoXl};

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
        let of_host = rows.ids_of_host.as_ref().map(|ids| rotated(ids, &rows.offsets));
        let segment = Segment { ids_of_host: of_host.as_ref(), ..Segment::from(&ids) };
        let hidden = model.forward(segment, &memory, noise).hidden;
        let back: Vec<i64> = rows.offsets.iter().map(|offset| -offset).collect();
        rotated(&hidden, &back)
    }
}
