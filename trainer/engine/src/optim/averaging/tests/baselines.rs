//! The simple averages, against numbers computed by hand and against means over stored weights.

use std::collections::VecDeque;

use super::*;
use crate::optim::averaging::{AveragingEvent, Exponential, Saved, Tail};

/// θ_0 … θ_7.
const SEQUENCE: [f64; 8] = [3.0, 1.0, 2.0, 0.0, 4.0, 2.0, 6.0, 4.0];

/// The mean of the last weights of some number, which are all stored.
struct Suffix {
    ring: VecDeque<f64>,
}

impl Suffix {
    fn new() -> Self {
        Self { ring: VecDeque::new() }
    }

    /// The mean with `weight` as the last of `length`, which grows by at most one at a time.
    fn next(&mut self, weight: f64, length: usize) -> f64 {
        self.ring.push_back(weight);
        while self.ring.len() > length {
            self.ring.pop_front();
        }
        self.ring.iter().sum::<f64>() / self.ring.len() as f64
    }
}

/// What is reported after each update, from that before the first.
fn reported(averaging: &mut dyn Averaging, live: &Parameters) -> Vec<f64> {
    let now = |averaging: &dyn Averaging| values(averaging.chosen().unwrap_or(live.tensors()))[0];
    let mut out = vec![now(averaging)];
    for (step, weight) in (1..).zip(&SEQUENCE[1..]) {
        set(live, &[*weight]);
        averaging.fold(step, live);
        out.push(now(averaging));
    }
    out
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9, "{found} against {expected}");
    }
}

/// Row A8.
#[test]
fn averages_are_those_computed_by_hand() {
    let live = || parameters(&SEQUENCE[..1], Kind::Double);
    let start = live();
    let polyak = [3.0, 2.0, 2.0, 1.5, 2.0, 2.0, 2.571428571, 2.75];
    assert_close(&reported(&mut *of_kind(AverageKind::Polyak, &start), &start), &polyak);
    let start = live();
    let constant = [3.0, 2.5, 2.375, 1.78125, 2.3359375, 2.251953125, 3.188964844, 3.391723633];
    assert_close(&reported(&mut Exponential::new(0.75, false, &start), &start), &constant);
    let start = live();
    let warm = [3.0, 2.0, 2.0, 1.5, 2.125, 2.09375, 3.0703125, 3.302734375];
    assert_close(&reported(&mut Exponential::new(0.75, true, &start), &start), &warm);
    let start = live();
    let tail = [3.0, 1.0, 2.0, 0.0, 2.0, 2.0, 3.0, 3.2];
    assert_close(&reported(&mut Tail::new(2, 0, 1), &start), &tail);
    let mut suffix = Suffix::new();
    let half: Vec<f64> = (1..8).map(|t: usize| suffix.next(SEQUENCE[t], t.div_ceil(2))).collect();
    assert_close(&half, &[1.0, 2.0, 1.0, 2.0, 2.0, 4.0, 4.0]);
}

/// Merity et al. 2018, algorithm 1, with n = 2: at the seventh evaluation the loss is above the best but two.
/// Row A8.
#[test]
fn non_monotonic_trigger_fires_at_the_seventh_evaluation() {
    let live = parameters(&[1.0], Kind::Double);
    let mut tail = Tail::new(0, 2, 1);
    let mut fired = Vec::new();
    for (step, loss) in (1..).zip([10.0, 8.0, 7.0, 7.5, 7.2, 6.9, 7.1, 7.3]) {
        set(&live, &[step as f64]);
        tail.fold(step, &live);
        let choice = tail.observe(step, &[loss.into()], &live);
        if choice.events == [AveragingEvent::Began] {
            fired.push(step);
        }
        assert_eq!(choice.name, if step <= 7 { "trained" } else { "tail" });
    }
    assert_eq!(fired, [7]);
    // The mean begins with the update after.
    assert_eq!(values(tail.chosen().unwrap()), [8.0]);
}

