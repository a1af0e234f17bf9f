//! The interface of scoring and generation: the next token, from left to right, with memory.

use segue_configs::EvalConfig;
use tch::Tensor;

use crate::layers::Memory;

/// A model that tells the next token. Nothing here leaves a graph, and dropout is off.
pub trait NextToken {
    /// What `lanes` carry before their first token.
    fn memory_start(&self, lanes: i64) -> Memory;

    /// Sets how far attention looks.
    fn look(&mut self, eval: &EvalConfig);

    /// The memory after `ids`, `[batch, segment]`.
    fn read(&self, ids: &Tensor, memory: &Memory) -> Memory;

    /// log P of every token after each of `ids`, `[batch, segment]`, given what comes up to it:
    /// `[batch, segment, vocab_size]`; and the memory after `ids`.
    fn next_log_probs(&self, ids: &Tensor, memory: &Memory) -> (Tensor, Memory);

    /// The embedding of `ids`, `[batch, segment]`, and the states after each layer, read from left to right:
    /// `[batch, segment, d_model]` each.
    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor>;
}
