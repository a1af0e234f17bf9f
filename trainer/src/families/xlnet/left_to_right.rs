//! Text read from left to right: the one order of prediction among all that is the order of the text.

use super::AttentionDirection;
use tch::{Device, Kind, Tensor};

use super::model::{Sequence, Visibility, Xlnet};
use crate::layers::Memory;

/// Stands after the text where a prediction has to have a place. Nobody sees its content.
const DUMMY: i64 = 0;

impl Xlnet {
    /// The memory after `ids`, `[batch, segment]`, of which every position sees itself and those before. All of
    /// them enter it, whatever `reuse_len` is. No graph, no dropout.
    pub fn read(&self, ids: &Tensor, memory: &Memory) -> Memory {
        let ranks = in_order(ids);
        let sequence =
            Sequence { visibility: Visibility::Ranks { ranks: &ranks, halves_at: 0 }, ..Sequence::new(ids) };
        tch::no_grad(|| self.forward_remembering(sequence, memory, ids.size()[1], None).memory)
    }

    /// The content of `ids`, `[batch, segment]`, before the first layer and after each, where every position sees itself
    /// and those before: `[batch, segment, d_model]` each. No graph, no dropout.
    pub fn layers_in_order(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor> {
        let ranks = in_order(ids);
        let sequence =
            Sequence { visibility: Visibility::Ranks { ranks: &ranks, halves_at: 0 }, ..Sequence::new(ids) };
        tch::no_grad(|| {
            let (streams, mut layers) = self.run(sequence, memory, None);
            layers.push(streams.content);
            layers
        })
    }

    /// log P of every token of the vocabulary after each of `ids`, `[batch, segment]`, given the memory and `ids`
    /// up to it: `[batch, segment, vocab_size]`. With them the memory after `ids`. No graph, no dropout.
    ///
    /// A model that was trained on permutations predicts from the query stream with rank(i) = i (Yang 2019, §2.2.2, z the
    /// identity): position i + 1 sees those before it. One with `attn_type = "uni"` was trained to predict from the
    /// content of position i, and has no query stream worth asking.
    pub fn next_log_probs(&self, ids: &Tensor, memory: &Memory) -> (Tensor, Memory) {
        tch::no_grad(|| {
            let (states, memory) = match self.config.attn_type {
                AttentionDirection::Uni => {
                    let out = self.forward_remembering(Sequence::new(ids), memory, ids.size()[1], None);
                    (out.content, out.memory)
                }
                AttentionDirection::Bi => self.predictions_in_order(ids, memory),
            };
            let Some(states) = states else { unreachable!("the stream was asked for") };
            (self.logits(&states).log_softmax(-1, None::<Kind>), memory)
        })
    }

    /// The query stream at the positions after each of `ids`, `[batch, segment, d_model]`, and the next memory.
    fn predictions_in_order(&self, ids: &Tensor, memory: &Memory) -> (Option<Tensor>, Memory) {
        let (batch, segment) = (ids.size()[0], ids.size()[1]);
        let dummy = Tensor::full([batch, 1], DUMMY, (Kind::Int64, Device::Cpu));
        let longer = Tensor::cat(&[ids, &dummy], 1);
        let ranks = in_order(&longer);
        let targets = ranks.narrow(1, 1, segment);
        let sequence = Sequence {
            visibility: Visibility::Ranks { ranks: &ranks, halves_at: 0 },
            targets: Some(&targets),
            content: false,
            ..Sequence::new(&longer)
        };
        let out = self.forward_remembering(sequence, memory, segment, None);
        (out.predictions, out.memory)
    }
}

/// 0, 1, 2, .. for each lane of `ids`, `[batch, segment]`.
fn in_order(ids: &Tensor) -> Tensor {
    Tensor::arange(ids.size()[1], (Kind::Int64, Device::Cpu)).unsqueeze(0).expand_as(ids)
}
