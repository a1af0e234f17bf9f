//! Overfitting: logistic regression on a few noisy examples, with decisions by validation loss and by training loss.

use segue_configs::TwoTailedVariant::Core;

use super::*;

const WIDTH: usize = 30;
const EXAMPLES: u64 = 300;
const STEPS: u64 = 12_000;
const PERIOD: u64 = 300;
const BATCH: u64 = 4;
const RATE: f64 = 0.5;
/// Of the training labels.
const FLIPPED: f64 = 0.1;

struct Example {
    features: Vec<f64>,
    /// 1 or −1.
    label: f64,
}

impl Example {
    fn margin(&self, weights: &[f64]) -> f64 {
        self.label * self.features.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>()
    }
}

/// Examples of a random separation, `flipped` of the labels on average the wrong ones.
fn examples(seed: u64, count: u64, first: u64, flipped: f64) -> Vec<Example> {
    let truth: Vec<f64> = (0..WIDTH as u64).map(|i| stream(20 + seed, 0).normal(i)).collect();
    let example = |number: u64| {
        let noise = stream(20 + seed, 1 + first + number);
        let features: Vec<f64> = (0..WIDTH as u64).map(|i| noise.normal(i)).collect();
        let side = features.iter().zip(&truth).map(|(x, w)| x * w).sum::<f64>().signum();
        let flips = noise.uniform(1000) < flipped;
        Example { features, label: if flips { -side } else { side } }
    };
    (0..count).map(example).collect()
}

/// Mean of log(1 + exp(−margin)), written so that it does not overflow.
fn loss(weights: &[f64], examples: &[Example]) -> f64 {
    let of = |margin: f64| (-margin.abs()).exp().ln_1p() + (-margin).max(0.0);
    mean(&examples.iter().map(|example| of(example.margin(weights))).collect::<Vec<_>>())
}

/// The lowest validation loss of averages chosen by validation loss, of those chosen by training loss, and of the trained
/// weights. `flipped` is of the validation labels.
fn best_losses(seed: u64, flipped: f64) -> [f64; 3] {
    let train = examples(seed, EXAMPLES, 0, FLIPPED);
    let valid = examples(seed, 1000, EXAMPLES, flipped);
    let mut weights = vec![0.0; WIDTH];
    let live = parameters(&weights, Kind::Double);
    let (mut by_valid, mut by_train) = (two_tailed(Core, PERIOD), two_tailed(Core, PERIOD));
    let mut best = [f64::INFINITY; 3];
    for step in 1..=STEPS {
        let draws = stream(40 + seed, step);
        let mut gradient = vec![0.0; WIDTH];
        for i in 0..BATCH {
            let example = &train[(draws.uniform(i) * EXAMPLES as f64) as usize];
            let slope = -example.label / (1.0 + example.margin(&weights).exp());
            gradient.iter_mut().zip(&example.features).for_each(|(g, x)| *g += slope * x / BATCH as f64);
        }
        weights.iter_mut().zip(gradient).for_each(|(w, g)| *w -= RATE * g);
        set(&live, &weights);
        by_valid.fold(step, &live);
        by_train.fold(step, &live);
        if step.is_multiple_of(PERIOD) {
            let on_valid = evaluate(&mut by_valid, step, &live, &|weights| loss(weights, &valid));
            let on_train = evaluate_by(&mut by_train, step, &live, &|weights| CandidateLoss {
                decide: loss(weights, &train),
                ..loss(weights, &valid).into()
            });
            let now = [on_valid.loss, on_train.loss, loss(&weights, &valid)];
            best.iter_mut().zip(now).for_each(|(best, now)| *best = best.min(now));
        }
    }
    best
}

/// Row A9.
#[test]
fn averages_that_follow_the_training_loss_are_no_better_and_yet_better_than_none() {
    for seed in 0..5 {
        let [by_valid, by_train, trained] = best_losses(seed, FLIPPED);
        println!(
            "validation loss {by_valid:.3} by validation, {by_train:.3} by training loss, {trained:.3} trained"
        );
        assert!(by_valid <= by_train && by_train < trained, "seed {seed}: {by_valid} {by_train} {trained}");
    }
}

/// With clean validation labels the two losses disagree about when to switch.
/// Row A9.
#[test]
fn training_loss_chooses_worse_averages_where_the_two_losses_disagree() {
    let losses: Vec<[f64; 3]> = (0..5).map(|seed| best_losses(seed, 0.0)).collect();
    println!("validation losses by validation, by training loss, trained: {losses:.3?}");
    assert!(losses.iter().all(|[by_valid, by_train, _]| by_valid <= by_train));
    let [by_valid, by_train, trained] =
        [0, 1, 2].map(|i| mean(&losses.iter().map(|l| l[i]).collect::<Vec<_>>()));
    assert!(by_valid < by_train && by_train < trained, "{by_valid} {by_train} {trained}");
}
