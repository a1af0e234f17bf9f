//! What a step trains: the discriminator and the generator in turn.

use segue_configs::TrainConfig;
use segue_engine::{Learner, Look, Loss, Tally, Turn, by_group};
use segue_kernels::noise::Noise;
use segue_kernels::{ParameterSpec, Parameters};
use segue_layers::batch_norm::GroupMoments;
use segue_layers::weight_norm::{output_sums, start_by_data};
use tch::{Kind, Tensor};

use super::config::ComplementGanConfig;
use super::keys::{Fakes, ObjectiveConfig};
use super::losses;
use super::network::{Discriminator, Generator, Made, discriminator_specs, generator_specs, unit_scales};

/// Place of the discriminator among the networks, and number of the source it is trained on. First, because it is the model.
pub const DISCRIMINATOR: usize = 0;
/// The same of the generator.
pub const GENERATOR: usize = 1;

/// Fraction of a new batch in running moments.
const MOMENTUM: f64 = 0.1;

/// What one step trains on. Images are `[micro_steps, micro_batch, pixels]`, values in [0, 1].
pub struct ImageBatch {
    /// Images with labels; those of the generator's steps have none.
    pub labelled: Option<(Tensor, Tensor)>,
    /// Images without.
    pub unlabelled: Tensor,
    /// As many others, where they are what the discriminator is to know from the data.
    pub fakes: Option<Tensor>,
}

/// Discriminator and generator.
pub struct Players {
    /// Sizes and noise.
    pub config: ComplementGanConfig,
    objective: ObjectiveConfig,
    /// Images of a group.
    group: usize,
    discriminator: Parameters,
    generator: Parameters,
    /// Lengths of the discriminator's hidden weights, by layer.
    scales: Vec<Tensor>,
    /// Running moments of the generator's layers: `[units]` each.
    running: Vec<GroupMoments>,
}

/// Means of 0 and variances of 1.
fn fresh_moments(config: &ComplementGanConfig, parameters: &Parameters) -> Vec<GroupMoments> {
    let options = parameters.options();
    let fresh = |units: &usize| GroupMoments {
        mean: Tensor::zeros([*units as i64], options),
        variance: Tensor::ones([*units as i64], options),
    };
    config.generator_hidden.iter().map(fresh).collect()
}

impl Players {
    /// Fresh networks.
    pub fn new(train: &TrainConfig, config: &ComplementGanConfig, objective: &ObjectiveConfig) -> Self {
        let network = |specs: Vec<ParameterSpec>| Parameters::initialise(specs, train.seed, Kind::Float);
        let [discriminator, generator] = [discriminator_specs(config), generator_specs(config)].map(network);
        Self {
            objective: objective.clone(),
            group: train.group_size(),
            scales: unit_scales(config, &discriminator),
            running: fresh_moments(config, &generator),
            discriminator,
            generator,
            config: config.clone(),
        }
    }

    /// The parameters of each network, without making them.
    pub fn specs(config: &ComplementGanConfig) -> Vec<(&'static str, Vec<ParameterSpec>)> {
        vec![("discriminator", discriminator_specs(config)), ("generator", generator_specs(config))]
    }

    /// The discriminator.
    pub fn discriminator(&self) -> Discriminator<'_> {
        Discriminator { config: &self.config, parameters: &self.discriminator, scales: &self.scales }
    }

    fn generator(&self) -> Generator<'_> {
        Generator { config: &self.config, parameters: &self.generator }
    }

    /// As many images as the generator makes with running moments: `[count, pixels]`.
    pub fn generated(&self, count: i64, noise: &Noise) -> Tensor {
        let z = noise.uniform(&[1, count, self.config.noise_size as i64]);
        tch::no_grad(|| self.generator().make(&z, Some(&self.running)).images.squeeze_dim(0))
    }

    /// Images from noise, normalised within groups, of a micro-step of `count`.
    fn make(&self, count: i64, noise: &Noise) -> Made {
        let z = noise.uniform(&[count, self.config.noise_size as i64]);
        self.generator().make(&by_group(&z, self.group), None)
    }

    /// Fakes of a micro-step, `[micro_batch, pixels]`, and the moments of the generator's layers, where it has made them.
    fn fakes(
        &self,
        batch: &ImageBatch,
        micro_step: i64,
        count: i64,
        noise: &Noise,
    ) -> (Tensor, Vec<GroupMoments>) {
        match &batch.fakes {
            Some(fakes) => (fakes.get(micro_step), Vec::new()),
            None => {
                let made = tch::no_grad(|| self.make(count, noise));
                (made.images.view([count, -1]), made.moments)
            }
        }
    }

    /// Eq. 3.1 and 3.6, of the discriminator's turn.
    fn discriminator_loss(&self, batch: &ImageBatch, micro_step: i64, noise: &Noise) -> Loss<()> {
        let unlabelled = batch.unlabelled.get(micro_step);
        let count = unlabelled.size()[0];
        let Some((images, labels)) = &batch.labelled else {
            unreachable!("batches of the discriminator have labels");
        };
        let (images, labels) = (images.get(micro_step), labels.get(micro_step));
        let own = &self.objective;
        if own.fakes == Fakes::None {
            let seen = self.discriminator().see(&images, Some(noise));
            let mut objective = losses::labelled(&seen.logits, &labels);
            let reported = objective.detach();
            if own.entropy > 0.0 {
                let seen = self.discriminator().see(&unlabelled, Some(noise));
                // What is reported stays as it is: it shares memory with the first sum.
                objective =
                    &objective + losses::conditional_entropy(&seen.logits, own.entropy_over) * own.entropy;
            }
            return Loss {
                objectives: vec![objective],
                reported,
                weight: count as f64,
                carry: (),
                statistics: Vec::new(),
            };
        }
        let (fakes, moments) = self.fakes(batch, micro_step, count, noise);
        // No example of the discriminator depends on another: all are one batch.
        let logits =
            self.discriminator().see(&Tensor::cat(&[images, unlabelled, fakes], 0), Some(noise)).logits;
        let part = |index: i64| logits.narrow(0, index * count, count);
        let mut objective = losses::labelled(&part(0), &labels)
            + (losses::real(&part(1)) + losses::fake(&part(2))) * own.unsupervised;
        if own.entropy > 0.0 {
            objective += losses::conditional_entropy(&part(1), own.entropy_over) * own.entropy;
        }
        Loss {
            reported: objective.detach(),
            objectives: vec![objective],
            weight: count as f64,
            carry: (),
            statistics: self.statistics(&moments),
        }
    }

    /// The last terms of eq. 3.5, of the generator's turn.
    fn generator_loss(&self, batch: &ImageBatch, micro_step: i64, noise: &Noise) -> Loss<()> {
        let real = batch.unlabelled.get(micro_step);
        let count = real.size()[0];
        let made = self.make(count, noise);
        let features =
            |images: &Tensor| by_group(&self.discriminator().features(images, Some(noise)), self.group);
        // Nobody wants a gradient by way of the real ones.
        let of_real = tch::no_grad(|| features(&real));
        let (own, generated) = (&self.objective, features(&made.images.view([count, -1])));
        let mut objective = losses::feature_matching(&generated, &of_real, own.feature_distance);
        if own.pull_away > 0.0 {
            objective += losses::pull_away(&generated) * own.pull_away;
        }
        Loss {
            reported: objective.detach(),
            objectives: vec![objective],
            weight: count as f64,
            carry: (),
            statistics: self.statistics(&made.moments),
        }
    }

    /// Sums over images of the moments of their groups, which running ones are of.
    fn statistics(&self, moments: &[GroupMoments]) -> Vec<Tensor> {
        let group = self.group as f64;
        // Of a sample the variance of what it is drawn from is larger.
        let unbiased = group / (group - 1.0).max(1.0);
        let sums = |values: &Tensor, factor: f64| {
            (values.detach() * (factor * group)).sum_dim_intlist(0, false, Kind::Double)
        };
        moments.iter().flat_map(|of| [sums(&of.mean, 1.0), sums(&of.variance, unbiased)]).collect()
    }
}

