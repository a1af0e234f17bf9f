use std::f64::consts::PI;

use segue_configs::study::{Condition, Parameter, Scale};

use super::*;
use crate::{Identity, Journal, State, Told};

fn study() -> Identity {
    Identity { name: "s".into(), of: serde_json::Value::Null }
}

fn parameter(key: &str, scale: Scale, low: f64, high: f64) -> Parameter {
    Parameter { key: key.into(), low, high, scale, floor: None, ceiling: None, when: None }
}

/// Branin's function, which has three minima of 0.397887 (Dixon and Szegö 1978).
fn branin(x: f64, y: f64) -> f64 {
    let bend = y - 5.1 / (4.0 * PI * PI) * x * x + 5.0 / PI * x - 6.0;
    bend * bend + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * x.cos() + 10.0
}

fn plane() -> Space {
    Space::new(vec![parameter("x", Scale::Linear, -5.0, 10.0), parameter("y", Scale::Linear, 0.0, 15.0)])
        .unwrap()
}

fn branin_at(space: &Space, asked: &Asked) -> f64 {
    let values = space.values(&asked.point);
    branin(values[0].unwrap(), values[1].unwrap())
}

fn told(asked: Asked, loss: f64) -> Trial {
    let told = Told::new(asked.trial, State::Done, loss, Vec::new());
    Trial { asked, told: Some(told) }
}

/// The lowest of 40, `at_once` of which are always under way.
fn best_of_40(kind: SearchKind, seed: u64, at_once: usize) -> f64 {
    let space = plane();
    let search = Search { space: &space, kind, startup: 8, seed };
    let mut trials: Vec<Trial> = Vec::new();
    for number in 0..40 + at_once - 1 {
        if number < 40 {
            let asked = search.next(&trials);
            trials.push(Trial { asked, told: None });
        }
        if let Some(ended) = (number + 1).checked_sub(at_once) {
            let asked = trials[ended].asked.clone();
            let loss = branin_at(&space, &asked);
            trials[ended] = told(asked, loss);
        }
    }
    trials.iter().filter_map(Trial::loss).fold(f64::INFINITY, f64::min)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2] + values[(values.len() - 1) / 2]) / 2.0
}

/// Row M16.
#[test]
fn a_gaussian_process_beats_random_search_on_branin() {
    assert!((branin(PI, 2.275) - 0.397887).abs() < 1e-6, "the function is not Branin's");
    let medians = |kind, at_once| median((1..=20).map(|seed| best_of_40(kind, seed, at_once)).collect());
    let random = medians(SearchKind::Random, 1);
    let (alone, four) = (medians(SearchKind::Gaussian, 1), medians(SearchKind::Gaussian, 4));
    assert!(alone < random && four < random, "{alone} and {four} against {random}");
    // Not by a hair: it finds a minimum.
    assert!(alone < 0.41 && four < 0.45 && random > 0.5, "{alone} and {four} against {random}");
}

/// The largest distance between the share of values below and the distribution, Kolmogorov and Smirnov's statistic.
fn distance_from_uniform(mut places: Vec<f64>) -> f64 {
    places.sort_by(f64::total_cmp);
    let n = places.len() as f64;
    let gaps = places.iter().enumerate().map(|(i, x)| (x - i as f64 / n).max((i as f64 + 1.0) / n - x));
    gaps.fold(0.0, f64::max)
}

/// Row M16.
#[test]
fn log_parameters_are_uniform_in_their_logarithm() {
    let (low, high) = (5e-6, 1e-3);
    let space = Space::new(vec![parameter("l2", Scale::Log, low, high)]).unwrap();
    let search = Search { space: &space, kind: SearchKind::Random, startup: 2, seed: 7 };
    let mut trials = Vec::new();
    for _ in 0..2000 {
        trials.push(told(search.next(&trials), 1.0));
    }
    let values: Vec<f64> = trials.iter().map(|trial| trial.asked.settings["l2"].parse().unwrap()).collect();
    assert!(values.iter().all(|value| (low..=high).contains(value)));
    // The 0.999 quantile of Kolmogorov's distribution is 1.95.
    let limit = 1.95 / (values.len() as f64).sqrt();
    let of_logarithms = values.iter().map(|value| (value / low).ln() / (high / low).ln()).collect();
    assert!(distance_from_uniform(of_logarithms) < limit);
    let of_values = values.iter().map(|value| (value - low) / (high - low)).collect();
    assert!(distance_from_uniform(of_values) > 10.0 * limit, "the test tells both scales apart");
}

