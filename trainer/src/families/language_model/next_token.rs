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

    /// The embedding of `ids`, `[batch, segment]`, and the states after each layer, read from left to right:
    /// `[batch, segment, d_model]` each.
    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor>;
}
