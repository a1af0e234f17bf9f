//! What a step trains: encoder and decoder, each for an objective of its own whose gradients are those of one.

use segue_configs::TrainConfig;
use segue_engine::{Learner, Loss, Turn};
use segue_kernels::noise::Noise;
use segue_kernels::{ParameterSpec, Parameters};
use tch::{Kind, Tensor};

use crate::estimator::Estimator;
use crate::keys::{LatentConfig, ObjectiveConfig};
use crate::latents::Gaussian;
use crate::network::{Decoder, Encoder, Masks, Posterior, Sentences};
use crate::scores::Scores;

/// Both networks over their parameters.
pub struct Model {
    /// What it is.
    pub config: LatentConfig,
    decoder: Parameters,
    encoder: Parameters,
}

/// Samples of the latent variables of sentences, `[sentences, samples]` each but for the samples themselves.
struct Drawn {
    /// `[sentences, samples, latents]`.
    z: Tensor,
    /// ln q(z | x).
    density: Tensor,
    /// ln p(z) − ln q(z | x).
    ratio: Tensor,
}

impl Model {
    /// With fresh weights.
    pub fn new(train: &TrainConfig, config: &LatentConfig) -> Self {
        let [(_, decoder), (_, encoder)] = Self::specs(config)
            .map(|(name, specs)| (name, Parameters::initialise(specs, train.seed, Kind::Float)));
        Self { config: config.clone(), decoder, encoder }
    }

    /// Over these parameters.
    pub fn over(config: &LatentConfig, decoder: Parameters, encoder: Parameters) -> Self {
        Self { config: config.clone(), decoder, encoder }
    }

    /// The parameters of each network, without making them.
    pub fn specs(config: &LatentConfig) -> [(&'static str, Vec<ParameterSpec>); 2] {
        let sizes = config.sizes();
        [("decoder", sizes.decoder_specs()), ("encoder", sizes.encoder_specs())]
    }

    /// q(z | x).
    pub fn encoder(&self) -> Encoder {
        Encoder::new(&self.config.sizes(), &self.encoder)
    }

    /// p(x | z).
    pub fn decoder(&self) -> Decoder {
        Decoder::new(&self.config.sizes(), &self.decoder)
    }

    /// The same with weights that are constants.
    fn frozen_decoder(&self) -> Decoder {
        let weights = self.decoder.tensors().iter().map(Tensor::detach).collect();
        let parameters = Parameters::computed(self.decoder.specs().to_vec(), weights, self.decoder.kernels());
        Decoder::new(&self.config.sizes(), &parameters)
    }

    /// Scores of samples of `posterior` without dropout and without a graph.
    pub fn scores(
        &self,
        sentences: &Sentences,
        posterior: &Posterior,
        samples: i64,
        noise: &Noise,
    ) -> Scores {
        tch::no_grad(|| {
            let drawn = drawn(posterior, samples, noise, None);
            let likelihood = self.decoder().likelihood(sentences, &drawn.z, &Masks::default());
            Scores { likelihood, ratio: drawn.ratio }
        })
    }
}

/// As many samples of each sentence. Those of normal variables are functions of the parameters of `posterior` where `estimator` needs them to be.
fn drawn(posterior: &Posterior, samples: i64, noise: &Noise, estimator: Option<Estimator>) -> Drawn {
    match posterior {
        Posterior::Gaussian(q) => {
            let size = q.mean.size();
            let z = q.sample(&noise.normal(&[size[0], samples, size[1]]));
            let z = if estimator.is_some_and(Estimator::needs_paths) { z } else { z.detach() };
            let density = match estimator {
                Some(Estimator::DoublyReparametrized) => q.detached().log_density(&z),
                _ => q.log_density(&z),
            };
            let ratio = Gaussian::log_prior(&z) - &density;
            Drawn { z, density, ratio }
        }
        Posterior::Categorical(q) => {
            let size = q.logits.size();
            let z = tch::no_grad(|| q.sample(&noise.uniform(&[size[0], samples, size[1]])));
            let density = q.log_density(&z);
            let ratio = density.neg() + q.log_prior();
            Drawn { z, density, ratio }
        }
    }
}

/// KL(q(z | x) ‖ p(z)), `[sentences]`.
pub fn divergence(posterior: &Posterior) -> Tensor {
    match posterior {
        Posterior::Gaussian(q) => q.kl(),
        Posterior::Categorical(q) => q.kl(),
    }
}

/// A model in training.
pub struct Training {
    /// What is trained.
    pub model: Model,
    objective: ObjectiveConfig,
}

impl Training {
    /// Trains `model` for `objective`.
    pub fn new(model: Model, objective: &ObjectiveConfig) -> Self {
        Self { model, objective: objective.clone() }
    }

