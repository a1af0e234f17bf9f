//! What a step trains: encoder and decoder, each for an objective of its own whose gradients are those of one.

use segue_configs::TrainConfig;
use segue_engine::{Learner, Look, Loss, Tally, Turn};
use segue_kernels::libtorch::gradients;
use segue_kernels::noise::Noise;
use segue_kernels::{ParameterSpec, Parameters};
use tch::{Kind, Tensor};

use crate::codebook::Codebook;
use crate::estimator::Estimator;
use crate::keys::{DECODER, LatentConfig, ObjectiveConfig};
use crate::latents::Gaussian;
use crate::network::{Decoder, Encoder, LatentSizes, Masks, Posterior, Sentences};
use crate::scores::Scores;

/// Both networks over their parameters, and the codebook where latents are of one.
pub struct Model {
    /// What it is.
    pub config: LatentConfig,
    /// Vectors that latents may be.
    codebook: Option<Codebook>,
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
        let [decoder, encoder] =
            Self::specs(config).map(|(_, specs)| Parameters::initialise(specs, train.seed, Kind::Float));
        Self::over(config, decoder, encoder, train.seed)
    }

    /// A model with the given parameters. A codebook, if it has one, is initialised from `seed`.
    pub fn over(config: &LatentConfig, decoder: Parameters, encoder: Parameters, seed: u64) -> Self {
        let codebook = match config.sizes().latents {
            LatentSizes::Codebook { count, values, width } => {
                Some(Codebook::new([count, values, width], config.codebook_decay, seed))
            }
            LatentSizes::Gaussian { .. } | LatentSizes::Categorical { .. } => None,
        };
        Self { config: config.clone(), codebook, decoder, encoder }
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

    /// Scores of samples of `posterior`, of latents that are drawn, without dropout and without a graph.
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

    /// Its tables by name: see [`Learner::tables`].
    pub fn tables(&self) -> Vec<(String, Tensor)> {
        let tables = self.codebook.iter().flat_map(Codebook::tables);
        tables.map(|(name, table)| (name.to_string(), table)).collect()
    }

    /// What the decoder reads of latents that are drawn before any sentence is seen, one each: `[texts, 1, latents]`, or of vectors of a codebook their sum.
    pub fn prior(&self, texts: i64, noise: &Noise) -> Tensor {
        let of_values = |count: i64, values: i64| {
            (noise.uniform(&[texts, count]) * values as f64).to_kind(Kind::Int64).clamp_max(values - 1)
        };
        match self.config.sizes().latents {
            LatentSizes::Gaussian { count, .. } => noise.normal(&[texts, 1, count]),
            LatentSizes::Categorical { count, values, .. } => of_values(count, values).unsqueeze(1),
            LatentSizes::Codebook { count, values, .. } => {
                summed(&self.codebook().vectors(&of_values(count, values)))
            }
        }
    }

    /// What the decoder reads on the way from the first of two sentences to the second, as [`Self::prior`] has it, in `steps` steps: of normal latents what lies between
    /// their means; of others the likeliest values of one sentence, of which one after the other is changed to that of the other.
    pub fn between(&self, two: &Sentences, steps: usize) -> Tensor {
        let part = |step: usize| step as f64 / (steps.max(2) - 1) as f64;
        let mixed = |values: &Tensor| {
            let count = values.size()[1] as f64;
            let row = |step: usize| {
                let changed = Tensor::arange(count as i64, (Kind::Int64, values.device()));
                let changed = changed.lt((part(step) * count).round() as i64);
                values.get(1).where_self(&changed, &values.get(0))
            };
            Tensor::stack(&(0..steps).map(row).collect::<Vec<_>>(), 0)
        };
        tch::no_grad(|| match self.encoder().posterior(two) {
            Posterior::Gaussian(q) => {
                let [from, to] = [q.mean.get(0), q.mean.get(1)];
                let row = |step: usize| &from * (1.0 - part(step)) + &to * part(step);
                Tensor::stack(&(0..steps).map(row).collect::<Vec<_>>(), 0).unsqueeze(1)
            }
            Posterior::Categorical(q) => mixed(&q.logits.argmax(-1, false)).unsqueeze(1),
            Posterior::Codebook(states) => {
                let codebook = self.codebook();
                summed(&codebook.vectors(&mixed(&codebook.nearest(&states))))
            }
        })
    }

    /// The codebook of a model whose latents are vectors of one.
    pub fn codebook(&self) -> &Codebook {
        let Some(codebook) = &self.codebook else { unreachable!("asked of a model with a codebook alone") };
        codebook
    }

    /// What the decoder reads of `samples` draws from `posterior` each: `[sentences, samples, latents]`, or of vectors of a codebook, which are not drawn, their sum.
    pub fn draws(&self, posterior: &Posterior, samples: i64, noise: &Noise) -> Tensor {
        tch::no_grad(|| match (posterior, &self.codebook) {
            (Posterior::Codebook(states), Some(codebook)) => {
                let vectors = codebook.vectors(&codebook.nearest(states));
                summed(&vectors).expand([-1, samples, -1], false)
            }
            _ => drawn(posterior, samples, noise, None).z,
        })
    }
}

