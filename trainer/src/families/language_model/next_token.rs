//! What scoring, generation and the protocols of evaluation ask of a model: the next token, from left to right, with
//! memory.

use segue_configs::EvalConfig;
use tch::Tensor;

use crate::Parameters;
use crate::layers::{Context, Memory};

/// A model that tells the next token. Dropout is off, and nothing but [`NextToken::nll`] leaves a graph.
pub trait NextToken {
    /// What it was trained to.
    fn parameters(&self) -> &Parameters;

    /// What `lanes` carry before their first token.
    fn memory_start(&self, lanes: i64) -> Memory;

    /// Sets how far attention looks.
    fn look(&mut self, eval: &EvalConfig);

    /// How far attention looks.
    fn context(&self) -> Context;

    /// Sets it to what no `[eval]` section says.
    fn set_context(&mut self, context: Context);

    /// −log P in nats of `targets`, `[batch, count]`, which come after the last `count` of `ids`,
    /// `[batch, segment]`, given all before them: `[batch, count]`, with its graph; and the memory after `ids`.
    fn nll(&self, ids: &Tensor, targets: &Tensor, memory: &Memory) -> (Tensor, Memory);

    /// The memory after `ids`, `[batch, segment]`.
    fn read(&self, ids: &Tensor, memory: &Memory) -> Memory;

    /// log P of every token after each of `ids`, `[batch, segment]`, given what comes up to it:
    /// `[batch, segment, vocab_size]`; and the memory after `ids`.
    fn next_log_probs(&self, ids: &Tensor, memory: &Memory) -> (Tensor, Memory);

    /// What tells one token of each lane after the other, from `memory` on.
    fn decoder<'a>(&'a self, memory: Memory) -> Box<dyn Decoder + 'a>;

    /// The embedding of `ids`, `[batch, segment]`, and the states after each layer, read from left to right:
    /// `[batch, segment, d_model]` each.
    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor>;
}

/// A model that reads one token of each lane at a time, and may keep what it has made of those before.
pub trait Decoder {
    /// log P of every token after `ids`, `[lanes]`, the next token of each lane: `[lanes, vocab_size]`. No graph.
    fn next_log_probs(&mut self, ids: &Tensor) -> Tensor;

    /// The memory after all that was read.
    fn memory(self: Box<Self>) -> Memory;
}

/// A decoder that keeps the memory alone, and has its keys and values made anew for each token.
pub struct FromMemory<'a> {
    /// The model.
    pub model: &'a dyn NextToken,
    /// After all that was read.
    pub memory: Memory,
}

impl Decoder for FromMemory<'_> {
    fn next_log_probs(&mut self, ids: &Tensor) -> Tensor {
        let (log_probs, memory) = self.model.next_log_probs(&ids.unsqueeze(1), &self.memory);
        self.memory = memory;
        log_probs.squeeze_dim(1)
    }

    fn memory(self: Box<Self>) -> Memory {
        self.memory
    }
}