impl Learner for Players {
    type Batch = ImageBatch;
    /// An image knows nothing of those before it.
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("discriminator", &self.discriminator), ("generator", &self.generator)]
    }

    /// A turn of the discriminator, then one of the generator, where there is use for one. Each has a source of its own.
    fn turn(&mut self, step: u64) -> Turn {
        let alone = self.objective.fakes != Fakes::Generator;
        match step % 2 {
            _ if alone => Turn { networks: vec![DISCRIMINATOR], source: DISCRIMINATOR, nth: step },
            1 => Turn { networks: vec![DISCRIMINATOR], source: DISCRIMINATOR, nth: step.div_ceil(2) },
            _ => Turn { networks: vec![GENERATOR], source: GENERATOR, nth: step / 2 },
        }
    }

    /// The first batch of images without labels, a hidden layer a round, then the scores.
    fn preparation(&self, round: u64) -> Option<Look> {
        let hidden = self.scales.len() as u64;
        (self.config.prepared && round <= hidden).then_some(Look { source: DISCRIMINATOR, nth: 1 })
    }

    fn look(&self, round: u64, batch: &ImageBatch, micro_step: usize, noise: &Noise) -> Tally {
        let images = batch.unlabelled.get(micro_step as i64);
        let mapped = self.discriminator().before_activation(round as usize, &images, noise);
        let (sums, weight) = output_sums(&mapped);
        Tally { statistics: vec![sums], weight }
    }

    fn prepare(&mut self, round: u64, statistics: &[f64], weight: f64) {
        let layer = round as usize;
        let (mut scale, mut bias) = (self.discriminator().scale(layer), self.discriminator().bias(layer));
        let (fitted, start) = start_by_data(&scale, &bias, (statistics, weight), 1.0);
        scale.copy_(&fitted);
        bias.copy_(&start);
    }

    fn start(&self, _: i64) {}

    fn loss(&self, turn: &Turn, batch: &ImageBatch, micro_step: usize, (): &(), noise: &Noise) -> Loss<()> {
        match turn.source {
            GENERATOR => self.generator_loss(batch, micro_step as i64, noise),
            _ => self.discriminator_loss(batch, micro_step as i64, noise),
        }
    }

    fn tables(&self) -> Vec<(String, Tensor)> {
        let scales = self.scales.iter().enumerate();
        let scales =
            scales.map(|(i, scale)| (format!("discriminator.layers.{i}.scale"), scale.shallow_clone()));
        let running = self.running.iter().enumerate().flat_map(|(i, moments)| {
            let of = |part: &str, values: &Tensor| {
                (format!("generator.layers.{i}.norm.running_{part}"), values.shallow_clone())
            };
            [of("mean", &moments.mean), of("var", &moments.variance)]
        });
        scales.chain(running).collect()
    }

    fn updated(&mut self, _: &Turn, statistics: &[f64], weight: f64) {
        let mut rest = statistics;
        for values in self.running.iter_mut().flat_map(|of| [&mut of.mean, &mut of.variance]) {
            let Some((own, after)) = rest.split_at_checked(values.numel()) else { return };
            let means: Vec<f32> = own.iter().map(|sum| (sum / weight) as f32).collect();
            tch::no_grad(|| {
                let moved = &*values * (1.0 - MOMENTUM) + Tensor::from_slice(&means) * MOMENTUM;
                values.copy_(&moved);
            });
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests;
