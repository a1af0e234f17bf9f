//! The two networks, and what each of them is trained to lower. Equations are numbered as in `README.md`.

use segue_configs::TrainConfig;
use segue_engine::{Learner, Look, Loss, Tally, Turn, by_group};
use segue_kernels::noise::Noise;
use segue_kernels::{Init, ParameterSpec, Parameters};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

use super::config::MomentGameConfig;

/// Place of the generator among the networks, and number of the source it is trained on. First, because it is the model.
pub const GENERATOR: usize = 0;
/// The same of the critic.
pub const CRITIC: usize = 1;

/// Standard deviation of the generator's first weights: at 0 the generator has no gradient.
const START: f64 = 0.5;

/// Of the length of a vector, what keeps it from vanishing with V.
const LEFT_OVER: f64 = 1e-12;

/// Generator and critic.
pub struct Players {
    config: MomentGameConfig,
    /// Vectors of a group.
    group: usize,
    generator: Parameters,
    critic: Parameters,
    /// v of eq. 7, of length 1: `[size]`. A table: no gradient moves it, and it is not made of sums.
    direction: Tensor,
    seen: Seen,
}

/// The data trained on so far. What is neither a weight nor a lane's is the state of the learner: every rank makes it of the
/// same sums, and checkpoints hold it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Seen {
    count: f64,
    sum: Vec<f64>,
}

/// A and b of eq. 1.
fn generator(game: &MomentGameConfig) -> Vec<ParameterSpec> {
    let size = game.size as i64;
    let start = Init::Normal { mean: 0.0, std: START };
    vec![spec("generator.weight", &[size, size], start), spec("generator.bias", &[size], Init::Zeros)]
}

/// u and V of eq. 2.
fn critic(game: &MomentGameConfig) -> Vec<ParameterSpec> {
    let size = game.size as i64;
    vec![spec("critic.linear", &[size], Init::Zeros), spec("critic.quadratic", &[size, size], Init::Zeros)]
}

fn spec(name: &str, shape: &[i64], init: Init) -> ParameterSpec {
    ParameterSpec { name: name.into(), shape: shape.to_vec(), init }
}

impl Players {
    /// Fresh networks.
    pub fn new(train: &TrainConfig, game: &MomentGameConfig) -> Self {
        let network = |specs: Vec<ParameterSpec>| Parameters::initialise(specs, train.seed, Kind::Float);
        Self {
            generator: network(generator(game)),
            critic: network(critic(game)),
            direction: unit(&Tensor::from_slice(&vec![1f32; game.size])),
            seen: Seen { count: 0.0, sum: vec![0.0; game.size] },
            group: train.group_size(),
            config: game.clone(),
        }
    }

    /// The parameters of each network, without making them.
    pub fn specs(game: &MomentGameConfig) -> Vec<(&'static str, Vec<ParameterSpec>)> {
        vec![("generator", generator(game)), ("critic", critic(game))]
    }

    /// G(z), eq. 1; `z`: `[batch, size]`, returns likewise.
    fn generate(&self, z: &Tensor) -> Tensor {
        z.matmul(&self.generator.get("generator.weight").tr()) + self.generator.get("generator.bias")
    }

    /// D(x), eq. 2; `x`: `[batch, size]`, returns `[batch]`.
    fn score(&self, x: &Tensor) -> Tensor {
        let x = x - self.centre();
        let quadratic = (x.matmul(&self.quadratic()) * &x).sum_dim_intlist(1, false, None);
        x.matmul(&self.critic.get("critic.linear")) + quadratic * 0.5
    }

    /// V of eq. 2, `[size, size]`, whose largest singular value is held to the bound, eq. 7.
    fn quadratic(&self) -> Tensor {
        let (v, bound) = (self.critic.get("critic.quadratic"), self.config.spectral_bound);
        if bound == 0.0 {
            return v.shallow_clone();
        }
        // Both vectors are held fixed: the value is linear in V, so that there is a gradient where V is 0.
        let left = unit(&v.detach().mv(&self.direction));
        let sigma = left.dot(&v.mv(&self.direction));
        v * (bound / sigma.clamp_min(bound))
    }

    /// One step of power iteration, eq. 7.
    fn turn_direction(&mut self) {
        tch::no_grad(|| {
            let v = self.critic.get("critic.quadratic");
            let turned = v.tr().mv(&v.mv(&self.direction)) + &self.direction * LEFT_OVER;
            self.direction.copy_(&unit(&turned));
        });
    }

    /// ν/2 Σ n |m − m'|² of eq. 6 over the groups of a micro-step, n vectors each; `data`, `made`: `[micro_batch, size]`; scalar.
    fn mismatch(&self, data: &Tensor, made: &Tensor) -> Tensor {
        let means = |x: &Tensor| by_group(x, self.group).mean_dim(1, false, None); // [groups, size]
        (means(data) - means(made)).square().sum(None) * (self.config.matching / 2.0 * self.group as f64)
    }

