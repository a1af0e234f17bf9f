use segue_dataloader::sections::{LossKind, TextEvalConfig};
use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_language::{Batch, FromMemory, Loss, NextToken, Objective, Scores, Steps};
use segue_layers::adversarial::Nll;
use segue_layers::{Adversary, Context, Memory};
use tch::{Kind, Tensor};

use super::config::TransfoXlConfig;
use super::decode::StepByStep;
use super::model::{Segment, TransfoXl, context, with_same_length};

/// Next-token prediction, Σ −log P(x_t | x_<t) (Yang 2019, §2.1.2).
pub struct LanguageModel {
    /// The model.
    pub model: TransfoXl,
    /// Targets of a segment that training counts.
    pub targets: LossKind,
    /// Who moves words in training.
    pub adversary: Option<Adversary>,
    /// Steps over which its scale falls.
    pub steps: u64,
    parameters: Parameters,
}

impl LanguageModel {
    /// The configured model with fresh weights.
    pub fn new(config: &TransfoXlConfig, seed: u64, kind: Kind) -> Self {
        Self::from_parameters(config, Parameters::initialise(TransfoXl::specs(config), seed, kind))
    }

    /// The configured model over parameters it takes as its own.
    pub fn from_parameters(config: &TransfoXlConfig, parameters: Parameters) -> Self {
        let model = TransfoXl::new(config, &parameters);
        Self { model, targets: LossKind::Full, adversary: None, steps: 0, parameters }
    }

    /// −log P of the last `count` targets, `[micro_batch, count]`, and the next memory.
    fn nll(
        &self,
        batch: &Batch,
        count: i64,
        memory: &Memory,
        noise: Option<&Noise>,
        adversary: Option<&Adversary>,
    ) -> (Nll, Memory) {
        let out = self.model.forward(segment(batch), memory, noise);
        let last = |x: &Tensor| x.narrow(1, x.size()[1] - count, count);
        let targets = batch.ids_of_targets().map(last);
        (self.model.trained_nll(&last(&out.hidden), targets, adversary), out.memory)
    }
}

/// What the model reads of a batch.
fn segment(batch: &Batch) -> Segment<'_> {
    let (documents, overlap) = (batch.documents.as_ref(), batch.overlap);
    let ids_of_host = batch.of_host.as_ref().map(|kept| &kept.ids[0]);
    Segment { ids: &batch.inputs, ids_of_host, documents, overlap }
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
        let count = self.targets.targets(batch.targets.size()[1] as usize) as i64;
        let (nll, memory) = self.nll(batch, count, memory, noise, self.adversary.as_ref());
        let (nll, targets) = batch.counted(nll);
        Loss::of((&nll, targets), 1.0, None, memory)
    }

    fn at_step(&mut self, step: u64) {
        if let Some(adversary) = &mut self.adversary {
            adversary.at_step(step, self.steps);
        }
    }

    fn look(&mut self, eval: Option<&TextEvalConfig>) {
        let config = self.model.config();
        let mut context = context(config);
        if let Some(eval) = eval {
            if eval.mem_len >= 0 {
                context.mem_len = eval.mem_len;
            }
            if eval.clamp_len != 0 {
                context.clamp_len = eval.clamp_len;
            }
            if eval.same_length || config.same_length {
                context = with_same_length(context, config.same_length_keys);
            }
        }
        self.model.context = context;
    }

    fn set_inverse_temperature(&mut self, factor: f64) {
        self.model.set_inverse_temperature(factor);
    }

    fn score(&self, batch: &Batch, memory: &Memory) -> Scores {
        let (nll, memory) = tch::no_grad(|| self.nll(batch, batch.targets.size()[1], memory, None, None));
        Scores { nll: nll.trained, hits: None, follows: None, memory }
    }
}

impl NextToken for LanguageModel {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn memory_start(&self, lanes: i64) -> Memory {
        self.model.memory_start(lanes)
    }

    fn look(&mut self, eval: &TextEvalConfig) {
        Objective::look(self, Some(eval));
    }

    fn context(&self) -> Context {
        self.model.context
    }

    fn set_context(&mut self, context: Context) {
        self.model.context = context;
    }

    fn set_inverse_temperature(&mut self, factor: f64) {
        self.model.set_inverse_temperature(factor);
    }

    fn is_relative(&self) -> bool {
        self.model.config().attn_type.is_relative()
    }

    fn nll_with(
        &self,
        ids: &Tensor,
        targets: &Tensor,
        memory: &Memory,
        noise: Option<&Noise>,
    ) -> (Tensor, Memory) {
        let out = self.model.forward(ids, memory, noise);
        let (segment, count) = (ids.size()[1], targets.size()[1]);
        // The softmax sees the states that are asked for alone.
        (self.model.nll(&out.hidden.narrow(1, segment - count, count), targets), out.memory)
    }

    fn read(&self, ids: &Tensor, memory: &Memory) -> Memory {
        tch::no_grad(|| self.model.forward(ids, memory, None)).memory
    }

    fn next_log_probs_with(&self, ids: &Tensor, memory: &Memory, noise: Option<&Noise>) -> (Tensor, Memory) {
        tch::no_grad(|| {
            let out = self.model.forward(ids, memory, noise);
            (self.model.log_probs(&out.hidden), out.memory)
        })
    }

    fn steps<'a>(&'a self, memory: Memory) -> Box<dyn Steps + 'a> {
        match StepByStep::new(&self.model, &memory) {
            Some(steps) => Box::new(steps),
            None => Box::new(FromMemory { model: self, memory }),
        }
    }

    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor> {
        self.model.states(ids, memory)
    }
}
