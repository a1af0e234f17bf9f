//! Where a tail begins by the losses: Melis 2023, §2.2.2, beside AWD-LSTM's rule (Merity et al. 2018, algorithm 1).

use segue_configs::AverageTrigger::{self, NonMonotonic, SinceBest};

use super::*;
use crate::optim::averaging::{AveragingEvent, Tail};

/// The turn, from 1, whose evaluation begins the mean.
fn begins(trigger: AverageTrigger, losses: &[f64], patience: u64) -> Option<usize> {
    let live = parameters(&[0.0], Kind::Double);
    let mut tail = Tail::new(0, patience, 1).begun_by(trigger, 0);
    let fires = |(turn, loss): (usize, &f64)| {
        let choice = tail.observe(turn as u64, &[(*loss).into()], &live);
        (choice.events == [AveragingEvent::Began]).then_some(turn)
    };
    (1..).zip(losses).find_map(fires)
}

/// Turns by hand: the thesis' rule fires `patience` turns after the best, AWD-LSTM's where a loss is above one of those that lie more than
/// `patience` back.
/// Row M13.
#[test]
fn the_trigger_fires_when_the_best_turn_is_as_old_as_the_patience() {
    type Case = (&'static [f64], u64, Option<usize>, Option<usize>);
    let cases: [Case; 7] = [
        (&[5.0, 4.0, 4.5, 4.2, 4.1, 4.3], 2, Some(4), Some(5)),
        // On a plateau nothing is better, and nothing is worse.
        (&[5.0, 4.0, 4.0, 4.0, 4.0, 4.0], 2, Some(4), None),
        (&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 1, None, None),
        // A new best begins the count anew.
        (&[5.0, 4.0, 4.5, 3.9, 4.0, 4.1, 4.2], 2, Some(6), Some(6)),
        (&[3.0, 4.0, 5.0], 1, Some(2), Some(3)),
        (&[9.0, 7.0, 6.0, 6.5, 6.4, 6.3, 6.2, 5.0], 2, Some(5), Some(6)),
        // Too few turns to tell.
        (&[5.0, 6.0, 7.0], 3, None, None),
    ];
    for (losses, patience, since_best, non_monotonic) in cases {
        assert_eq!(begins(SinceBest, losses, patience), since_best, "{losses:?}");
        assert_eq!(begins(NonMonotonic, losses, patience), non_monotonic, "{losses:?}");
    }
}

/// The first step whose weights are in the mean, of turns of two steps.
fn first_averaged(start: u64, patience: u64, losses: &[f64]) -> Option<u64> {
    let live = parameters(&[0.0], Kind::Double);
    let config = AverageConfig { start, patience, trigger: SinceBest, ..Default::default() };
    let mut averaging = build(&config, 2, &live);
    (1..=2 * losses.len() as u64).find(|step| {
        averaging.fold(*step, &live);
        if step.is_multiple_of(2) {
            averaging.observe(*step, &[losses[*step as usize / 2 - 1].into()], &live);
        }
        averaging.chosen().is_some()
    })
}

/// Melis 2023, §2.2.2: after the turn min(best + patience, latest), whatever its loss; the step that follows is the mean's first.
/// Row M13.
#[test]
fn the_mean_begins_after_the_patience_or_after_the_latest_turn() {
    // The best turn is the fourth, of which the sixth is two turns old.
    let losses = [5.0, 4.0, 4.5, 3.9, 4.0, 4.1, 4.2, 4.3, 4.4];
    for (latest, first) in [(0, 13), (4, 9), (5, 11), (6, 13), (7, 13), (9, 13)] {
        assert_eq!(first_averaged(2 * latest, 2, &losses), Some(first), "latest turn {latest}");
    }
    // Better at every turn: at the latest one alone.
    let falling = [5.0, 4.0, 3.0, 2.0, 1.0];
    assert_eq!((first_averaged(8, 2, &falling), first_averaged(0, 2, &falling)), (Some(9), None));
}

/// The condition as the thesis has it, over losses of few values, so that plateaus abound.
/// Row M13.
#[test]
fn the_trigger_fires_at_the_best_turn_and_patience_or_the_latest() {
    for seed in 0..200 {
        let noise = stream(50, seed);
        let (patience, latest) = (1 + seed % 5, 1 + seed % 17);
        let losses: Vec<f64> = (0..20).map(|turn| (6.0 * noise.uniform(turn)).floor()).collect();
        let mut best_turn = 0;
        let expected = (1..=20).find(|turn| {
            let is_better = |best: usize| losses[turn - 1] < losses[best - 1];
            if best_turn == 0 || is_better(best_turn) {
                best_turn = *turn;
            }
            (turn - best_turn) as u64 >= patience || *turn as u64 >= latest
        });
        let first = expected.filter(|turn| *turn < 20).map(|turn| 2 * turn as u64 + 1);
        assert_eq!(first_averaged(2 * latest, patience, &losses), first, "seed {seed}: {losses:?}");
    }
}

/// Before and after a checkpoint.
/// Row M13.
#[test]
fn losses_that_are_no_numbers_are_turns_without_a_better_one() {
    let live = parameters(&[0.0], Kind::Double);
    for (losses, expected) in [
        ([f64::NAN, f64::INFINITY, 3.0, 2.0], 2),
        ([3.0, f64::NAN, f64::NAN, 2.0], 3),
        ([3.0, f64::NEG_INFINITY, 2.0, f64::NAN], 5),
    ] {
        let fired = |through_a_checkpoint: bool| {
            let new = || Tail::new(0, 2, 1).begun_by(SinceBest, 0);
            let mut tail = new();
            let mut fires = |loss: f64| {
                if through_a_checkpoint {
                    let state = serde_json::from_str(&tail.state().to_string()).unwrap();
                    tail = new();
                    tail.restore(checkpoints::saved(state), &live).unwrap();
                }
                tail.observe(1, &[loss.into()], &live).events == [AveragingEvent::Began]
            };
            losses.into_iter().chain([9.0]).position(&mut fires).map(|turn| turn + 1)
        };
        assert_eq!((fired(false), fired(true)), (Some(expected), Some(expected)), "{losses:?}");
    }
}
