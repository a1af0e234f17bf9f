//! The best tail by search over all lengths, and the assumptions and bounds of the propositions, watched along a run.

use segue_configs::TwoTailedVariant::{Core, Extended};

use super::two_basins::{PERIOD, iterates, loss, reports};
use super::*;

/// Means of the last weights of any number, from prefix sums.
struct Oracle {
    prefix: Vec<Vec<f64>>,
}

impl Oracle {
    fn new(iterates: &[Vec<f64>]) -> Self {
        let mut prefix = vec![vec![0.0; iterates[0].len()]];
        for weights in iterates {
            let sum = prefix[prefix.len() - 1].iter().zip(weights).map(|(a, b)| a + b).collect();
            prefix.push(sum);
        }
        Self { prefix }
    }

    /// The mean of the last `length` of the first `n` weights.
    fn tail(&self, n: usize, length: usize) -> Vec<f64> {
        let pairs = self.prefix[n].iter().zip(&self.prefix[n - length]);
        pairs.map(|(now, then)| (now - then) / length as f64).collect()
    }
}

/// Δ(n), the shortest of the lengths with the lowest loss, and that loss.
fn best_length(n: usize, loss: &dyn Fn(usize, usize) -> f64) -> (usize, f64) {
    (1..=n).map(|d| (d, loss(n, d))).min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
}

/// What was found to be wrong at the evaluations of a run.
#[derive(Debug, Default, PartialEq)]
struct Violations {
    /// S < Δ and L < 2Δ + E do not both hold.
    bounds: Vec<u64>,
    /// Δ is smaller than at the evaluation before.
    falling: Vec<u64>,
    /// The loss is not monotone in the length up to Δ.
    not_monotone: Vec<u64>,
}

/// Watches a run with lengths (S, L) after each evaluation. `loss(n, d)` is that of a tail of d after n steps.
fn watch(run: &[(u64, (u64, u64))], period: u64, loss: &dyn Fn(usize, usize) -> f64) -> Violations {
    let mut found = Violations::default();
    let mut before = 0;
    for &(n, (s, l)) in run {
        let (optimum, _) = best_length(n as usize, loss);
        let monotone = (1..optimum).all(|d| loss(n as usize, d + 1) <= loss(n as usize, d));
        let optimum = optimum as u64;
        if s >= optimum || l >= 2 * optimum + period {
            found.bounds.push(n);
        }
        if optimum < before {
            found.falling.push(n);
        }
        if !monotone {
            found.not_monotone.push(n);
        }
        before = optimum;
    }
    found
}

/// Row A17.
#[test]
fn reported_averages_are_compared_with_the_best_tail() {
    // Step, best length and its loss, length and loss of the core algorithm, and of the extended one.
    let expected = [
        (9, 1, 1.275674743, 3, 2.726952418, 1, 1.275674743),
        (15, 5, 0.090078727, 6, 0.151708130, 6, 0.151708130),
        (30, 19, 0.094768937, 21, 0.097108212, 21, 0.097108212),
        (33, 3, 0.033778907, 21, 0.073052784, 21, 0.073052784),
        (48, 36, 0.015575526, 36, 0.015575526, 15, 0.170565652),
        (60, 44, 0.003183500, 48, 0.004747275, 12, 0.080124839),
        (75, 6, -0.474717642, 63, 0.199058069, 15, -0.410783000),
        (93, 22, -0.478208201, 3, -0.314050293, 30, -0.439829906),
        (108, 28, -0.490089372, 18, -0.431912537, 27, -0.486728067),
    ];
    let oracle = Oracle::new(&iterates());
    let (core, extended) = (reports(Core), reports(Extended));
    for (n, optimum, lowest, core_length, core_loss, extended_length, extended_loss) in expected {
        let (found, found_loss) = best_length(n, &|n, d| loss(&oracle.tail(n, d)));
        assert_eq!(found, optimum, "step {n}");
        assert!((found_loss - lowest).abs() < 1e-9, "step {n}: {found_loss}");
        let at = |run: &[(u64, (u64, u64), u64, f64)]| run[n / PERIOD as usize - 1];
        for ((_, _, length, loss), expected_length, expected_loss) in
            [(at(&core), core_length, core_loss), (at(&extended), extended_length, extended_loss)]
        {
            assert_eq!(length, expected_length, "step {n}");
            assert!((loss - expected_loss).abs() < 1e-9, "step {n}: {loss}");
            // No average is better than the best tail.
            assert!(loss - found_loss > -1e-12, "step {n}");
        }
    }
}

/// The bounds hold until the second basin makes the best length fall, which the propositions assume it does not.
/// Row A17.
#[test]
fn monitor_finds_where_bounds_break() {
    let oracle = Oracle::new(&iterates());
    let run: Vec<_> = reports(Core).into_iter().map(|(step, lengths, ..)| (step, lengths)).collect();
    let found = watch(&run, PERIOD, &|n, d| loss(&oracle.tail(n, d)));
    assert_eq!(found.bounds, [33, 36, 63, 66, 69, 72, 75, 78, 81, 84, 87, 90]);
    assert!(found.falling.contains(&33) && found.falling.iter().any(|step| (61..=75).contains(step)));
    assert!(!found.not_monotone.is_empty());
}

/// Row A17.
#[test]
fn monitor_finds_nothing_where_the_assumptions_hold() {
    for c in [0.25, 0.5, 0.75] {
        let (period, live) = (10, parameters(&[0.0], Kind::Double));
        let mut averaging = two_tailed(Core, period);
        let loss = |n: usize, d: usize| (d as f64 - c * n as f64).abs();
        let mut run = Vec::new();
        for n in 1..=2000 {
            averaging.fold(n, &live);
            if n % period == 0 {
                let (s, l) = averaging.lengths();
                let of = |length: u64| loss(n as usize, length as usize);
                tell(&mut averaging, n, &[("short", of(s)), ("long", of(l))], &live);
                run.push((n, averaging.lengths()));
            }
        }
        let late: Vec<_> = run.into_iter().filter(|(n, _)| *n >= 40).collect();
        assert_eq!(watch(&late, period, &loss), Violations::default(), "c {c}");
    }
}