/// A checkpoint of a run that did not hand over says where its mean began, and one of before that does not say lets it begin with the next step.
/// Row A8.
#[test]
fn a_mean_that_is_to_be_handed_over_later_on_keeps_its_length() {
    let live = parameters(&[0.0], Kind::Double);
    let plain = AverageConfig { start: 10, ..Default::default() };
    let mut whole = build(&plain, 1, &live);
    for step in 1..=14 {
        whole.fold(step, &live);
    }
    let state = whole.state();
    assert_eq!((&state["count"], &state["after"]), (&4.into(), &10.into()));
    let mut silent = state.clone();
    silent.as_object_mut().unwrap().remove("after");
    for (state, ends) in [(state, 16), (silent, 20)] {
        let mut tail = build(&AverageConfig { repeat_every: 6, ..plain.clone() }, 1, &live);
        let chosen = whole.chosen().unwrap().iter().map(Tensor::copy).collect();
        tail.restore(Saved { state, chosen, tables: Default::default() }, &live).unwrap();
        let handed = (15..=25).find(|step| {
            tail.fold(*step, &live);
            tail.hand_over(*step).is_some()
        });
        assert_eq!(handed, Some(ends));
    }
}

/// Stochastic weight averaging (Izmailov et al. 2018): the mean of the weights at the ends of epochs, here of three steps each, after a first
/// phase of two steps.
/// Row A8.
#[test]
fn stochastic_weight_averaging_takes_in_the_ends_of_epochs() {
    let live = parameters(&SEQUENCE[..1], Kind::Double);
    let mut tail = build(&AverageConfig { start: 2, every: 3, ..Default::default() }, 1, &live);
    // θ_3, and from θ_6 on the mean of both.
    assert_close(&reported(&mut *tail, &live), &[3.0, 1.0, 2.0, 0.0, 0.0, 0.0, 3.0, 3.0]);
    assert_eq!(tail.state()["count"], 2);
}

/// Periodic averaging (Guo, Jin and Liu 2022), by hand: means of two steps from the second on, each of which training goes on from. What the steps
/// in between add is told apart from where they begin.
/// Row A8.
#[test]
fn repeated_averages_hand_over_and_begin_anew() {
    let live = parameters(&[0.0], Kind::Double);
    let config = AverageConfig { start: 1, repeat_every: 2, ..Default::default() };
    let mut tail = build(&config, 1, &live);
    let mut seen = Vec::new();
    // Each step adds its number.
    for step in 1..=7u64 {
        set(&live, &[values(live.tensors())[0] + step as f64]);
        tail.fold(step, &live);
        if let Some(handed) = tail.hand_over(step) {
            set(&live, &values(&handed));
            assert!(tail.chosen().is_none());
        }
        // Through a checkpoint.
        let chosen: Option<Vec<Tensor>> =
            tail.chosen().map(|tables| tables.iter().map(Tensor::copy).collect());
        let state = serde_json::from_str(&tail.state().to_string()).unwrap();
        tail = build(&config, 1, &live);
        let chosen = chosen.unwrap_or_else(|| live.tensors().iter().map(Tensor::copy).collect());
        tail.restore(super::super::Saved { state, chosen, tables: Default::default() }, &live).unwrap();
        seen.push((values(live.tensors())[0], tail.chosen().map(|mean| values(mean)[0])));
    }
    // Steps 2 and 3 come to 3 and 6, of which 4.5 is the mean; 4 and 5 to 8.5 and 13.5, mean 11; 6 and 7 to 17 and 24, mean 20.5.
    let expected = [
        (1.0, None),
        (3.0, Some(3.0)),
        (4.5, None),
        (8.5, Some(8.5)),
        (11.0, None),
        (17.0, Some(17.0)),
        (20.5, None),
    ];
    assert_eq!(seen, expected);
}