    /// c of eq. 2, the mean of the data so far: `[size]`.
    fn centre(&self) -> Tensor {
        let count = self.seen.count.max(1.0);
        let mean: Vec<f32> = self.seen.sum.iter().map(|sum| (sum / count) as f32).collect();
        Tensor::from_slice(&mean)
    }

    /// λ/2 (|u|² + |V|²) of eq. 4; scalar.
    fn penalty(&self) -> Tensor {
        let squares = |w: &Tensor| w.square().sum(None);
        let [u, v] = [0, 1].map(|i| squares(&self.critic.tensors()[i]));
        (u + v) * (self.config.penalty / 2.0)
    }

    /// Mean `b`, `[size]`, and covariance `A Aᵀ`, `[size, size]`, of what the generator makes; f64.
    pub fn moments(&self) -> (Tensor, Tensor) {
        let of = |name| self.generator.get(name).detach().to_kind(Kind::Double);
        let weight = of("generator.weight");
        (of("generator.bias"), weight.matmul(&weight.tr()))
    }

    /// Length of all weights of the critic together.
    pub fn critic_norm(&self) -> f64 {
        let squares = |w: &Tensor| w.detach().square().sum(Kind::Double).double_value(&[]);
        self.critic.tensors().iter().map(squares).sum::<f64>().sqrt()
    }
}

/// `x` with length 1; 0 stays 0.
fn unit(x: &Tensor) -> Tensor {
    x / x.norm().clamp_min(f64::from(f32::MIN_POSITIVE))
}