/// What the decoder reads of vectors, `[sentences, latents, width]`: `[sentences, 1, width]`.
fn summed(vectors: &Tensor) -> Tensor {
    vectors.sum_dim_intlist(1, true, None::<Kind>)
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
        Posterior::Codebook(_) => unreachable!("vectors of a codebook are not drawn"),
    }
}

/// KL(q(z | x) ‖ p(z)) of each variable, `[sentences, latents]`. Vectors of a codebook are sure, and as likely as any other before a sentence is seen.
pub fn divergences(posterior: &Posterior, config: &LatentConfig) -> Tensor {
    match posterior {
        Posterior::Gaussian(q) => q.kl(),
        Posterior::Categorical(q) => q.kl(),
        Posterior::Codebook(states) => {
            let rate = (config.latent_values as f64).ln();
            states.select(2, 0).full_like(rate)
        }
    }
}

/// KL(q(z | x) ‖ p(z)), `[sentences]`.
pub fn divergence(posterior: &Posterior, config: &LatentConfig) -> Tensor {
    divergences(posterior, config).sum_dim_intlist(1, false, None::<Kind>)
}

/// Weights of samples below this are taken for it: what hardly counts still tells its own gradient, and adds less than is rounded off.
const LEAST_WEIGHT: f64 = 1e-12;

/// Likelihoods whose gradients are known.
struct Differentiated {
    /// `[sentences, samples]`; their derivatives by what was read are there where it has a path.
    likelihood: Tensor,
    /// A zero, of each sentence as much, whose sum over sentences has the derivatives by the decoder's parameters of all likelihoods, weighed.
    by_parameters: Tensor,
}

/// The same values, from which gradients are taken where that is `wanted`.
fn as_leaf(values: &Tensor, wanted: bool) -> Tensor {
    values.detach().set_requires_grad(wanted)
}

/// Zeros with the derivatives of `values`.
fn without_value(values: Tensor) -> Tensor {
    &values - values.detach()
}

/// What is lowered in a micro-step, `[sentences]` each.
struct Losses {
    /// By the decoder.
    decoder: Tensor,
    /// By the encoder.
    encoder: Tensor,
    /// The bound −S that is reported.
    reported: Tensor,
    /// What the codebook learns from: see [`Codebook::uses`].
    uses: Vec<Tensor>,
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

    /// Those of step `step`.
    fn losses(&self, step: u64, sentences: &Sentences, noise: &Noise) -> Losses {
        match (self.model.encoder().posterior(sentences), &self.model.codebook) {
            (Posterior::Codebook(states), Some(codebook)) => {
                self.losses_of_codebook(codebook, &states, sentences, noise)
            }
            (posterior, _) => self.losses_of_samples(step, &posterior, sentences, noise),
        }
    }

    fn masks(&self, decoder: &Decoder, sentences: &Sentences, samples: i64, noise: &Noise) -> Masks {
        decoder.masks(sentences, samples, self.model.config.dropout(), noise)
    }

    fn losses_of_samples(
        &self,
        step: u64,
        posterior: &Posterior,
        sentences: &Sentences,
        noise: &Noise,
    ) -> Losses {
        let (own, counts) = (&self.objective, self.objective.counts());
        let (objective, estimator) = (own.objective(), own.estimator());
        let mut drawn = drawn(posterior, counts.drawn(), noise, Some(estimator));
        let mut pressing = drawn.ratio.shallow_clone();
        if own.analytic {
            let each = divergences(posterior, &self.model.config);
            let sum = |each: &Tensor| -each.sum_dim_intlist(1, true, None::<Kind>);
            (drawn.ratio, pressing) = (sum(&each), sum(&each.clamp_min(own.free_bits)));
        }
        let pressing = pressing * own.weight_of_divergence(step);
        let decoder = self.model.decoder();
        let masks = self.masks(&decoder, sentences, counts.drawn(), noise);
        let path = estimator.needs_paths().then_some(&drawn.z);
        let read = as_leaf(&drawn.z, path.is_some());
        let written = decoder.likelihood(sentences, &read, &masks);
        let scores = Scores { likelihood: as_leaf(&written, true), ratio: pressing.detach() };
        let value = objective.value(&scores, counts);
        let weights = Tensor::run_backward(&[value.sum(None::<Kind>)], &[&scores.likelihood], false, false);
        let Differentiated { likelihood, by_parameters } =
            self.differentiated(&written, &weights[0], path.map(|path| (&read, path)));
        let scores = Scores { likelihood, ratio: pressing };
        let surrogate = estimator.surrogate(objective, &scores, &drawn.density, counts);
        let scores = Scores { likelihood: written.detach(), ratio: drawn.ratio };
        let reported = tch::no_grad(|| scores.first(counts.bound).bound(1.0));
        let decoder = -(value.detach() + by_parameters);
        Losses { decoder, encoder: -surrogate, reported: -reported, uses: Vec::new() }
    }