/// Row A8.
#[test]
fn tails_are_means_of_stored_weights() {
    let live = parameters(&[0.0], Kind::Double);
    for start in [1, 7, 40] {
        let (mut tail, mut oracle) = (Tail::new(start, 0, 1), Suffix::new());
        for step in 1..=60 {
            let weight = stream(1, start).normal(step);
            set(&live, &[weight]);
            tail.fold(step, &live);
            if step > start {
                let expected = oracle.next(weight, (step - start) as usize);
                assert!((values(tail.chosen().unwrap())[0] - expected).abs() < 1e-12);
            }
        }
    }
}

/// Row A8.
#[test]
fn warm_up_is_the_plain_mean_until_it_reaches_beta() {
    let live = parameters(&[0.3], Kind::Double);
    let (mut warm, mut polyak) = (Exponential::new(0.95, true, &live), Exponential::polyak(&live));
    for step in 1..=30 {
        set(&live, &[stream(2, 0).normal(step)]);
        warm.fold(step, &live);
        polyak.fold(step, &live);
        let same = values(warm.chosen().unwrap()) == values(polyak.chosen().unwrap());
        // 1 − 1 / (t + 1) is 0.95 at t = 19.
        assert!(if step < 19 { same } else { step == 19 || !same }, "step {step}");
    }
}

/// The rule by which runs have averaged since there is `average.start`: interpolation from a copy of the weights that the
/// mean begins at, and the trigger over a plain list of losses.
struct Before {
    mean: Option<(Vec<Tensor>, u64)>,
    losses: Vec<f64>,
}

impl Before {
    fn begin(&mut self, live: &Parameters) {
        let copies = || live.tensors().iter().map(|t| t.detach().copy()).collect();
        self.mean.get_or_insert_with(|| (copies(), 0));
    }

    fn fold(&mut self, live: &Parameters) {
        let Some((mean, count)) = &mut self.mean else { return };
        *count += 1;
        let share = 1.0 / *count as f64;
        for (mean, weight) in mean.iter_mut().zip(live.tensors()) {
            let _ = tch::no_grad(|| mean.lerp_(weight, share));
        }
    }

    fn observe(&mut self, loss: f64, patience: u64, live: &Parameters) {
        if patience == 0 || self.mean.is_some() {
            return;
        }
        let old = self.losses.len().saturating_sub(patience as usize);
        let stalled = self.losses[..old].iter().any(|before| loss > *before);
        self.losses.push(loss);
        if stalled {
            self.begin(live);
        }
    }
}

/// Row A8.
#[test]
fn tails_have_the_bits_they_always_had() {
    for (start, patience) in [(20, 0), (0, 2), (33, 1), (0, 0)] {
        let live = parameters(&[0.0; 37], Kind::Float);
        let config = AverageConfig { start, patience, takes_first: true, ..Default::default() };
        let mut averaging = build(&config, 5, &live);
        let mut before = Before { mean: None, losses: Vec::new() };
        let mut after = None;
        for step in 1..=80 {
            if start > 0 && step > start {
                after = after.or(Some(start));
                before.begin(&live);
            }
            let noise = stream(3, step);
            set(&live, &(0..37).map(|i| 0.02 * noise.normal(i)).collect::<Vec<_>>());
            averaging.fold(step, &live);
            before.fold(&live);
            let mean = before.mean.as_ref().filter(|(_, count)| *count > 0).map(|(mean, _)| values(mean));
            assert_eq!(averaging.chosen().map(values), mean);
            if step % 5 == 0 {
                let loss = noise.normal(99);
                averaging.observe(step, &[loss.into()], &live);
                before.observe(loss, patience, &live);
            }
            let count = before.mean.as_ref().map(|(_, count)| *count);
            let mut state = serde_json::json!({ "count": count, "losses": before.losses });
            if count.is_some() {
                // Begun by this step's loss, where it was not before.
                state["after"] = (*after.get_or_insert(step)).into();
            }
            assert_eq!(averaging.state().to_string(), state.to_string(), "step {step}");
        }
        assert_eq!(before.mean.is_some(), start + patience > 0);
    }
}
