//! AWD-LSTM's optimizer: plain descent, and a mean that its trigger begins (Merity et al. 2018, algorithm 1).

use segue_configs::{OptimConfig, OptimKind};
use tch::{Kind, Tensor};

use crate::optim::averaging::{Averaging, Tail};
use crate::optim::{Piece, Update, build};
use crate::{Init, ParameterSpec, Parameters};

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

#[test]
fn s13_the_trigger_fires_where_the_published_one_does() {
    assert_eq!(begins(&[9.0, 7.0, 6.0, 6.5, 6.4, 6.3, 6.2, 5.0], 2), Some(5));
    assert_eq!((begins(&[9.0, 8.0, 7.0, 6.0, 5.0], 2), begins(&[5.0, 6.0], 2)), (None, None));
}

/// PyTorch's averaged descent leaves its first iterate out of the mean, as one that begins after it does.
#[test]
fn s13_the_mean_is_that_of_the_iterates_after_the_first() {
    let mut tail = Tail::new(1, 0, 1);
    let mut found = Vec::new();
    for (step, iterate) in (1..).zip([1.0, 0.7, 0.4, 0.9]) {
        let parameters = weights(&[iterate]);
        tail.fold(step, &parameters);
        found.push(tail.chosen().map_or(iterate, |mean| mean[0].double_value(&[0])));
    }
    for (found, expected) in found.iter().zip([1.0, 0.7, 0.55, 2.0 / 3.0]) {
        assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
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
#[test]
fn m13_a_mean_of_noisy_weights_is_nearer_to_the_optimum_than_the_last() {
    // Ten values are no work for several threads.
    crate::libtorch::set_threads(1);
    let found: Vec<[f64; 2]> = (1..=100).map(|seed| descend(seed * 7919)).collect();
    let nearer = found.iter().filter(|[mean, last]| mean < last).count();
    let sum = |part: usize| found.iter().map(|losses| losses[part]).sum::<f64>();
    assert!(nearer >= 95, "{nearer}");
    // Distances are roots of losses.
    assert!(sum(1) > 25.0 * sum(0), "{} {}", sum(0), sum(1));
}
