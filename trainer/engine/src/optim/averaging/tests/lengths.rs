//! Decisions alone, from losses that are made up: the published run of figure 3.4, a table of cases, and losses that depend
//! on the length only.

use segue_configs::TwoTailedVariant::{Core, Extended};

use super::*;
use crate::optim::averaging::AveragingEvent::{self, *};

/// One step with weights that do not matter.
fn fold(averaging: &mut TwoTailed, steps: std::ops::RangeInclusive<u64>, live: &Parameters) {
    steps.for_each(|step| averaging.fold(step, live));
}

/// Figure 3.4: lengths in periods at 55 evaluations of a language model, `r` where the trained weights are reported.
/// Row A2.
#[test]
fn lengths_are_those_of_the_published_run() {
    let published = "r r 1 1 1 1 1 1 2 2 3 2 3 2 3 2 3 4 3 4 5 3 4 5 6 4 5 6 7 8 5 6 7 8 9 5 6 7 8 9 10 11 7 8 9 10 \
                     11 12 6 7 8 9 10 11 12";
    let switches = [3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 19, 22, 26, 31, 36, 43, 49];
    let period = 10;
    let live = parameters(&[0.0], Kind::Double);
    let mut averaging = two_tailed(Extended, period);
    let lengths = (1..=55).map(|n| {
        fold(&mut averaging, (n - 1) * period + 1..=n * period, &live);
        // Falling by 1 each time, so that nothing stagnates.
        let long = 100.0 - n as f64;
        let short = if switches.contains(&n) { long - 0.4 } else { long + 0.4 };
        let trained = if n <= 2 { 0.0 } else { 1000.0 };
        let losses = [("trained", trained), ("short", short), ("long", long)];
        let choice = tell(&mut averaging, n * period, &losses, &live);
        if choice.name == "trained" { "r".into() } else { (choice.length / period).to_string() }
    });
    assert_eq!(lengths.collect::<Vec<String>>().join(" "), published);
}

/// Every rule of algorithm 2: losses of trained, short and long weights; then S, L, the length and the loss that are
/// reported, and what happened.
/// Row A2.
#[test]
fn every_rule_is_followed() {
    type Case = ([f64; 3], u64, u64, u64, f64, &'static [AveragingEvent]);
    let cases: [Case; 12] = [
        ([9.0, 5.0, 5.0], 0, 10, 10, 5.0, &[Switched]),
        ([9.0, 4.0, 3.0], 10, 20, 20, 3.0, &[]),
        ([9.0, 4.1, 2.5], 20, 30, 30, 2.5, &[]),
        ([9.0, 4.2, 2.4], 30, 40, 40, 2.4, &[]),
        ([9.0, 4.05, 2.3], 0, 50, 50, 2.3, &[ShortStagnated]),
        ([9.0, 3.5, 2.31], 10, 60, 60, 2.31, &[]),
        ([9.0, 3.4, 2.32], 20, 70, 70, 2.32, &[]),
        ([9.0, 3.3, 2.33], 0, 30, 30, 3.3, &[LongStagnated]),
        ([9.0, 3.2, 2.2], 10, 40, 40, 2.2, &[]),
        ([9.0, 2.0, 2.1], 0, 20, 20, 2.0, &[Switched]),
        ([9.0, 2.4, 2.4], 0, 10, 10, 2.4, &[Switched]),
        ([1.0, 2.5, 2.45], 10, 20, 1, 1.0, &[TrainedReported]),
    ];
    let live = parameters(&[0.0], Kind::Double);
    let mut averaging = two_tailed(Extended, 10);
    for (n, ([trained, short, long], s, l, length, loss, events)) in (1..).zip(cases) {
        fold(&mut averaging, 10 * n - 9..=10 * n, &live);
        let losses = [("trained", trained), ("short", short), ("long", long)];
        let choice = tell(&mut averaging, 10 * n, &losses, &live);
        assert_eq!(
            (averaging.lengths(), choice.length, choice.loss),
            ((s, l), length, loss),
            "evaluation {n}"
        );
        assert_eq!(choice.events, events, "evaluation {n}");
    }
}

/// What the propositions say of the core algorithm, where the loss of an average of length d after n steps is |d − c n|.
struct Simulated {
    switches: Vec<u64>,
    lengths: (u64, u64),
}

fn simulate(c: f64, violations: &mut Vec<String>) -> Simulated {
    let (period, last) = (10, 2000);
    let live = parameters(&[0.0], Kind::Double);
    let mut averaging = two_tailed(Core, period);
    let mut switches: Vec<u64> = Vec::new();
    let mut switched_at = 0;
    let mut met_optimum = true;
    for n in (period..=last).step_by(period as usize) {
        fold(&mut averaging, n - period + 1..=n, &live);
        let optimum = c * n as f64;
        let loss = |length: u64| (length as f64 - optimum).abs();
        let (s, l) = averaging.lengths();
        let losses = [("short", loss(s)), ("long", loss(l))];
        let choice = tell(&mut averaging, n, &losses, &live);
        let mut hold = |holds: bool, what: &str| {
            if !holds {
                violations.push(format!("c {c}, step {n}: {what}"));
            }
        };
        // Proposition 7: the optimum is passed between two switches.
        let in_periods = optimum / period as f64;
        let near = |l: u64| [in_periods.floor(), in_periods.ceil()].contains(&((l / period) as f64));
        met_optimum |= near(l);
        if choice.events == [Switched] {
            hold(met_optimum || n < 40, "no length near the optimum since the last switch");
            switches.push(n);
            (switched_at, met_optimum) = (s, false);
        }
        let (s, l) = averaging.lengths();
        met_optimum |= near(l);
        // Propositions 1 to 4.
        hold(s % period == 0 && l % period == 0, "lengths are no multiples of the period");
        hold(s <= l && l <= n, "not S <= L <= n");
        hold(s == 0 || loss(s) > loss(l), "the short average is better");
        hold(l == s + switched_at, "L is not S and what S was at the last switch");
        // Proposition 5.
        let bounded = (s as f64) < optimum && (l as f64) < 2.0 * optimum + period as f64;
        hold(n < 40 || bounded, "not S < optimum, L < 2 optimum + period");
    }
    Simulated { switches, lengths: averaging.lengths() }
}

/// Row A11.
#[test]
fn switches_follow_fibonacci_numbers_within_the_bounds_of_the_propositions() {
    let mut violations = Vec::new();
    let half = simulate(0.5, &mut violations);
    assert_eq!(half.switches, [10, 20, 30, 50, 80, 130, 210, 340, 550, 890, 1440]);
    assert_eq!(half.lengths, (560, 1110));
    let quarter = simulate(0.25, &mut violations);
    let expected = [
        10, 20, 30, 40, 50, 60, 80, 100, 120, 150, 180, 220, 270, 330, 400, 490, 600, 730, 890, 1080, 1320,
        1600, 1950,
    ];
    assert_eq!((&quarter.switches[..], quarter.lengths), (&expected[..], (50, 400)));
    let most = simulate(0.75, &mut violations);
    assert_eq!((&most.switches[..], most.lengths), (&[10, 20, 60, 160, 440, 1200][..], (800, 1560)));
    assert!(violations.is_empty(), "{violations:?}");
}
