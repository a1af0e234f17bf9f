//! Text read from left to right: the one order of prediction among all that is the order of the text.

use segue_dataloader::sections::TextEvalConfig;
use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_language::{FromMemory, NextToken, Steps};
use segue_layers::{Context, Memory};
use tch::{Kind, Tensor};

use super::model::{States, Xlnet};
use super::sequence::{Sequence, Visibility};
use super::{AttentionDirection, XlnetConfig};

/// Stands after the text where a prediction has to have a place. Nobody sees its content.
const DUMMY: i64 = 0;

/// XLNet as a model of the next token. All that it reads enters the memory, whatever `reuse_len` is.
///
/// A model that was trained on permutations predicts from the query stream in the order of the text (Yang 2019, §2.2.2,
/// z the identity): position i + 1 sees those before it. One with `attn_type = "uni"` was trained to predict from the
/// content of position i, and has no query stream worth asking.
pub struct LeftToRight {
    /// The model.
    pub model: Xlnet,
    parameters: Parameters,
}

impl LeftToRight {
    /// Over parameters that it takes as its own, which must hold [`Xlnet::specs`].
    pub fn new(config: &XlnetConfig, parameters: Parameters) -> Self {
        Self { model: Xlnet::new(config, &parameters), parameters }
    }

    /// States that the tokens after the last `count` of `ids`, `[batch, segment]`, are predicted from,
    /// `[batch, count, d_model]`, and the memory after `ids`.
    fn predict(&self, ids: &Tensor, count: i64, memory: &Memory, noise: Option<&Noise>) -> (Tensor, Memory) {
        let segment = ids.size()[1];
        let (states, memory) = match self.model.config().attn_type {
            AttentionDirection::Uni => {
                let out = self.model.forward_remembering(Sequence::new(ids), memory, segment, noise);
                (out.content.map(|content| content.narrow(1, segment - count, count)), out.memory)
            }
            AttentionDirection::Bi => {
                let out = self.predictions(ids, count, memory, noise);
                (out.predictions, out.memory)
            }
        };
        let Some(states) = states else { unreachable!("the stream was asked for") };
        (states, memory)
    }

    /// The query stream at the positions after the last `count` of `ids`.
    fn predictions(&self, ids: &Tensor, count: i64, memory: &Memory, noise: Option<&Noise>) -> States {
        let (batch, segment) = (ids.size()[0], ids.size()[1]);
        let dummy = Tensor::full([batch, 1], DUMMY, (Kind::Int64, ids.device()));
        let longer = Tensor::cat(&[ids, &dummy], 1);
        let places = Tensor::arange_start(segment + 1 - count, segment + 1, (Kind::Int64, ids.device()));
        let targets = places.unsqueeze(0).expand([batch, -1], false);
        let sequence = Sequence { targets: Some(&targets), content: false, ..in_order(&longer) };
        self.model.forward_remembering(sequence, memory, segment, noise)
    }
}

impl NextToken for LeftToRight {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn memory_start(&self, lanes: i64) -> Memory {
        self.model.memory_start(lanes)
    }

    fn look(&mut self, eval: &TextEvalConfig) {
        self.model.look(Some(eval));
    }

    fn context(&self) -> Context {
        self.model.context
    }

    fn set_context(&mut self, context: Context) {
        self.model.context = context;
    }

    fn set_inverse_temperature(&mut self, factor: f64) {
        self.model.inverse_temperature = factor;
    }

    fn nll_with(
        &self,
        ids: &Tensor,
        targets: &Tensor,
        memory: &Memory,
        noise: Option<&Noise>,
    ) -> (Tensor, Memory) {
        let (states, memory) = self.predict(ids, targets.size()[1], memory, noise);
        (self.model.nll(&states, targets), memory)
    }

    fn read(&self, ids: &Tensor, memory: &Memory) -> Memory {
        tch::no_grad(|| self.model.forward_remembering(in_order(ids), memory, ids.size()[1], None).memory)
    }

    fn next_log_probs_with(&self, ids: &Tensor, memory: &Memory, noise: Option<&Noise>) -> (Tensor, Memory) {
        tch::no_grad(|| {
            let (states, memory) = self.predict(ids, ids.size()[1], memory, noise);
            (self.model.logits(&states).log_softmax(-1, None::<Kind>), memory)
        })
    }

    fn steps<'a>(&'a self, memory: Memory) -> Box<dyn Steps + 'a> {
        Box::new(FromMemory { model: self, memory })
    }

    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor> {
        tch::no_grad(|| {
            let (streams, mut layers) = self.model.run(in_order(ids), memory, None);
            layers.push(streams.content.whole);
            layers
        })
    }
}

/// `ids` of which every position sees itself and those before.
fn in_order(ids: &Tensor) -> Sequence<'_> {
    Sequence { visibility: Visibility::Before, ..Sequence::new(ids) }
}
