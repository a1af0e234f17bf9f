//! What is trained: the loss of target tokens, smoothed, of words that an adversary may move.

use segue_engine::{Learner, Loss, Turn};
use segue_kernels::libtorch::stream::put;
use segue_kernels::noise::Noise;
use segue_kernels::{Compute, Parameters};
use segue_layers::adversarial::{self, Nll};
use segue_layers::cross_entropy::Distribution;
use segue_layers::{AdversarialConfig, Adversary};
use segue_sentences::PairBatch;
use tch::{Device, Kind, Tensor};

use super::keys::{ObjectiveConfig, TranslationConfig};
use super::model::{Transformer, padding_mask, specs};

/// A batch of pairs where the model lives.
pub struct PairTensors {
    /// Ids of the sources, `[pairs, source]`.
    source: Tensor,
    /// Hides their padding, `[pairs, 1, source]`; `None` where there is none.
    mask: Option<Tensor>,
    /// What the decoder reads, `[pairs, target]`.
    inputs: Tensor,
    /// Places in `[pairs · target]` that are no padding, `[tokens]`.
    places: Tensor,
    /// The token that comes there, `[tokens]`.
    targets: Tensor,
}

impl PairTensors {
    /// On `device`.
    pub fn of(batch: &PairBatch, device: Device) -> Self {
        let (source, target) = (batch.source_length as i64, batch.target_length as i64);
        let ids = |ids: &[i64], length: i64| put(Tensor::from_slice(ids).view([-1, length]), device);
        let rows = batch.target_lengths.iter().zip(0..);
        let places: Vec<i64> = rows.flat_map(|(own, row)| row * target..row * target + own).collect();
        let targets: Vec<i64> = places.iter().map(|place| batch.target_output[*place as usize]).collect();
        Self {
            source: ids(&batch.source, source),
            mask: padding_mask(&batch.source_lengths, source, device),
            inputs: ids(&batch.target_input, target),
            places: put(Tensor::from_slice(&places), device),
            targets: put(Tensor::from_slice(&targets), device),
        }
    }

    /// Target tokens, ends among them.
    pub fn tokens(&self) -> usize {
        self.targets.numel()
    }
}

/// A Transformer with its loss.
pub struct Translator {
    /// The model.
    pub model: Transformer,
    smoothing: Option<Distribution>,
    adversary: Option<Adversary>,
    /// Steps over which the adversary's scale falls.
    steps: u64,
    parameters: Parameters,
}

impl Translator {
    /// With fresh weights, where `compute` says.
    pub fn fresh(model: &TranslationConfig, seed: u64, compute: Compute) -> Self {
        let parameters = Parameters::initialise(specs(model), seed, Kind::Float);
        Self::over(model, parameters.to(compute.device()))
    }

    /// The same, to be trained by this objective over a schedule of so many steps.
    pub fn trained_by(self, objective: &ObjectiveConfig, adversary: &AdversarialConfig, steps: u64) -> Self {
        let smoothing = objective.smoothing(self.model.config());
        Self { smoothing, adversary: Adversary::of(adversary), steps, ..self }
    }

    /// Over trained parameters, which hold [`specs`].
    pub fn over(model: &TranslationConfig, parameters: Parameters) -> Self {
        let model = Transformer::new(model, &parameters);
        Self { model, smoothing: None, adversary: None, steps: 0, parameters }
    }

    /// All that is trained.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// States that predict the target tokens of a batch, `[tokens, d_model]`.
    fn predicting(&self, batch: &PairTensors, noise: Option<&Noise>) -> Tensor {
        let source = self.model.encode(&batch.source, batch.mask.as_ref(), noise);
        let states = self.model.decode(&batch.inputs, &source, batch.mask.as_ref(), noise);
        let width = states.size()[2];
        states.view([-1, width]).index_select(0, &batch.places)
    }

    /// Loss of each target token, `[tokens]`.
    fn nll(&self, batch: &PairTensors, noise: Option<&Noise>) -> Nll {
        let (states, words) = (self.predicting(batch, noise), [self.model.words()]);
        let (kernels, adversary) = (self.parameters.kernels(), self.adversary.as_ref());
        match &self.smoothing {
            Some(smoothing) => {
                adversarial::smoothed(kernels, &states, &words, &batch.targets, adversary, smoothing)
            }
            None => adversarial::nll(kernels, &states, &words, &batch.targets, adversary),
        }
    }

    /// Σ −ln P of the target tokens of a batch, without dropout, smoothing or adversary.
    pub fn score(&self, batch: &PairTensors) -> f64 {
        let _no_graph = tch::no_grad_guard();
        let (states, words) = (self.predicting(batch, None), [self.model.words()]);
        let nll = adversarial::nll(self.parameters.kernels(), &states, &words, &batch.targets, None);
        nll.trained.sum(Kind::Double).double_value(&[])
    }
}

impl Learner for Translator {
    /// The batch of each of this rank's micro-steps.
    type Batch = Vec<PairTensors>;
    /// A sentence knows nothing of those before it.
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.parameters)]
    }

    fn turn(&mut self, step: u64) -> Turn {
        if let Some(adversary) = &mut self.adversary {
            adversary.at_step(step, self.steps);
        }
        Turn::only(step)
    }

    fn start(&self, _: i64) {}

    fn loss(
        &self,
        _: &Turn,
        batch: &Vec<PairTensors>,
        micro_step: usize,
        (): &(),
        noise: &Noise,
    ) -> Loss<()> {
        let batch = &batch[micro_step];
        let nll = self.nll(batch, Some(noise));
        let sum = |x: &Tensor| x.sum(None::<Kind>);
        let statistics = self.adversary.as_ref().map(|_| sum(nll.against()).detach());
        Loss {
            objectives: vec![sum(&nll.trained)],
            reported: sum(nll.reported()).detach(),
            weight: batch.tokens() as f64,
            carry: (),
            statistics: statistics.into_iter().collect(),
        }
    }

    fn against(&self, statistics: &[f64]) -> Option<f64> {
        statistics.first().copied()
    }
}

#[cfg(test)]
mod tests;
