//! XLNet as an encoder: every token sees every other.

use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_language::{Encoder, Rows, no_memory};
use tch::{Kind, Tensor};

use super::config::XlnetConfig;
use super::model::Xlnet;
use super::sequence::{Sequence, Visibility};

/// An XLNet without memory.
pub struct XlnetEncoder(Xlnet);

impl XlnetEncoder {
    /// Over `parameters`, which hold [`Xlnet::encoder_specs`].
    pub fn new(config: &XlnetConfig, parameters: &Parameters) -> Self {
        let mut model = Xlnet::new(config, parameters);
        model.context.mem_len = 0;
        model.context.same_length = None;
        Self(model)
    }
}

impl Encoder for XlnetEncoder {
    fn uses(&self, name: &str) -> bool {
        name != super::model::MASK_EMBEDDING
    }

    fn states(&self, rows: &Rows, noise: Option<&Noise>) -> Tensor {
        let Self(model) = self;
        let blocked = blocked(rows);
        let memory = no_memory(model.config().n_layer, rows, model.config().d_model);
        let states = model.forward(sequence(rows, blocked.as_ref()), &memory, noise);
        let Some(content) = states.content else { unreachable!("content was asked for") };
        content
    }

    fn last_states(&self, rows: &Rows, noise: Option<&Noise>) -> Tensor {
        let device = rows.ids.device();
        let last = Tensor::full([rows.offsets.len() as i64, 1], rows.length - 1, (Kind::Int64, device));
        let blocked = blocked(rows);
        self.0.content_at(sequence(rows, blocked.as_ref()), &last, noise)
    }
}

/// True where a position must not see another, `[rows, length, length]`; `None` where all see all.
fn blocked(rows: &Rows) -> Option<Tensor> {
    let padding = rows.padding.as_ref()?;
    Some(padding.unsqueeze(1).expand([-1, rows.length, -1], false))
}

fn sequence<'a>(rows: &'a Rows, blocked: Option<&'a Tensor>) -> Sequence<'a> {
    let visibility = blocked.map_or(Visibility::All, Visibility::Blocked);
    Sequence { segments: Some(&rows.segments), visibility, ..Sequence::new(&rows.ids) }
}
