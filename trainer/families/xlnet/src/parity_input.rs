//! What the cases of a file let the model read.

use segue_family::parity::Cases;
use segue_kernels::TrainError;
use segue_layers::Memory;
use tch::Tensor;

use super::XlnetConfig;
use super::model::Xlnet;
use super::sequence::{Sequence, Visibility};

/// A batch as the package is given it, and what is left of it for a [`Sequence`].
pub struct Input {
    /// `[batch, segment]`.
    pub ids: Tensor,
    /// `[batch, segment]`.
    pub segments: Option<Tensor>,
    /// `[batch, segment, segment]`.
    blocked: Option<Tensor>,
    reversed: i64,
}

impl Input {
    /// Takes `PREFIX{input_ids, token_type_ids, attention_mask, perm_mask}` out of the cases; `axes` of the first.
    pub fn take(
        config: &XlnetConfig,
        cases: &mut Cases,
        prefix: &str,
        axes: usize,
    ) -> Result<Self, TrainError> {
        let ids = cases.need_ids(&format!("{prefix}input_ids"), axes, config.vocab_size)?;
        // Several sequences of one example are rows of their own.
        let rows = |t: Tensor| t.reshape([-1, *t.size().last().unwrap_or(&0)]);
        let ids = rows(ids);
        let (batch, segment) = (ids.size()[0], ids.size()[1]);
        let segments = cases.take(&format!("{prefix}token_type_ids")).map(rows);
        let padding = cases
            .take(&format!("{prefix}attention_mask"))
            .map(|seen| rows(seen).eq(0.0).unsqueeze(1).expand([batch, segment, segment], false));
        let order = cases.take(&format!("{prefix}perm_mask")).map(|blocked| blocked.greater(0.0));
        let blocked = match (padding, order) {
            (Some(padding), Some(order)) => Some(padding.logical_or(&order)),
            (padding, order) => padding.or(order),
        };
        Ok(Self { ids, segments, blocked, reversed: if config.bi_data { batch / 2 } else { 0 } })
    }

    /// What the model reads.
    pub fn sequence(&self) -> Sequence<'_> {
        Sequence {
            segments: self.segments.as_ref(),
            visibility: self.blocked.as_ref().map_or(Visibility::All, Visibility::Blocked),
            reversed: self.reversed,
            ..Sequence::new(&self.ids)
        }
    }
}

/// No memory at all: what the package starts with.
pub fn no_memory(model: &Xlnet, batch: i64) -> Memory {
    let config = model.config();
    Memory::zeros(config.n_layer, batch, 0, config.d_model as i64, model.options())
}