    /// One backward pass through the decoder for both networks. Likelihoods `written`, `[sentences, samples]`, are independent of each other, so the gradient of one by
    /// its own latents is the weighted gradient divided by its weight. `read`: the latents as a leaf, and the same as a function of the encoder.
    fn differentiated(
        &self,
        written: &Tensor,
        weights: &Tensor,
        read: Option<(&Tensor, &Tensor)>,
    ) -> Differentiated {
        let parameters = self.model.decoder.tensors();
        let weights = weights.where_self(&weights.abs().ge(LEAST_WEIGHT), &weights.full_like(LEAST_WEIGHT));
        let inputs: Vec<&Tensor> = parameters.iter().chain(read.map(|(read, _)| read)).collect();
        let found = gradients(&[(written, &weights)], &inputs);
        let mut found = found.expect("the gradient of a likelihood that was just computed");
        let of_read = read.and_then(|_| found.pop().flatten());
        let of = |(parameter, gradient): (&Tensor, &Option<Tensor>)| {
            Some((parameter * gradient.as_ref()?).sum(None::<Kind>))
        };
        let by_parameters = parameters.iter().zip(&found).filter_map(of).sum::<Tensor>();
        let mut likelihood = written.detach();
        if let (Some(gradient), Some((_, path))) = (of_read, read) {
            let each = gradient / weights.view([weights.size()[0], weights.size()[1], 1]);
            likelihood += without_value((each * path).sum_dim_intlist(-1, false, None::<Kind>));
        }
        let sentences = written.size()[0] as f64;
        Differentiated { likelihood, by_parameters: without_value(by_parameters) / sentences }
    }

    /// Straight-through gradients for the encoder, and its commitment loss (van den Oord et al. 2017, eq. 3).
    fn losses_of_codebook(
        &self,
        codebook: &Codebook,
        states: &Tensor,
        sentences: &Sentences,
        noise: &Noise,
    ) -> Losses {
        let codes = codebook.nearest(states);
        let vectors = codebook.vectors(&codes);
        let off = states - &vectors;
        let decoder = self.model.decoder();
        let masks = self.masks(&decoder, sentences, 1, noise);
        let straight_through = summed(&(states - off.detach()));
        let read = as_leaf(&summed(&vectors), true);
        let written = decoder.likelihood(sentences, &read, &masks);
        let Differentiated { likelihood: by_path, by_parameters } =
            self.differentiated(&written, &written.ones_like(), Some((&read, &straight_through)));
        let (written, by_path) = (written.detach().squeeze_dim(1), by_path.squeeze_dim(1));
        let commitment = off.square().sum_dim_intlist([1i64, 2].as_slice(), false, None::<Kind>);
        let rate = self.model.config.latent_count as f64 * (self.model.config.latent_values as f64).ln();
        Losses {
            reported: rate - &written,
            decoder: -(written + by_parameters),
            encoder: commitment * self.objective.commitment - by_path,
            uses: codebook.uses(states, &codes).into(),
        }
    }

    /// What the encoder tells of a batch that the codebook is to begin at.
    fn states(&self, sentences: &Sentences) -> Tensor {
        match tch::no_grad(|| self.model.encoder().posterior(sentences)) {
            Posterior::Codebook(states) => states,
            _ => unreachable!("asked of a model with a codebook alone"),
        }
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
        Turn { networks: self.objective.networks(step), source: 0, nth: step }
    }

    /// A codebook is spread as what the encoder tells of the first batch.
    fn preparation(&self, round: u64) -> Option<Look> {
        (round == 0 && self.model.codebook.is_some()).then_some(Look { source: 0, nth: 1 })
    }

    fn look(&self, _: u64, batch: &Vec<Sentences>, micro_step: usize, _: &Noise) -> Tally {
        let states = self.states(&batch[micro_step]);
        Tally { weight: states.size()[0] as f64, statistics: Codebook::moments(&states) }
    }

    fn prepare(&mut self, _: u64, statistics: &[f64], weight: f64) {
        if let Some(codebook) = &mut self.model.codebook {
            codebook.begin(statistics, weight);
        }
    }

    fn start(&self, _: i64) {}

    /// Sums over sentences.
    fn loss(
        &self,
        turn: &Turn,
        batch: &Vec<Sentences>,
        micro_step: usize,
        (): &(),
        noise: &Noise,
    ) -> Loss<()> {
        let sentences = &batch[micro_step];
        let losses = self.losses(turn.nth, sentences, noise);
        let sum = |losses: &Tensor| losses.sum(None::<Kind>);
        let objective =
            |network: &usize| sum(if *network == DECODER { &losses.decoder } else { &losses.encoder });
        Loss {
            objectives: turn.networks.iter().map(objective).collect(),
            reported: sum(&losses.reported),
            weight: sentences.ids.size()[0] as f64,
            carry: (),
            statistics: losses.uses,
        }
    }

    fn tables(&self) -> Vec<(String, Tensor)> {
        self.model.tables()
    }

    fn updated(&mut self, _: &Turn, statistics: &[f64], _: f64) {
        if let Some(codebook) = &mut self.model.codebook {
            codebook.follow(statistics);
        }
    }
}

#[cfg(test)]
mod tests;