/// Row M16.
#[test]
fn whole_numbers_come_alike_often() {
    let space = Space::new(vec![parameter("rounds", Scale::Integer, 0.0, 6.0)]).unwrap();
    let search = Search { space: &space, kind: SearchKind::Random, startup: 2, seed: 7 };
    let (mut trials, mut counts) = (Vec::new(), [0f64; 7]);
    for _ in 0..3500 {
        let asked = search.next(&trials);
        counts[asked.settings["rounds"].parse::<usize>().unwrap()] += 1.0;
        trials.push(told(asked, 1.0));
    }
    let chi_square: f64 = counts.iter().map(|count| (count - 500.0).powi(2) / 500.0).sum();
    // 0.999 quantile for six degrees of freedom.
    assert!(chi_square < 22.5, "{counts:?}");
}

/// A third of the plane has no loss, and the losses fall towards it: the search comes close to the border, and learns where it is.
/// Row M16.
#[test]
fn trials_without_a_loss_are_never_proposed_as_best() {
    let space = plane();
    let search = Search { space: &space, kind: SearchKind::Gaussian, startup: 8, seed: 3 };
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&dir.path().join("j"), &study(), 2).unwrap();
    for number in 0..48 {
        let asked = search.next(journal.trials());
        let x = asked.point[0];
        journal.ask(asked).unwrap();
        let loss = if x > 0.667 { f64::NAN } else { 1.0 - x };
        journal.tell(Told::new(number, State::Done, loss, Vec::new())).unwrap();
        assert!(journal.best().is_none_or(|best| best.asked.point[0] <= 0.667));
    }
    let without = journal.trials().iter().filter(|trial| trial.loss().is_none()).count();
    let best = journal.best().and_then(Trial::loss).unwrap();
    assert!(without > 0 && best < 0.34, "{without} without a loss, the best {best}");
}

/// Row M16.
#[test]
fn a_study_that_was_killed_proposes_the_same() {
    let space = plane();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    for kind in [SearchKind::Random, SearchKind::Gaussian] {
        let search = Search { space: &space, kind, startup: 4, seed: 11 };
        let _ = std::fs::remove_file(&path);
        let mut journal = Journal::open(&path, &study(), 2).unwrap();
        for number in 0..14_usize {
            // Two are under way at a time.
            let asked = search.next(journal.trials());
            let read = Journal::open(&path, &study(), 2).unwrap();
            assert_eq!(search.next(read.trials()), asked, "{kind:?}");
            journal.ask(asked).unwrap();
            if let Some(ended) = number.checked_sub(1) {
                let loss = branin_at(&space, &journal.trials()[ended].asked.clone());
                journal.tell(Told::new(ended, State::Done, loss, Vec::new())).unwrap();
            }
        }
        let by_model = journal.trials().iter().filter(|t| t.asked.by == SearchKind::Gaussian).count();
        assert_eq!(by_model, if kind == SearchKind::Gaussian { 10 } else { 0 });
        let other = Search { seed: 12, ..search };
        assert_ne!(other.next(journal.trials()), search.next(journal.trials()), "the seed does not count");
    }
}

#[test]
fn no_trial_is_proposed_twice_while_others_are_left() {
    let rounds = parameter("rounds", Scale::Integer, 0.0, 3.0);
    let when = Some(Condition { key: "rounds".into(), at_least: 1.0 });
    let rank = Parameter { when, ..parameter("rank", Scale::Integer, 1.0, 3.0) };
    let space = Space::new(vec![rounds, rank]).unwrap();
    let search = Search { space: &space, kind: SearchKind::Gaussian, startup: 2, seed: 5 };
    let mut trials: Vec<Trial> = Vec::new();
    // No rounds, or three numbers of rounds with three ranks each.
    for _ in 0..14 {
        let asked = search.next(&trials);
        let loss = space.canonical(&asked.point).iter().sum();
        trials.push(told(asked, loss));
    }
    let mut proposed: Vec<_> = trials.iter().map(|trial| trial.asked.settings.clone()).collect();
    let by_model = trials.iter().filter(|t| t.asked.by == SearchKind::Gaussian).count();
    proposed.sort();
    proposed.dedup();
    assert_eq!(proposed.len(), 10);
    assert!((8..=10).contains(&by_model), "{by_model}");
}

/// Best 1, median 2: up to 7 is as it was.
#[test]
fn wild_losses_are_drawn_in() {
    assert_eq!(tamed(&[2.0, 1.0, 2.5, 1e9, 1.5]), [2.0, 1.0, 2.5, 7.0, 1.5]);
    assert_eq!(tamed(&[1.0, 1.0, 1.0, 3.0]), [1.0, 1.0, 1.0, 3.0]);
    assert!(tamed(&[]).is_empty());
}
