//! The interface of scoring and generation: the next token, from left to right, with memory.

use segue_configs::EvalConfig;
use tch::Tensor;

use crate::model::{Memory, Xlnet};
use crate::objective::{LanguageModel, Objective};

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

impl NextToken for LanguageModel {
    fn memory_start(&self, lanes: i64) -> Memory {
        self.model.memory_start(lanes)
    }

    fn look(&mut self, eval: &EvalConfig) {
        Objective::look(self, Some(eval));
    }

    fn read(&self, ids: &Tensor, memory: &Memory) -> Memory {
        tch::no_grad(|| self.model.forward(ids, memory, None)).memory
    }

    fn next_log_probs(&self, ids: &Tensor, memory: &Memory) -> (Tensor, Memory) {
        tch::no_grad(|| {
            let out = self.model.forward(ids, memory, None);
            (self.model.log_probs(&out.hidden), out.memory)
        })
    }

    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor> {
        self.model.layers(ids, memory)
    }
}

impl NextToken for Xlnet {
    fn memory_start(&self, lanes: i64) -> Memory {
        self.memory_start(lanes)
    }

    fn look(&mut self, eval: &EvalConfig) {
        self.look(Some(eval));
    }

    fn read(&self, ids: &Tensor, memory: &Memory) -> Memory {
        self.read(ids, memory)
    }

    fn next_log_probs(&self, ids: &Tensor, memory: &Memory) -> (Tensor, Memory) {
        self.next_log_probs(ids, memory)
    }

    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor> {
        self.layers_in_order(ids, memory)
    }
}
