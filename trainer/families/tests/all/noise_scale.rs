//! The gradient noise scale of a problem whose noise is known.

use segue_collectives::local::Local;
use segue_configs::Config;
use segue_engine::optim::NoiseEstimate;
use segue_engine::{Engine, Learner, Loss, Turn};
use segue_kernels::noise::Noise;
use segue_kernels::{Init, ParameterSpec, Parameters, libtorch};
use tch::Kind;

/// Weights.
const SIZE: i64 = 8;
/// Every weight's mean gradient, and the standard deviation of a target's: |G|² is 0.5, tr Σ is 8.
const MEAN: f64 = 0.25;
const DEVIATION: f64 = 1.0;

/// The loss of a target is w · x, with x drawn from a normal distribution: x is its gradient, whatever the weights.
struct Linear {
    parameters: Parameters,
    /// Whether micro-steps have 1, 2, 3, .. targets instead of four each.
    uneven: bool,
}

impl Learner for Linear {
    type Batch = ();
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("linear", &self.parameters)]
    }

    fn start(&self, _: i64) {}

    fn loss(&self, _: &Turn, _: &(), micro_step: usize, (): &(), noise: &Noise) -> Loss<()> {
        let targets = if self.uneven { micro_step as i64 + 1 } else { 4 };
        let x = noise.normal(&[targets, SIZE]) * DEVIATION + MEAN;
        Loss::of(x.matmul(&self.parameters.get("w")).sum(Kind::Float), targets as f64, None, ())
    }
}

fn config(every: u64) -> Config {
    let keys = ["train.lanes=32", "train.micro_batch=4", "schedule.kind=constant"].map(str::to_string);
    let every = format!("log.noise_scale_every={every}");
    segue_families::MODELS.load(None, &[&keys[..], &[every]].concat()).unwrap().config
}

fn estimates(steps: u64, uneven: bool) -> Vec<NoiseEstimate> {
    libtorch::set_threads(1);
    let config = config(1);
    let spec = ParameterSpec { name: "w".into(), shape: vec![SIZE], init: Init::Zeros };
    let parameters = Parameters::initialise(vec![spec], 1, Kind::Float);
    let mut engine = Engine::new(&config, Linear { parameters, uneven }, &Local).unwrap();
    (1..=steps).filter_map(|step| engine.step(step, &()).unwrap().noise).collect()
}

/// Mean and its standard error.
fn mean(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

/// tr Σ / |G|² is 16 targets.
#[test]
fn estimates_are_right_in_the_mean() {
    for uneven in [false, true] {
        let found = estimates(4000, uneven);
        assert_eq!(found.len(), 4000);
        let (square, of_square) = mean(found.iter().map(|estimate| estimate.square));
        let (trace, of_trace) = mean(found.iter().map(|estimate| estimate.trace));
        let expected = [SIZE as f64 * MEAN * MEAN, SIZE as f64 * DEVIATION * DEVIATION];
        // Standard errors small enough that four of them tell a factor from another.
        assert!(of_square < 0.02 * expected[0] && of_trace < 0.02 * expected[1], "{of_square} {of_trace}");
        assert!((square - expected[0]).abs() < 4.0 * of_square, "{square}, expected {}", expected[0]);
        assert!((trace - expected[1]).abs() < 4.0 * of_trace, "{trace}, expected {}", expected[1]);
        assert!((trace / square - 16.0).abs() < 1.6, "{}", trace / square);
    }
}
