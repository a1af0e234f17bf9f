//! What a step trains: the discriminator and the generator in turn, the latter with its encoder.

use segue_configs::TrainConfig;
use segue_engine::{Learner, Look, Loss, Tally, Turn, by_group};
use segue_kernels::noise::Noise;
use segue_kernels::{ParameterSpec, Parameters};
use segue_layers::batch_norm::GroupMoments;
use segue_layers::weight_norm::{output_sums, start_by_data};
use tch::{Kind, Tensor};

use super::config::{ComplementGanConfig, NetworkKind};
use super::data::ImageBatch;
use super::keys::{Fakes, ObjectiveConfig};
use super::losses;
use super::low_density::LowDensity;
use super::network::{Moments, Network, Passed, fresh_moments, unit_scales};
use super::plan::{Map, Plan};

/// Place of the discriminator among the networks, and number of the source it is trained on. First, because it is the model.
pub const DISCRIMINATOR: usize = 0;
/// The same of the generator.
pub const GENERATOR: usize = 1;
/// Place of the encoder, which learns in the generator's turns.
pub const ENCODER: usize = 2;

/// Fraction of a new batch in running moments.
const MOMENTUM: f64 = 0.1;

/// A network, and what of it no step trains.
pub struct Player {
    plan: Plan,
    parameters: Parameters,
    /// Lengths of hidden weights, by map.
    scales: Vec<Tensor>,
    /// Running moments of batch norms: `[features]` each.
    running: Vec<GroupMoments>,
}

impl Player {
    /// Over parameters of `plan`, with fresh tables.
    pub fn new(plan: Plan, parameters: Parameters) -> Self {
        let (scales, running) = (unit_scales(&plan, &parameters), fresh_moments(&plan, &parameters));
        Self { plan, parameters, scales, running }
    }

    /// The network.
    pub fn network(&self) -> Network<'_> {
        Network { plan: &self.plan, parameters: &self.parameters, scales: &self.scales }
    }

    /// Its running moments.
    pub fn running(&self) -> &[GroupMoments] {
        &self.running
    }

    fn forward(&self, x: &Tensor, moments: Moments) -> Passed {
        self.network().forward(x, None, moments)
    }

    /// Its tables by name.
    pub fn tables(&self) -> Vec<(String, Tensor)> {
        let maps = self.plan.maps().filter(|(_, map)| !map.trains_scale);
        let scales = maps.zip(&self.scales);
        let scales = scales.map(|((_, map), scale)| (format!("{}.scale", map.name), scale.shallow_clone()));
        let norms = self.plan.norms().zip(&self.running).flat_map(|((name, _), moments)| {
            let of =
                |part: &str, values: &Tensor| (format!("{name}.norm.running_{part}"), values.shallow_clone());
            [of("mean", &moments.mean), of("var", &moments.variance)]
        });
        scales.chain(norms).collect()
    }

    /// Moves running moments by the `sums` of a batch over `weight` images; what is left of them is another's.
    fn follow<'a>(&mut self, mut sums: &'a [f64], weight: f64) -> &'a [f64] {
        for values in self.running.iter_mut().flat_map(|of| [&mut of.mean, &mut of.variance]) {
            let Some((own, after)) = sums.split_at_checked(values.numel()) else { break };
            let means: Vec<f32> = own.iter().map(|sum| (sum / weight) as f32).collect();
            tch::no_grad(|| {
                let moved = &*values * (1.0 - MOMENTUM) + Tensor::from_slice(&means) * MOMENTUM;
                values.copy_(&moved);
            });
            sums = after;
        }
        sums
    }
}

/// All that learn.
pub struct Players {
    /// Numbers that an image is generated from.
    noise_size: i64,
    /// Whether they start by data.
    prepared: bool,
    /// Whether what ends the generator and the encoder starts by data too.
    prepares_ends: bool,
    objective: ObjectiveConfig,
    /// Images of a group.
    group: usize,
    /// The discriminator, then the generator and the encoder of a run that trains them.
    all: Vec<Player>,
    /// What keeps generated images out of dense regions.
    density: Option<LowDensity>,
}