impl Learner for Players {
    /// Data: `[micro_steps, micro_batch, size]`.
    type Batch = Tensor;
    /// A vector knows nothing of those before it.
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("generator", &self.generator), ("critic", &self.critic)]
    }

    /// Rounds of `critic_steps` turns of the critic and one of the generator. Each has a source of its own, of which it takes
    /// one batch after another.
    fn turn(&mut self, step: u64) -> Turn {
        let critic_steps = self.config.critic_steps;
        let (round, place) = ((step - 1) / (critic_steps + 1), (step - 1) % (critic_steps + 1));
        match place {
            _ if critic_steps == 0 => {
                Turn { networks: vec![GENERATOR, CRITIC], source: GENERATOR, nth: step }
            }
            _ if place < critic_steps => {
                Turn { networks: vec![CRITIC], source: CRITIC, nth: round * critic_steps + place + 1 }
            }
            _ => Turn { networks: vec![GENERATOR], source: GENERATOR, nth: round + 1 },
        }
    }

    /// The first batch of the generator's source.
    fn preparation(&self, round: u64) -> Option<Look> {
        (self.config.prepared && round == 0).then_some(Look { source: GENERATOR, nth: 1 })
    }

    /// Sums of the coordinates of data, then of their squares.
    fn look(&self, _: u64, batch: &Tensor, micro_step: usize, _: &Noise) -> Tally {
        let data = batch.get(micro_step as i64).to_kind(Kind::Double); // [micro_batch, size]
        let sum = |x: &Tensor| x.sum_dim_intlist(0, false, None);
        Tally { statistics: vec![sum(&data), sum(&data.square())], weight: data.size()[0] as f64 }
    }

    /// b becomes the mean of the data, A the diagonal of their standard deviations.
    fn prepare(&mut self, _: u64, statistics: &[f64], weight: f64) {
        let moments: Vec<f64> = statistics.iter().map(|sum| sum / weight).collect();
        let (means, squares) = moments.split_at(self.config.size);
        let spreads: Vec<f64> =
            means.iter().zip(squares).map(|(mean, square)| (square - mean * mean).max(0.0).sqrt()).collect();
        let set = |name, values: Tensor| self.generator.get(name).shallow_clone().copy_(&values);
        set("generator.bias", Tensor::from_slice(means));
        set("generator.weight", Tensor::from_slice(&spreads).diag(0));
    }

    fn start(&self, _: i64) {}

    /// Eq. 3, 4 and 6 as sums over the vectors of a micro-step. The gap is reported in every turn, so that a mean loss over
    /// turns means something.
    fn loss(&self, turn: &Turn, batch: &Tensor, micro_step: usize, (): &(), noise: &Noise) -> Loss<()> {
        let data = batch.get(micro_step as i64); // [micro_batch, size]
        let made = self.generate(&noise.normal(&data.size()));
        let gap = (self.score(&data) - self.score(&made)).sum(None);
        let weight = data.size()[0] as f64;
        let objective = |&network: &usize| match network {
            GENERATOR if self.config.matching > 0.0 => &gap + self.mismatch(&data, &made),
            GENERATOR => gap.shallow_clone(),
            _ => self.penalty() * weight - &gap,
        };
        Loss {
            objectives: turn.networks.iter().map(objective).collect(),
            reported: gap.detach(),
            weight,
            carry: (),
            statistics: vec![data.sum_dim_intlist(0, false, Kind::Double)],
        }
    }

    fn tables(&self) -> Vec<(String, Tensor)> {
        let direction = (self.config.spectral_bound > 0.0).then(|| self.direction.shallow_clone());
        direction.into_iter().map(|table| ("critic.direction".into(), table)).collect()
    }

    fn updated(&mut self, turn: &Turn, statistics: &[f64], weight: f64) {
        if self.config.spectral_bound > 0.0 && turn.networks.contains(&CRITIC) {
            self.turn_direction();
        }
        self.seen.count += weight;
        self.seen.sum.iter_mut().zip(statistics).for_each(|(sum, more)| *sum += more);
    }

    fn state(&self) -> Value {
        json!(self.seen)
    }

    fn restore(&mut self, state: &Value) -> bool {
        match Seen::deserialize(state) {
            Ok(seen) if seen.sum.len() == self.config.size => {
                self.seen = seen;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(critic_steps: u64) -> Vec<(Vec<usize>, usize, u64)> {
        let config = segue_testing::models::<crate::MomentGameConfig>().load(None, &[]).unwrap().config;
        let game = MomentGameConfig { critic_steps, ..Default::default() };
        let mut players = Players::new(&config.train, &game);
        let turn = |step| {
            let Turn { networks, source, nth } = players.turn(step);
            (networks, source, nth)
        };
        (1..=7).map(turn).collect()
    }

    #[test]
    fn turns_go_in_rounds_and_number_the_batches_of_each_source() {
        let (critic, generator) = (|nth| (vec![1], 1, nth), |nth| (vec![0], 0, nth));
        assert_eq!(
            turns(2),
            [critic(1), critic(2), generator(1), critic(3), critic(4), generator(2), critic(5)]
        );
        assert_eq!(turns(0), (1..=7).map(|nth| (vec![0, 1], 0, nth)).collect::<Vec<_>>());
    }

    #[test]
    fn state_of_vectors_of_another_size_is_refused() {
        let config = segue_testing::models::<crate::MomentGameConfig>().load(None, &[]).unwrap().config;
        let mut players = Players::new(&config.train, &MomentGameConfig::default());
        assert!(players.restore(&json!({ "count": 2.0, "sum": [1.0, 2.0, 3.0] })));
        assert_eq!(Vec::<f32>::try_from(players.centre()).unwrap(), [0.5, 1.0, 1.5]);
        for other in [json!(null), json!({ "count": 2.0, "sum": [1.0] }), json!({ "count": 2.0 })] {
            assert!(!players.restore(&other), "{other}");
        }
        assert_eq!(players.state(), json!({ "count": 2.0, "sum": [1.0, 2.0, 3.0] }));
    }

    fn bounded(bound: &str, v: &[f32; 4]) -> Players {
        let keys = ["model.size=2".into(), format!("model.spectral_bound={bound}")];
        let config = segue_testing::models::<crate::MomentGameConfig>().load(None, &keys).unwrap().config;
        let players = Players::new(&config.train, config.model.get().unwrap());
        let v = Tensor::from_slice(v).view([2, 2]);
        tch::no_grad(|| players.critic.get("critic.quadratic").shallow_clone().copy_(&v));
        players
    }

    /// Largest difference of the values of two tensors.
    fn distance(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    /// The singular values of V = ((3, 4), (0, 5)) are 3 √5 and √5, as those of VᵀV = ((9, 12), (12, 41)) are 45 and 5: a factor of 9 a step. The first
    /// direction is (1, 1), the right one (1, 3).
    #[test]
    fn power_iteration_finds_the_largest_singular_value_and_the_bound_holds_it() {
        let v = [3.0, 4.0, 0.0, 5.0];
        let mut players = bounded("1.5", &v);
        let raw = players.critic.get("critic.quadratic").detach();
        (0..12).for_each(|_| players.turn_direction());
        let expected = &raw * (1.5 / 45f64.sqrt());
        // Single precision, of values below 2.
        assert!(distance(&players.quadratic().detach(), &expected) < 1e-6);
        let right = Tensor::from_slice(&[0.1f32.sqrt(), 0.9f32.sqrt()]);
        assert!(distance(&players.direction, &right) < 1e-6, "{:?}", players.direction);
        // What is within the bound stays as it is, bit by bit.
        let mut within = bounded("7", &v);
        (0..12).for_each(|_| within.turn_direction());
        assert!(within.quadratic().detach().equal(&raw));
    }

    #[test]
    fn a_form_of_zeros_has_a_gradient_and_leaves_the_direction() {
        let mut players = bounded("0.1", &[0.0; 4]);
        let before = players.direction.copy();
        players.turn_direction();
        assert!(distance(&players.direction, &before) < 1e-6);
        let x = Tensor::from_slice(&[1f32, 2.0]).view([1, 2]);
        players.score(&x).sum(None).backward();
        // ½ x xᵀ.
        let expected = Tensor::from_slice(&[0.5f32, 1.0, 1.0, 2.0]).view([2, 2]);
        assert!(players.critic.get("critic.quadratic").grad().equal(&expected));
    }
}
