//! The next word, from left to right.

use segue_configs::OwnSections;
use segue_dataloader::sections::{LossKind, LossOver, ObjectiveConfig, SegmentConfig, TextEvalConfig};
use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_language::{Batch, FromMemory, Loss, NextToken, Objective, Scores, Steps};
use segue_layers::adversarial::Nll;
use segue_layers::recurrent::{activation_penalty, slowness_penalty};
use segue_layers::{Adversary, Context, Memory, mean_cosine};
use tch::Tensor;

use super::keys::LstmConfig;
use super::model::{Model, Output};

/// Next-word prediction, Σ −ln P(x_t | x_<t).
pub struct LanguageModel {
    model: Model,
    /// Targets of a segment that training counts.
    targets: LossKind,
    /// What else training does.
    objective: ObjectiveConfig,
    /// Who moves words in training.
    adversary: Option<Adversary>,
    /// Steps over which noise, and the adversary's scale, fall.
    steps: u64,
    parameters: Parameters,
}

impl LanguageModel {
    /// The configured model over parameters that it takes as its own.
    pub fn from_parameters(config: &LstmConfig, parameters: Parameters) -> Self {
        let model = Model::new(config, &parameters);
        let (targets, objective) = (LossKind::Full, ObjectiveConfig::default());
        Self { model, targets, objective, adversary: None, steps: 0, parameters }
    }

    /// The same, to be trained as these sections of a run say, whose schedule has so many steps.
    pub fn trained(self, own: &OwnSections, steps: u64) -> Self {
        let mut trained = Self {
            targets: own.get::<SegmentConfig>().loss,
            objective: own.get::<ObjectiveConfig>().into_owned(),
            adversary: Adversary::of(&own.get()),
            steps,
            ..self
        };
        trained.model.samples = trained.objective.samples as i64;
        trained
    }

    /// −ln P of the last `count` targets, `[lanes, count]`, and what the segment gives.
    fn last_nll(
        &self,
        batch: &Batch,
        count: i64,
        memory: &Memory,
        noise: Option<&Noise>,
        adversary: Option<&Adversary>,
    ) -> (Nll, Output) {
        let out = self.model.forward(&batch.inputs, memory, noise);
        let last = |x: &Tensor| x.narrow(1, x.size()[1] - count, count);
        let nll =
            self.model.trained_nll(&last(&out.hidden), batch.ids_of_targets().map(last), noise, adversary);
        (nll, out)
    }

    /// What is trained beside the loss of `targets` targets: means, each by its weight, times that number, as the engine divides by that of
    /// the whole batch. Micro-steps of one step have equally many targets and positions, so that the mean over them is that of the batch.
    fn penalty(&self, out: &Output, targets: f64) -> Option<Tensor> {
        let objective = &self.objective;
        let weighed = |weight: f64, penalty: &dyn Fn() -> Option<Tensor>| {
            (weight > 0.0).then(penalty).flatten().map(|mean| mean * (weight * targets))
        };
        let penalties = [
            weighed(objective.cosine_penalty, &|| Some(mean_cosine(self.model.output()))),
            weighed(objective.activation_penalty, &|| Some(activation_penalty(&out.hidden))),
            weighed(objective.slowness_penalty, &|| slowness_penalty(&out.undropped)),
        ];
        penalties.into_iter().flatten().reduce(|sum, penalty| sum + penalty)
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
        let count = self.targets.targets(batch.targets.size()[1] as usize) as i64;
        let (nll, out) = self.last_nll(batch, count, memory, noise, self.adversary.as_ref());
        let (nll, targets) = batch.counted(nll);
        let times = match self.objective.loss_over {
            LossOver::Targets => 1.0,
            // What is trained is divided by targets, of which each lane has so many.
            LossOver::Lanes => count as f64,
        };
        let penalty = self.penalty(&out, targets);
        Loss::of((&nll, targets), times, penalty, out.memory)
    }

    fn at_step(&mut self, step: u64) {
        self.model.input_noise = self.objective.input_noise_at(step, self.steps);
        if let Some(adversary) = &mut self.adversary {
            adversary.at_step(step, self.steps);
        }
    }

    /// A state cannot look shorter or farther: with `mem_len` 0 each segment begins without one.
    fn look(&mut self, eval: Option<&TextEvalConfig>) {
        self.model.samples = if eval.is_some() { 1 } else { self.objective.samples as i64 };
        self.model.context.mem_len = match eval {
            Some(eval) if eval.mem_len >= 0 => eval.mem_len.min(1),
            _ => 1,
        };
    }

    fn set_inverse_temperature(&mut self, factor: f64) {
        self.model.set_inverse_temperature(factor);
    }

    fn score(&self, batch: &Batch, memory: &Memory) -> Scores {
        let (nll, out) = tch::no_grad(|| self.last_nll(batch, batch.targets.size()[1], memory, None, None));
        Scores { nll: nll.trained, hits: None, follows: None, memory: out.memory }
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
        self.model.context = Context { mem_len: context.mem_len.min(1), ..context };
    }

    fn set_inverse_temperature(&mut self, factor: f64) {
        self.model.set_inverse_temperature(factor);
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
        (self.model.nll(&out.hidden.narrow(1, segment - count, count), targets, noise), out.memory)
    }

    fn read(&self, ids: &Tensor, memory: &Memory) -> Memory {
        tch::no_grad(|| self.model.forward(ids, memory, None)).memory
    }

    fn next_log_probs_with(&self, ids: &Tensor, memory: &Memory, noise: Option<&Noise>) -> (Tensor, Memory) {
        tch::no_grad(|| {
            let out = self.model.forward(ids, memory, noise);
            (self.model.log_probs_with(&out.hidden, noise), out.memory)
        })
    }

    fn gates(&self, ids: &Tensor, memory: &Memory) -> Option<(Vec<[Tensor; 3]>, Memory)> {
        let (gates, memory) = tch::no_grad(|| self.model.gates(ids, memory));
        (!gates.is_empty()).then_some((gates, memory))
    }

    /// The state is all that a token needs of those before it.
    fn steps<'a>(&'a self, memory: Memory) -> Box<dyn Steps + 'a> {
        Box::new(FromMemory { model: self, memory })
    }

    fn layers(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor> {
        self.model.forward(ids, memory, None).layers
    }
}

#[cfg(test)]
mod tests;
