//! AWD-LSTM's optimizer: plain descent, and a mean that its trigger begins (Merity et al. 2018, algorithm 1).

use segue_configs::{AverageConfig, AverageTrigger, OptimConfig, OptimKind};
use segue_kernels::{Init, ParameterSpec, Parameters};
use tch::{Kind, Tensor};

use crate::optim::averaging::{self, Averaging, Tail};
use crate::optim::{Piece, Update, build};

fn weights(values: &[f64]) -> Parameters {
    let spec = ParameterSpec { name: "w".into(), shape: vec![values.len() as i64], init: Init::Zeros };
    Parameters::from_tensors(vec![spec], vec![Tensor::from_slice(values)], Kind::Double)
}

/// The first evaluation, from 0, that begins the mean.
fn begins(losses: &[f64], patience: u64) -> Option<usize> {
    let (mut tail, parameters) = (Tail::new(0, patience, 1), weights(&[0.0]));
    let fires = |(i, loss): (usize, &f64)| {
        let choice = tail.observe(i as u64 + 1, &[(*loss).into()], &parameters);
        (!choice.events.is_empty()).then_some(i)
    };
    losses.iter().enumerate().find_map(fires)
}

/// Row S13.
#[test]
fn the_trigger_fires_where_the_published_one_does() {
    assert_eq!(begins(&[9.0, 7.0, 6.0, 6.5, 6.4, 6.3, 6.2, 5.0], 2), Some(5));
    assert_eq!((begins(&[9.0, 8.0, 7.0, 6.0, 5.0], 2), begins(&[5.0, 6.0], 2)), (None, None));
}

/// After a trigger at step 3, by `config`: the weights that are reported after each step that follows.
fn after_the_trigger(config: &AverageConfig) -> Vec<f64> {
    let start = weights(&[0.0]);
    let mut tail = averaging::build(config, 1, &start);
    for (step, loss) in [(1, 1.0), (2, 2.0), (3, 2.0)] {
        tail.fold(step, &start);
        tail.observe(step, &[loss.into()], &start);
    }
    let reported = |(step, iterate): (u64, f64)| {
        let parameters = weights(&[iterate]);
        tail.fold(step, &parameters);
        tail.chosen().map_or(iterate, |mean| mean[0].double_value(&[0]))
    };
    (4..).zip([1.0, 0.7, 0.4, 0.9]).map(reported).collect()
}

/// PyTorch's averaged descent leaves the first iterate out of its mean (row S13); the plain mean has it (row A8), and Melis' rule begins that.
/// Row S13.
#[test]
fn the_mean_that_the_trigger_begins_is_that_of_the_iterates_after_the_first() {
    let config = AverageConfig { patience: 1, ..Default::default() };
    let plain = [1.0, 0.85, 0.7, 0.75];
    let since_best = AverageConfig { patience: 2, trigger: AverageTrigger::SinceBest, ..config.clone() };
    let taken = AverageConfig { takes_first: true, ..config.clone() };
    for (config, expected) in [(config, [1.0, 0.7, 0.55, 2.0 / 3.0]), (taken, plain), (since_best, plain)] {
        for (found, expected) in after_the_trigger(&config).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}: {config:?}");
        }
    }
}

/// Values in [−1, 1), the same for the same seed.
fn noise(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Ten values descend to 0 along noisy gradients: |w|² / 2 of the mean, and of the last weights.
fn descend(seed: u64) -> [f64; 2] {
    const STEPS: u64 = 400;
    let (parameters, mut state) = (weights(&[1.0; 10]), seed);
    let config = OptimConfig { kind: OptimKind::Sgd, ..Default::default() };
    let mut rule = build(&config, &parameters, Piece::all(&parameters));
    // The first quarter is the way there.
    let mut tail = Tail::new(STEPS / 4, 0, 1);
    for step in 1..=STEPS {
        let noise: Vec<f64> = (0..10).map(|_| noise(&mut state)).collect();
        let grads = [parameters.tensors()[0].detach() + Tensor::from_slice(&noise)];
        rule.update(&parameters, &Update { grads: &grads, divisor: 1.0, lr: 0.2, reached: None }).unwrap();
        tail.fold(step, &parameters);
    }
    let loss = |w: &Tensor| 0.5 * w.square().sum(Kind::Double).double_value(&[]);
    [loss(&tail.chosen().unwrap()[0]), loss(&parameters.tensors()[0].detach())]
}

/// Rows M13 and S13: almost always nearer, and on the whole by more than five times.
/// Row M13.
#[test]
fn a_mean_of_noisy_weights_is_nearer_to_the_optimum_than_the_last() {
    // Ten values are no work for several threads.
    segue_kernels::libtorch::set_threads(1);
    let found: Vec<[f64; 2]> = (1..=100).map(|seed| descend(seed * 7919)).collect();
    let nearer = found.iter().filter(|[mean, last]| mean < last).count();
    let sum = |part: usize| found.iter().map(|losses| losses[part]).sum::<f64>();
    assert!(nearer >= 95, "{nearer}");
    // Distances are roots of losses.
    assert!(sum(1) > 25.0 * sum(0), "{} {}", sum(0), sum(1));
}
