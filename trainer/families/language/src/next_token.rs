//! What scoring, generation and the protocols of evaluation ask of a model: the next token, from left to right, with
//! memory.

use segue_dataloader::sections::TextEvalConfig;
use segue_decode::Decoder;
use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_layers::{Context, Memory};
use tch::{Device, Tensor};

/// A model that tells the next token. Dropout is off where there is no noise, and nothing but −log P of targets leaves a graph.
pub trait NextToken {
    /// What it was trained to.
    fn parameters(&self) -> &Parameters;

    /// What `lanes` carry before their first token.
    fn memory_start(&self, lanes: i64) -> Memory;

    /// Sets how far attention looks.
    fn look(&mut self, eval: &TextEvalConfig);

    /// How far attention looks.
    fn context(&self) -> Context;

    /// Sets it to what no `[eval]` section says.
    fn set_context(&mut self, context: Context);

    /// Sets what scores are multiplied by before each softmax, those of a mixture and of clusters too: the inverse of a temperature. 1
    /// where nothing was set.
    fn set_inverse_temperature(&mut self, factor: f64);

    /// Whether what it predicts depends on distances between tokens, and not on their places in a window.
    fn is_relative(&self) -> bool {
        true
    }

    /// −log P in nats of `targets`, `[batch, count]`, which come after the last `count` of `ids`,
    /// `[batch, segment]`, given all before them: `[batch, count]`, with its graph; and the memory after `ids`.
    fn nll(&self, ids: &Tensor, targets: &Tensor, memory: &Memory) -> (Tensor, Memory) {
        self.nll_with(ids, targets, memory, None)
    }

    /// The same with dropout, as in training, where there is noise.
    fn nll_with(
        &self,
        ids: &Tensor,
        targets: &Tensor,
        memory: &Memory,
        noise: Option<&Noise>,
    ) -> (Tensor, Memory);

    /// The memory after `ids`, `[batch, segment]`.
    fn read(&self, ids: &Tensor, memory: &Memory) -> Memory;

    /// log P of every token after each of `ids`, `[batch, segment]`, given what comes up to it:
    /// `[batch, segment, vocab_size]`; and the memory after `ids`.
    fn next_log_probs(&self, ids: &Tensor, memory: &Memory) -> (Tensor, Memory) {
        self.next_log_probs_with(ids, memory, None)
    }

    /// The same with dropout, as in training, where there is noise.
    fn next_log_probs_with(&self, ids: &Tensor, memory: &Memory, noise: Option<&Noise>) -> (Tensor, Memory);

    /// Gates f, i and o of each layer, `[batch, segment, n]` each, as `ids`, `[batch, segment]`, are read, and the memory after them; `None` of
    /// models without. No graph.
    fn gates(&self, ids: &Tensor, memory: &Memory) -> Option<(Vec<[Tensor; 3]>, Memory)> {
        let _ = (ids, memory);
        None
    }

    /// What tells one token of each lane after the other, from `memory` on.
    fn steps<'a>(&'a self, memory: Memory) -> Box<dyn Steps + 'a>;

    /// The embedding of `ids`, `[batch, segment]`, and the states after each layer, read from left to right:
    /// `[batch, segment, d_model]` each.
    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor>;
}

/// A model that reads one token of each lane at a time, and may keep what it has made of those before.
pub trait Steps {
    /// log P of every token after `ids`, `[lanes]`, the next token of each lane: `[lanes, vocab_size]`. No graph.
    fn step(&mut self, ids: &Tensor) -> Tensor;

    /// Goes on with the lanes of these numbers, `[kept]`, in their order.
    fn keep(&mut self, lanes: &Tensor);

    /// The memory after all that was read.
    fn memory(self: Box<Self>) -> Memory;
}

/// Steps that cache the memory only, and recompute its keys and values for each token.
pub struct FromMemory<'a> {
    /// The model.
    pub model: &'a dyn NextToken,
    /// After all that was read.
    pub memory: Memory,
}

impl Steps for FromMemory<'_> {
    fn step(&mut self, ids: &Tensor) -> Tensor {
        let (log_probs, memory) = self.model.next_log_probs(&ids.unsqueeze(1), &self.memory);
        self.memory = memory;
        log_probs.squeeze_dim(1)
    }

    fn keep(&mut self, lanes: &Tensor) {
        self.memory = self.memory.of_lanes(lanes);
    }

    fn memory(self: Box<Self>) -> Memory {
        self.memory
    }
}

/// Texts that a model writes on, from a fresh memory: what is read enters the memory segment by segment, what is written token by token.
pub struct Writing<'a> {
    model: &'a dyn NextToken,
    state: State<'a>,
}

enum State<'a> {
    Reading(Memory),
    Writing(Box<dyn Steps + 'a>),
}

impl<'a> Writing<'a> {
    /// `texts` texts of which nothing was read.
    pub fn new(model: &'a dyn NextToken, texts: usize) -> Self {
        Self { model, state: State::Reading(model.memory_start(texts as i64)) }
    }

    /// The memory after all that was read, which is to be put back.
    fn take_memory(&mut self) -> Memory {
        let nothing = State::Reading(Memory { layers: Vec::new(), documents: None });
        match std::mem::replace(&mut self.state, nothing) {
            State::Reading(memory) => memory,
            State::Writing(steps) => steps.memory(),
        }
    }
}

impl Decoder for Writing<'_> {
    fn read(&mut self, ids: &Tensor) {
        let memory = self.take_memory();
        self.state = State::Reading(self.model.read(ids, &memory));
    }

    fn step(&mut self, last: &Tensor) -> Tensor {
        if let State::Reading(_) = self.state {
            self.state = State::Writing(self.model.steps(self.take_memory()));
        }
        match &mut self.state {
            State::Writing(steps) => steps.step(last),
            State::Reading(_) => unreachable!("made above"),
        }
    }

    fn keep(&mut self, rows: &Tensor) {
        match &mut self.state {
            State::Reading(memory) => *memory = memory.of_lanes(rows),
            State::Writing(steps) => steps.keep(rows),
        }
    }

    fn device(&self) -> Device {
        self.model.parameters().options().1
    }
}
