//! What evaluations leave behind: nothing in the weights that train; and what they do with losses that are no numbers.

use segue_configs::OptimConfig;
use segue_configs::TwoTailedVariant::{Core, Extended};

use super::*;
use crate::optim::averaging::AveragingEvent::*;
use crate::optim::averaging::{NoAveraging, Tail};
use crate::optim::{Adam, Optimizer, Update};

/// Fifty steps of Adam on a network of two layers, with dropout; the bits of its losses.
fn train(mut averaging: Box<dyn Averaging>, evaluated: bool) -> Vec<u64> {
    let spec = |name: &str, shape: &[i64]| ParameterSpec {
        name: name.into(),
        shape: shape.to_vec(),
        init: Init::Uniform { range: 0.5 },
    };
    let parameters = Parameters::initialise(vec![spec("in", &[6, 8]), spec("out", &[8, 1])], 3, Kind::Float);
    let mut adam = Adam::new(&OptimConfig { lr: 0.02, ..Default::default() }, &parameters);
    let batch = |step: u64| -> Tensor {
        let noise = stream(4, step);
        let numbers: Vec<f32> = (0..24).map(|i| noise.normal(i) as f32).collect();
        Tensor::from_slice(&numbers).view([4, 6])
    };
    let loss = |x: &Tensor, mask: Option<&Tensor>| {
        let hidden = x.matmul(&parameters.get("in")).tanh();
        let hidden = mask.map_or(hidden.shallow_clone(), |mask| &hidden * mask);
        let target = x.sum_dim_intlist([1i64].as_slice(), true, Kind::Float);
        (hidden.matmul(&parameters.get("out")) - target).square().mean(Kind::Float)
    };
    let train_step = |step: u64, adam: &mut Adam| {
        let noise = stream(5, step);
        let kept: Vec<f32> = (0..8).map(|i| if noise.uniform(i) < 0.2 { 0.0 } else { 1.25 }).collect();
        let loss = loss(&batch(step), Some(&Tensor::from_slice(&kept)));
        let grads = Tensor::run_backward(&[&loss], parameters.tensors(), false, false);
        adam.update(&parameters, &Update { grads: &grads, divisor: 1.0, lr: 0.02, reached: None }).unwrap();
        loss.double_value(&[])
    };
    let mut losses = Vec::new();
    for step in 1..=50 {
        losses.push(train_step(step, &mut adam).to_bits());
        averaging.fold(step, &parameters);
        if evaluated && step % 5 == 0 {
            let found: Vec<CandidateLoss> = averaging
                .candidates()
                .iter()
                .map(|candidate| {
                    let _stand_in = StandIn::new(candidate.weights, &parameters, &parameters);
                    tch::no_grad(|| loss(&batch(0), None).double_value(&[])).into()
                })
                .collect();
            averaging.observe(step, &found, &parameters);
        }
    }
    losses
}

/// Row A4.
#[test]
fn training_losses_are_the_same_bits_with_and_without_evaluations() {
    let undisturbed = train(Box::new(NoAveraging), false);
    assert_eq!(train(Box::new(two_tailed(Extended, 5)), true), undisturbed);
    assert_eq!(train(Box::new(two_tailed(Core, 5)), true), undisturbed);
    assert_eq!(train(Box::new(Tail::new(20, 1, 1)), true), undisturbed);
}

/// Row A4.
#[test]
fn stand_ins_show_the_average_and_give_the_weights_back() {
    let live = parameters(&[1.0, f64::MIN_POSITIVE, -0.0], Kind::Double);
    let mut averaging = two_tailed(Extended, 3);
    for step in 1..=2 {
        averaging.fold(step, &live);
    }
    set(&live, &[4.0, 1.0, -0.0]);
    averaging.fold(3, &live);
    let bits = |p: &Parameters| values(p.tensors()).into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let before = bits(&live);
    // Both averages are of one length: one evaluation is enough.
    let names: Vec<_> = averaging.candidates().iter().map(|c| (c.name, c.length)).collect();
    assert_eq!(names, [("trained", 1), ("long", 3)]);
    for (candidate, first) in averaging.candidates().iter().zip([4.0, 2.0]) {
        let stand_in = StandIn::new(candidate.weights, &live, &live);
        assert_eq!(values(live.tensors())[0], first);
        drop(stand_in);
        assert_eq!(bits(&live), before);
    }
    // An evaluation that fails gives them back as well.
    let failed = || -> Result<(), ()> {
        let _stand_in = StandIn::new(averaging.candidates()[1].weights, &live, &live);
        Err(())
    };
    assert!(failed().is_err() && bits(&live) == before);
}

/// One period of folds.
fn fold_period(averaging: &mut dyn Averaging, n: u64, weight: f64, live: &Parameters) {
    for step in 3 * n - 2..=3 * n {
        set(live, &[weight]);
        averaging.fold(step, live);
    }
}