impl Players {
    /// Fresh networks.
    pub fn new(train: &TrainConfig, config: &ComplementGanConfig, objective: &ObjectiveConfig) -> Self {
        let player = |(_, plan): (&str, Plan)| {
            let parameters = Parameters::initialise(plan.specs(), train.seed, Kind::Float);
            Player::new(plan, parameters)
        };
        Self {
            noise_size: config.noise_size as i64,
            prepared: config.prepared,
            prepares_ends: config.network == NetworkKind::Convolutional
                && objective.fakes == Fakes::Generator,
            objective: objective.clone(),
            group: train.group_size(),
            all: plans(config, objective).into_iter().map(player).collect(),
            density: None,
        }
    }

    /// The same, whose generator keeps out of dense regions.
    pub fn with_density(self, density: Option<LowDensity>) -> Self {
        Self { density, ..self }
    }

    /// The parameters of each network, without making them.
    pub fn specs(
        config: &ComplementGanConfig,
        objective: &ObjectiveConfig,
    ) -> Vec<(&'static str, Vec<ParameterSpec>)> {
        plans(config, objective).into_iter().map(|(name, plan)| (name, plan.specs())).collect()
    }

    /// The discriminator.
    pub fn discriminator(&self) -> Network<'_> {
        self.all[DISCRIMINATOR].network()
    }

    /// What keeps generated images out of dense regions.
    pub fn density(&self) -> Option<&LowDensity> {
        self.density.as_ref()
    }

    /// As many images as the generator makes with running moments: `[count, pixels]`.
    pub fn generated(&self, count: i64, noise: &Noise) -> Tensor {
        let (z, generator) = (noise.uniform(&[count, self.noise_size]), &self.all[GENERATOR]);
        tch::no_grad(|| generator.forward(&z, Moments::Running(&generator.running)).states)
    }

    /// What the generator makes of `z`, `[images, noise_size]`, normalised within groups.
    fn make(&self, z: &Tensor, group: usize) -> Passed {
        self.all[GENERATOR].forward(z, Moments::OfGroups(group))
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
                let z = noise.uniform(&[count, self.noise_size]);
                let made = tch::no_grad(|| self.make(&z, self.group));
                (made.states, made.moments)
            }
        }
    }

    /// The discriminator's turn.
    fn discriminator_loss(&self, batch: &ImageBatch, micro_step: i64, noise: &Noise) -> Loss<()> {
        let unlabelled = batch.unlabelled.get(micro_step);
        let count = unlabelled.size()[0];
        let Some((images, labels)) = &batch.labelled else {
            unreachable!("batches of the discriminator have labels");
        };
        let labelled = (images.get(micro_step), labels.get(micro_step));
        let (fakes, moments) = match self.objective.fakes {
            Fakes::None => (None, Vec::new()),
            _ => {
                let (fakes, moments) = self.fakes(batch, micro_step, count, noise);
                (Some(fakes), moments)
            }
        };
        let (objective, reported) =
            self.discriminator_objective(&labelled, &unlabelled, fakes.as_ref(), Some(noise));
        loss(vec![objective], reported, count, self.statistics(&moments))
    }

    /// Eq. 3.1 and 3.6: what is trained for and what is reported, as sums over images. Of images without labels and of fakes there are as many as of labelled ones.
    fn discriminator_objective(
        &self,
        (images, labels): &(Tensor, Tensor),
        unlabelled: &Tensor,
        fakes: Option<&Tensor>,
        noise: Option<&Noise>,
    ) -> (Tensor, Tensor) {
        let (own, count) = (&self.objective, unlabelled.size()[0]);
        let Some(fakes) = fakes else {
            let seen = self.discriminator().see(images, noise);
            let objective = losses::labelled(&seen.logits, labels);
            let reported = objective.detach();
            if own.entropy == 0.0 {
                return (objective, reported);
            }
            let seen = self.discriminator().see(unlabelled, noise);
            let entropy = losses::conditional_entropy(&seen.logits, own.entropy_over) * own.entropy;
            // What is reported stays as it is: it shares memory with the first sum.
            return (&objective + entropy, reported);
        };
        // No example of the discriminator depends on another: all are one batch.
        let logits = self.discriminator().see(&Tensor::cat(&[images, unlabelled, fakes], 0), noise).logits;
        let part = |index: i64| logits.narrow(0, index * count, count);
        let objective = losses::labelled(&part(0), labels)
            + (losses::real(&part(1)) + losses::fake(&part(2))) * own.unsupervised;
        let reported = objective.detach();
        if own.entropy == 0.0 {
            return (objective, reported);
        }
        let entropy = losses::conditional_entropy(&part(1), own.entropy_over) * own.entropy;
        (&objective + entropy, reported)
    }

    /// The generator's turn.
    fn generator_loss(&self, batch: &ImageBatch, micro_step: i64, nth: u64, noise: &Noise) -> Loss<()> {
        let real = batch.unlabelled.get(micro_step);
        let count = real.size()[0];
        let z = noise.uniform(&[count, self.noise_size]);
        let (mut objectives, statistics) = self.generator_objectives(&real, &z, Some(noise));
        if let Some(density) = self.density.as_ref().filter(|density| density.is_of(nth)) {
            objectives[0] += self.excess_density(density, count, noise) * self.objective.low_density;
        }
        let reported = objectives[0].detach();
        loss(objectives, reported, count, statistics)
    }

    /// Eq. 3.5 but for its density, of each network of the generator's turn, as sums over images; and the sums of moments.
    fn generator_objectives(
        &self,
        real: &Tensor,
        z: &Tensor,
        noise: Option<&Noise>,
    ) -> (Vec<Tensor>, Vec<Tensor>) {
        let own = &self.objective;
        let made = self.make(z, self.group);
        let features = |images: &Tensor| by_group(&self.discriminator().features(images, noise), self.group);
        // Feature matching moves generated features alone.
        let of_real = tch::no_grad(|| features(real));
        let generated = features(&made.states);
        let mut objective = losses::feature_matching(&generated, &of_real, own.feature_distance);
        if own.pull_away > 0.0 {
            objective += losses::pull_away(&generated) * own.pull_away;
        }
        let mut statistics = self.statistics(&made.moments);
        let Some(encoder) = self.all.get(ENCODER) else { return (vec![objective], statistics) };
        let encoded = encoder.forward(&made.states, Moments::OfGroups(self.group));
        statistics.extend(self.statistics(&encoded.moments));
        let halves = encoded.states.chunk(2, 1);
        // Deviations stay below 1, so that the bound has a least value.
        let log_std = losses::softplus(&halves[1]).neg();
        let entropy = losses::input_entropy(z, &halves[0], &log_std) * own.input_entropy;
        // Of the generator's objective the encoder has an effect on this term alone.
        (vec![objective + &entropy, entropy], statistics)
    }

    /// Eq. 3.4 of images that are generated for it, of each group by itself: the mean over those above the threshold, times the images of the group.
    fn excess_density(&self, density: &LowDensity, count: i64, noise: &Noise) -> Tensor {
        let images = self.objective.density_images;
        let of_group = |_| {
            let z = noise.uniform(&[images as i64, self.noise_size]);
            let (excess, above) = density.excess(&self.make(&z, images).states);
            excess / above.clamp_min(1.0) * self.group as f64
        };
        (0..count / self.group as i64).map(of_group).sum()
    }

    /// Sums over images of the moments of their groups, which running ones are of.
    fn statistics(&self, moments: &[GroupMoments]) -> Vec<Tensor> {
        let sums = |values: &Tensor, factor: f64| {
            (values.detach() * (factor * self.group as f64)).sum_dim_intlist(0, false, Kind::Double)
        };
        // The variance of a sample is below that of what it is drawn from.
        let unbiased = |values: f64| values / (values - 1.0).max(1.0);
        let of = |of: &GroupMoments| [sums(&of.mean, 1.0), sums(&of.variance, unbiased(of.values as f64))];
        moments.iter().flat_map(of).collect()
    }

    /// Which network a round of the start by data is of, and which of its maps: the discriminator's in turn, then what ends the others.
    fn start_of(&self, round: u64) -> Option<(usize, usize)> {
        let maps = self.all[DISCRIMINATOR].plan.maps().count() as u64;
        match round.checked_sub(maps) {
            _ if !self.prepared => None,
            None => Some((DISCRIMINATOR, round as usize)),
            Some(of_ends) if self.prepares_ends => {
                let player = GENERATOR + of_ends as usize;
                (player < self.all.len()).then_some((player, 0))
            }
            Some(_) => None,
        }
    }

    fn map(&self, player: usize, index: usize) -> &Map {
        match self.all[player].plan.maps().nth(index) {
            Some((_, map)) => map,
            None => unreachable!("rounds are of maps that are there"),
        }
    }
}