    /// What the decoder and the encoder lower, and the bound −S that is reported: `[sentences]` each.
    fn losses(&self, sentences: &Sentences, noise: &Noise) -> [Tensor; 3] {
        let (own, counts) = (&self.objective, self.objective.counts());
        let (objective, estimator) = (own.objective(), own.estimator());
        let posterior = self.model.encoder().posterior(sentences);
        let mut drawn = drawn(&posterior, counts.drawn(), noise, Some(estimator));
        if own.analytic {
            drawn.ratio = -divergence(&posterior).unsqueeze(1);
        }
        let decoder = self.model.decoder();
        let masks = decoder.masks(sentences, counts.drawn(), self.model.config.dropout(), noise);
        // A pass for each network: what the fused loss keeps of one serves one gradient.
        let written = decoder.likelihood(sentences, &drawn.z.detach(), &masks);
        let likelihood = match estimator.needs_paths() {
            true => self.model.frozen_decoder().likelihood(sentences, &drawn.z, &masks),
            false => written.detach(),
        };
        let scores = Scores { likelihood, ratio: drawn.ratio };
        let surrogate = estimator.surrogate(objective, &scores, &drawn.density, counts);
        let scores = Scores { likelihood: written, ratio: scores.ratio.detach() };
        let value = objective.value(&scores, counts);
        [-value, -surrogate, -tch::no_grad(|| scores.first(counts.bound).bound(1.0))]
    }
}

impl Learner for Training {
    /// The sentences of each micro-step.
    type Batch = Vec<Sentences>;
    /// A sentence knows nothing of those before it.
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("decoder", &self.model.decoder), ("encoder", &self.model.encoder)]
    }

    fn turn(&mut self, step: u64) -> Turn {
        Turn { networks: vec![0, 1], source: 0, nth: step }
    }

    fn start(&self, _: i64) {}

    /// Sums over sentences.
    fn loss(&self, _: &Turn, batch: &Vec<Sentences>, micro_step: usize, (): &(), noise: &Noise) -> Loss<()> {
        let sentences = &batch[micro_step];
        let [decoder, encoder, reported] =
            self.losses(sentences, noise).map(|losses| losses.sum(None::<Kind>));
        let weight = sentences.ids.size()[0] as f64;
        Loss { objectives: vec![decoder, encoder], reported, weight, carry: (), statistics: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{EstimatorKind, LatentKind, ObjectiveKind};

    fn config(latents: LatentKind) -> LatentConfig {
        LatentConfig {
            vocab_size: 9,
            d_embed: 5,
            d_encoder: 6,
            d_model: 7,
            latents,
            latent_count: 2,
            latent_values: 3,
            d_latent: 4,
            ..Default::default()
        }
    }

    fn sentences() -> Sentences {
        let ids = Tensor::from_slice(&[4i64, 8, 2, 0, 7, 1, 0, 0, 3, 0, 0, 0]).view([3, 4]);
        Sentences { ids, lengths: Tensor::from_slice(&[4i64, 3, 2]), end: 0 }
    }

    fn training(latents: LatentKind, objective: ObjectiveConfig) -> Training {
        Training::new(
            Model::new(&TrainConfig { seed: 4, ..Default::default() }, &config(latents)),
            &objective,
        )
    }

    /// The gradient of the sum of one of the losses by the parameters of a network.
    fn gradient(training: &Training, loss: usize, network: usize, noise: u64) -> Vec<Tensor> {
        let losses = training.losses(&sentences(), &Noise::new(noise));
        let (_, parameters) = training.networks().swap_remove(network);
        let leaves: Vec<&Tensor> = parameters.tensors().iter().collect();
        Tensor::run_backward(&[losses[loss].sum(None::<Kind>)], &leaves, false, false)
    }

    fn gap(one: &[Tensor], other: &[Tensor]) -> f64 {
        one.iter().zip(other).map(|(a, b)| (a - b).abs().max().double_value(&[])).fold(0.0, f64::max)
    }

    /// Each kind of objective, estimator and latents gives finite gradients of both networks.
    #[test]
    fn every_estimator_trains_every_objective() {
        for kind in [ObjectiveKind::Bound, ObjectiveKind::Kl, ObjectiveKind::Renyi, ObjectiveKind::Power] {
            for (latents, estimator) in [
                (LatentKind::Gaussian, EstimatorKind::Reparametrized),
                (LatentKind::Gaussian, EstimatorKind::DoublyReparametrized),
                (LatentKind::Gaussian, EstimatorKind::Reinforce),
                (LatentKind::Categorical, EstimatorKind::Reinforce),
                (LatentKind::Categorical, EstimatorKind::Vimco),
            ] {
                let objective = ObjectiveConfig { kind, estimator, samples: 3, ..Default::default() };
                let training = training(latents, objective);
                for network in [0, 1] {
                    let found = gradient(&training, network, network, 5);
                    assert!(found.iter().all(|g| g.isfinite().all().int64_value(&[]) == 1));
                    assert!(
                        found.iter().any(|g| g.abs().max().double_value(&[]) > 1e-6),
                        "{kind:?} {estimator:?}"
                    );
                }
            }
        }
    }

    /// The decoder learns by the objective itself, whatever the estimator of the encoder's gradient is.
    #[test]
    fn the_decoders_gradient_is_no_matter_of_the_estimator() {
        let of = |estimator| {
            let objective =
                ObjectiveConfig { kind: ObjectiveKind::Renyi, estimator, samples: 4, ..Default::default() };
            gradient(&training(LatentKind::Gaussian, objective), 0, 0, 9)
        };
        let expected = of(EstimatorKind::Reparametrized);
        for estimator in [EstimatorKind::DoublyReparametrized, EstimatorKind::Reinforce, EstimatorKind::Vimco]
        {
            assert!(gap(&expected, &of(estimator)) < 1e-6, "{estimator:?}");
        }
    }

    /// Row V4: of one sample with the divergence in its closed form, objectives are those of the evidence lower bound.
    #[test]
    fn the_closed_form_is_that_of_a_variational_autoencoder() {
        let objective = ObjectiveConfig {
            kind: ObjectiveKind::Kl,
            information: 0.25,
            estimator: EstimatorKind::Reparametrized,
            samples: 1,
            analytic: true,
            ..Default::default()
        };
        let training = training(LatentKind::Gaussian, objective);
        let [value, surrogate, bound] = training.losses(&sentences(), &Noise::new(3));
        let kl = divergence(&training.model.encoder().posterior(&sentences()));
        // β-VAE with β = 1 − λ, above its bound by λ KL.
        let expected = &bound - &kl * 0.25;
        assert!((&value - &expected).abs().max().double_value(&[]) < 1e-5);
        assert!((&surrogate - &expected).abs().max().double_value(&[]) < 1e-5);
    }

    /// A sentence's losses do not depend on the sentences beside it, but for its place in the noise.
    #[test]
    fn bounds_are_of_each_sentence_by_itself() {
        let objective = ObjectiveConfig { samples: 5, ..Default::default() };
        let training = training(LatentKind::Gaussian, objective);
        let first = Sentences {
            ids: sentences().ids.narrow(0, 0, 1),
            lengths: sentences().lengths.narrow(0, 0, 1),
            end: 0,
        };
        let of = |sentences: &Sentences| {
            training.losses(sentences, &Noise::new(7)).map(|losses| losses.double_value(&[0]))
        };
        for (alone, beside) in of(&first).into_iter().zip(of(&sentences())) {
            assert!((alone - beside).abs() < 1e-5, "{alone} {beside}");
        }
    }
}