/// A loss that is not a number counts as infinite: averages that are sound live on, and decisions go on.
/// Row A2.
#[test]
fn losses_that_are_no_numbers_stop_nothing() {
    let live = parameters(&[0.0], Kind::Double);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut averaging = two_tailed(Extended, 3);
        let losses = |s: f64, l: f64| [("trained", 9.0), ("short", s), ("long", l)];
        let mut at = |n: u64, short: f64, long: f64| {
            fold_period(&mut averaging, n, 1.0, &live);
            let choice = tell(&mut averaging, 3 * n, &losses(short, long), &live);
            (choice.events, choice.name, averaging.lengths())
        };
        // Equal lengths tie whatever the loss is, and trained weights, which gave a number, are better.
        assert_eq!(at(1, bad, bad), (vec![Switched, TrainedReported, Restarted], "trained", (0, 0)));
        assert_eq!(at(2, 5.0, 5.0), (vec![Switched], "long", (0, 3)));
        assert_eq!(at(3, bad, 4.0), (vec![], "long", (3, 6)));
        assert_eq!(at(4, 4.5, bad), (vec![Switched], "short", (0, 6)));
        // What was reported at the third evaluation is still the best.
        assert_eq!(averaging.best().map(|best| best.step), Some(9));
    }
}

/// Row A2.
#[test]
fn averages_that_hold_no_numbers_are_dropped() {
    let live = parameters(&[0.0], Kind::Double);
    let nan = f64::NAN;
    for variant in [Core, Extended] {
        // In both averages: both begin anew, and take no harm from what the tables held.
        let mut averaging = two_tailed(variant, 3);
        fold_period(&mut averaging, 1, 1.0, &live);
        tell(&mut averaging, 3, &[("trained", 9.0), ("long", 3.0)], &live);
        fold_period(&mut averaging, 2, nan, &live);
        let losses = [("trained", nan), ("short", nan), ("long", nan)];
        let choice = tell(&mut averaging, 6, &losses, &live);
        assert!(choice.events.contains(&Dropped) && choice.loss.is_nan(), "{choice:?}");
        assert_eq!((averaging.lengths(), choice.best.map(|best| best.step)), ((0, 0), Some(3)));
        fold_period(&mut averaging, 3, 2.0, &live);
        let choice = tell(&mut averaging, 9, &[("trained", 9.0), ("long", 2.0)], &live);
        assert_eq!((choice.events, choice.loss), (vec![Switched], 2.0));
        assert_eq!(values(averaging.chosen().unwrap()), [2.0]);
        // In the long one only: the short one takes its place.
        let mut averaging = two_tailed(variant, 3);
        fold_period(&mut averaging, 1, nan, &live);
        tell(&mut averaging, 3, &[("trained", 9.0), ("long", 3.0)], &live);
        fold_period(&mut averaging, 2, 1.0, &live);
        let choice = tell(&mut averaging, 6, &[("trained", 9.0), ("short", 4.0), ("long", nan)], &live);
        assert_eq!((choice.loss, averaging.lengths()), (4.0, (0, 3)));
        assert_eq!(values(averaging.candidates().last().unwrap().weights.unwrap()), [1.0]);
    }
}

/// The trigger neither fires at a NaN nor takes it for the best, before and after a checkpoint.
/// Row A8.
#[test]
fn trigger_passes_over_losses_that_are_no_numbers() {
    let live = parameters(&[0.0], Kind::Double);
    let fires = |through_a_checkpoint: bool| -> Vec<bool> {
        let mut tail = Tail::new(0, 1, 1);
        [3.0, f64::NAN, 2.0, f64::NAN, f64::INFINITY, 2.5]
            .map(|loss| {
                if through_a_checkpoint {
                    let state = serde_json::from_str(&tail.state().to_string()).unwrap();
                    tail = Tail::new(0, 1, 1);
                    tail.restore(checkpoints::saved(state), &live).unwrap();
                }
                tail.observe(1, &[loss.into()], &live).events == [Began]
            })
            .to_vec()
    };
    // Infinity is above 3, and then the mean has begun.
    assert_eq!(fires(false), [false, false, false, false, true, false]);
    assert_eq!(fires(true), fires(false));
}

/// Row A9.
#[test]
fn decisions_can_follow_another_loss_than_the_reported_one() {
    let live = parameters(&[0.0], Kind::Double);
    let mut averaging = two_tailed(Core, 3);
    fold_period(&mut averaging, 1, 1.0, &live);
    averaging.observe(3, &[CandidateLoss { decide: 1.0, ..5.0.into() }], &live);
    fold_period(&mut averaging, 2, 1.0, &live);
    let losses = [CandidateLoss { decide: 0.5, ..7.0.into() }, CandidateLoss { decide: 0.6, ..4.0.into() }];
    let choice = averaging.observe(6, &losses, &live);
    // The short average is better by the first loss and worse by the second, which the best is chosen by.
    assert_eq!((choice.events, choice.name, choice.loss), (vec![Switched], "short", 7.0));
    assert_eq!(choice.best.map(|best| (best.step, best.loss)), Some((3, 5.0)));
}
