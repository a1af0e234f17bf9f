//! The next word, from left to right.

use segue_configs::{EvalConfig, LossKind};
use tch::{Kind, Tensor};

use super::config::LstmConfig;
use super::model::Model;
use crate::Parameters;
use crate::families::language_model::{Batch, Decoder, FromMemory, Loss, NextToken, Objective, Scores};
use crate::layers::{Context, Memory};
use crate::noise::Noise;

/// Next-word prediction, Σ −ln P(x_t | x_<t).
pub struct LanguageModel {
    model: Model,
    /// Targets of a segment that training counts.
    pub targets: LossKind,
    parameters: Parameters,
}

impl LanguageModel {
    /// The configured model over parameters that it takes as its own.
    pub fn from_parameters(config: &LstmConfig, parameters: Parameters) -> Self {
        Self { model: Model::new(config, &parameters), targets: LossKind::Full, parameters }
    }

    /// −ln P of the last `count` targets, `[lanes, count]`, and the next memory.
    fn last_nll(
        &self,
        batch: &Batch,
        count: i64,
        memory: &Memory,
        noise: Option<&Noise>,
    ) -> (Tensor, Memory) {
        let out = self.model.forward(&batch.inputs, memory, noise);
        let last = |x: &Tensor| x.narrow(1, x.size()[1] - count, count);
        (self.model.nll(&last(&out.hidden), &last(&batch.targets), noise), out.memory)
    }
}

impl Objective for LanguageModel {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn memory_start(&self, lanes: i64) -> Memory {
        self.model.memory_start(lanes)
    }

    fn keep_marks(&mut self) {
        self.model.keeps_marks = true;
    }

    fn loss(&self, batch: &Batch, memory: &Memory, noise: Option<&Noise>) -> Loss {
        let segment = batch.targets.size()[1];
        let count = match self.targets {
            LossKind::Full => segment,
            LossKind::Half => (segment + 1) / 2,
        };
        let (nll, memory) = self.last_nll(batch, count, memory, noise);
        Loss { sum: nll.sum(None::<Kind>), weight: nll.numel() as f64, auxiliary: None, memory }
    }

    /// A state cannot look shorter or farther: with `mem_len` 0 each segment begins without one.
    fn look(&mut self, eval: Option<&EvalConfig>) {
        self.model.context.mem_len = match eval {
            Some(eval) if eval.mem_len >= 0 => eval.mem_len.min(1),
            _ => 1,
        };
    }

    fn score(&self, batch: &Batch, memory: &Memory) -> Scores {
        let (nll, memory) = tch::no_grad(|| self.last_nll(batch, batch.targets.size()[1], memory, None));
        Scores { nll, hits: None, follows: None, memory }
    }
}

impl NextToken for LanguageModel {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn memory_start(&self, lanes: i64) -> Memory {
        self.model.memory_start(lanes)
    }

    fn look(&mut self, eval: &EvalConfig) {
        Objective::look(self, Some(eval));
    }

    fn context(&self) -> Context {
        self.model.context
    }

    fn set_context(&mut self, context: Context) {
        self.model.context = Context { mem_len: context.mem_len.min(1), ..context };
    }

    fn nll(&self, ids: &Tensor, targets: &Tensor, memory: &Memory) -> (Tensor, Memory) {
        let out = self.model.forward(ids, memory, None);
        let (segment, count) = (ids.size()[1], targets.size()[1]);
        (self.model.nll(&out.hidden.narrow(1, segment - count, count), targets, None), out.memory)
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

    /// The state is all that a token needs of those before it.
    fn decoder<'a>(&'a self, memory: Memory) -> Box<dyn Decoder + 'a> {
        Box::new(FromMemory { model: self, memory })
    }

    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor> {
        self.model.forward(ids, memory, None).layers
    }
}