/// The loss of a micro-step of `count` images.
fn loss(objectives: Vec<Tensor>, reported: Tensor, count: i64, statistics: Vec<Tensor>) -> Loss<()> {
    Loss { objectives, reported, weight: count as f64, carry: (), statistics }
}

/// The networks that learn, in their places.
fn plans(config: &ComplementGanConfig, objective: &ObjectiveConfig) -> Vec<(&'static str, Plan)> {
    let mut all = vec![("discriminator", Plan::discriminator(config))];
    if objective.fakes == Fakes::Generator {
        all.push(("generator", Plan::generator(config)));
        if objective.input_entropy > 0.0 {
            all.push(("encoder", Plan::encoder(config)));
        }
    }
    all
}

/// Names of the networks, in their places.
const NAMES: [&str; 3] = ["discriminator", "generator", "encoder"];

impl Learner for Players {
    type Batch = ImageBatch;
    /// An image knows nothing of those before it.
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        NAMES.into_iter().zip(self.all.iter().map(|player| &player.parameters)).collect()
    }

    /// A turn of the discriminator, then one of the generator, where there is use for one. Each has a source of its own.
    fn turn(&mut self, step: u64) -> Turn {
        let alone = self.objective.fakes != Fakes::Generator;
        match step % 2 {
            _ if alone => Turn { networks: vec![DISCRIMINATOR], source: DISCRIMINATOR, nth: step },
            1 => Turn { networks: vec![DISCRIMINATOR], source: DISCRIMINATOR, nth: step.div_ceil(2) },
            _ => Turn { networks: (GENERATOR..self.all.len()).collect(), source: GENERATOR, nth: step / 2 },
        }
    }

    /// The first batch of images without labels, a map a round.
    fn preparation(&self, round: u64) -> Option<Look> {
        self.start_of(round).map(|_| Look { source: DISCRIMINATOR, nth: 1 })
    }

    fn look(&self, round: u64, batch: &ImageBatch, micro_step: usize, noise: &Noise) -> Tally {
        let images = batch.unlabelled.get(micro_step as i64);
        let made = || {
            let z = noise.uniform(&[images.size()[0], self.noise_size]);
            (self.make(&z, self.group).states, z)
        };
        let groups = Moments::OfGroups(self.group);
        let mapped = match self.start_of(round) {
            Some((DISCRIMINATOR, map)) => self.discriminator().mapped(map, &images, Some(noise), groups),
            Some((GENERATOR, map)) => self.all[GENERATOR].network().mapped(map, &made().1, None, groups),
            Some((player, map)) => self.all[player].network().mapped(map, &made().0, None, groups),
            None => return Tally { statistics: Vec::new(), weight: 0.0 },
        };
        let (sums, weight) = output_sums(&mapped);
        Tally { statistics: vec![sums], weight }
    }

    fn prepare(&mut self, round: u64, statistics: &[f64], weight: f64) {
        let Some((player, index)) = self.start_of(round) else { return };
        let (map, network) = (self.map(player, index), self.all[player].network());
        let (mut scale, mut bias) = (network.scale(map), network.bias(map));
        let (fitted, start) = start_by_data(&scale, &bias, (statistics, weight), map.start);
        scale.copy_(&fitted);
        bias.copy_(&start);
    }

    fn start(&self, _: i64) {}

    fn loss(&self, turn: &Turn, batch: &ImageBatch, micro_step: usize, (): &(), noise: &Noise) -> Loss<()> {
        match turn.source {
            GENERATOR => self.generator_loss(batch, micro_step as i64, turn.nth, noise),
            _ => self.discriminator_loss(batch, micro_step as i64, noise),
        }
    }

    fn tables(&self) -> Vec<(String, Tensor)> {
        self.all.iter().flat_map(Player::tables).collect()
    }

    /// The discriminator has no moments; what the generator has made has some in both turns, the encoder's come after them.
    fn updated(&mut self, _: &Turn, statistics: &[f64], weight: f64) {
        self.all.iter_mut().fold(statistics, |rest, player| player.follow(rest, weight));
    }
}

#[cfg(test)]
mod tests;
