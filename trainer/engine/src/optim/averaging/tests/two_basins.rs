//! A problem of two basins, the second of which opens at step 61: every evaluation against an independent implementation.

use segue_configs::TwoTailedVariant::{self, Core, Extended, Monotone};

use super::*;
use crate::optim::averaging::Saved;

/// Period of the evaluations, and the last step.
pub(super) const PERIOD: u64 = 3;
pub(super) const STEPS: u64 = 108;

/// θ_1 … θ_108: a decaying start and noise of a linear congruential generator, which is exact everywhere.
pub(super) fn iterates() -> Vec<Vec<f64>> {
    let mut x: u64 = 12345;
    let mut noise = || {
        x = (1_103_515_245 * x + 12345) % (1 << 31);
        4.0 * (x as f64 / (1u64 << 31) as f64 - 0.5)
    };
    let centre = |t: u64| if t <= 60 { 1.0 } else { 3.0 };
    (1..=STEPS)
        .map(|t| (0..4).map(|_| centre(t) - 12.0 * 0.75f64.powi(t as i32) + noise()).collect())
        .collect()
}

/// Squared distance from 1, or from 3, which is better by a half.
pub(super) fn loss(weights: &[f64]) -> f64 {
    let from = |c: f64| weights.iter().map(|w| (w - c).powi(2)).sum::<f64>() / weights.len() as f64;
    from(1.0).min(from(3.0) - 0.5)
}

/// One evaluation, in the columns of `two_basins.txt`.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    step: u64,
    before: (u64, u64),
    losses: [f64; 2],
    after: (u64, u64),
    length: u64,
    loss: f64,
    mean: f64,
    events: String,
}

impl Row {
    fn read(line: &str) -> Self {
        let c: Vec<&str> = line.split_whitespace().collect();
        let (integer, real) = (|i: usize| c[i].parse().unwrap(), |i: usize| c[i].parse().unwrap());
        Self {
            step: integer(1),
            before: (integer(2), integer(3)),
            losses: [real(4), real(5)],
            after: (integer(6), integer(7)),
            length: integer(8),
            loss: real(9),
            mean: real(10),
            events: c[11].into(),
        }
    }

    /// The numbers, to nine digits after the point.
    fn assert_is(&self, expected: &Self) {
        let reals = |row: &Self| [row.losses[0], row.losses[1], row.loss, row.mean];
        for (found, expected) in reals(self).into_iter().zip(reals(expected)) {
            assert!((found - expected).abs() < 1e-9, "{self:?}");
        }
        let rest = |row: &Self| (row.step, row.before, row.after, row.length, row.events.clone());
        assert_eq!(rest(self), rest(expected));
    }
}

fn golden(variant: &str) -> Vec<Row> {
    let lines = include_str!("two_basins.txt").lines();
    lines.filter(|line| line.split_whitespace().next() == Some(variant)).map(Row::read).collect()
}

/// The averaging on its way through the problem.
struct Walk {
    averaging: TwoTailed,
    live: Parameters,
}

impl Walk {
    fn new(variant: TwoTailedVariant) -> Self {
        Self { averaging: two_tailed(variant, PERIOD), live: parameters(&[0.0; 4], Kind::Double) }
    }

    fn step(&mut self, step: u64, weights: &[f64]) -> Option<(Row, Choice)> {
        set(&self.live, weights);
        self.averaging.fold(step, &self.live);
        step.is_multiple_of(PERIOD).then(|| self.evaluate(step))
    }

    fn evaluate(&mut self, step: u64) -> (Row, Choice) {
        let before = self.averaging.lengths();
        let candidates = self.averaging.candidates();
        let weights: Vec<Vec<f64>> =
            candidates.iter().map(|c| values(c.weights.unwrap_or(self.live.tensors()))).collect();
        let of = |name| candidates.iter().position(|c| c.name == name).map(|i| loss(&weights[i]));
        let long = of("long").unwrap();
        let losses = [of("short").unwrap_or(long), long];
        let choice = evaluate(&mut self.averaging, step, &self.live, &loss);
        let events: Vec<String> =
            choice.events.iter().map(|e| serde_json::json!(e).as_str().unwrap().to_string()).collect();
        let row = Row {
            step,
            before,
            losses,
            after: self.averaging.lengths(),
            length: choice.length,
            loss: choice.loss,
            mean: mean(&weights[choice.candidate]),
            events: if events.is_empty() { "-".into() } else { events.join(",") },
        };
        (row, choice)
    }

    fn trace(variant: TwoTailedVariant) -> Vec<(Row, Choice)> {
        let mut walk = Self::new(variant);
        (1..).zip(iterates()).filter_map(|(step, weights)| walk.step(step, &weights)).collect()
    }
}

/// What the oracle needs of a run: step, S and L after the decision, length and loss that are reported.
pub(super) fn reports(variant: TwoTailedVariant) -> Vec<(u64, (u64, u64), u64, f64)> {
    Walk::trace(variant).into_iter().map(|(row, _)| (row.step, row.after, row.length, row.loss)).collect()
}

fn assert_trace(variant: TwoTailedVariant, name: &str) {
    let (found, expected) = (Walk::trace(variant), golden(name));
    assert_eq!((found.len(), expected.len()), (36, 36));
    for ((row, _), expected) in found.iter().zip(&expected) {
        row.assert_is(expected);
    }
}

/// Row A1.
#[test]
fn core_algorithm_follows_the_golden_trace() {
    let expected = [-7.379383806, -8.780742707, -7.300157465, -9.572926065];
    for (found, expected) in iterates()[0].iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9);
    }
    assert_trace(Core, "core");
    let switches = Walk::trace(Core).into_iter().filter(|(row, _)| row.events == "switched");
    assert_eq!(switches.map(|(row, _)| row.step).collect::<Vec<_>>(), [3, 6, 9, 12, 33, 90, 93]);
}

/// Propositions 1 to 4, which hold on every problem.
/// Row A1.
#[test]
fn lengths_obey_the_propositions() {
    let mut switched_at = 0;
    for (row, _) in Walk::trace(Core) {
        if row.events == "switched" {
            switched_at = row.before.0;
        }
        let (s, l) = row.after;
        assert!(s % PERIOD == 0 && l % PERIOD == 0 && s <= l && l <= row.step, "{row:?}");
        assert!(s == 0 || row.losses[0] > row.losses[1], "{row:?}");
        assert_eq!(l, s + switched_at, "{row:?}");
    }
}

/// Row A2.
#[test]
fn extended_algorithm_follows_the_golden_trace() {
    assert_trace(Extended, "extended");
}

/// A loss that rises because an average was dropped does not touch the best weights.
/// Row A3.
#[test]
fn best_weights_are_kept_while_the_reported_loss_spikes() {
    let mut walk = Walk::new(Extended);
    let mut bests = Vec::new();
    let mut lowest = f64::INFINITY;
    for (step, weights) in (1..).zip(iterates()) {
        let Some((row, choice)) = walk.step(step, &weights) else { continue };
        let best = choice.best.unwrap();
        lowest = lowest.min(row.loss);
        assert_eq!((best.loss, best.since), (lowest, (row.step - best.step) / PERIOD), "step {step}");
        // The weights kept are those that gave the loss.
        assert_eq!(loss(&values(walk.averaging.chosen().unwrap())), best.loss, "step {step}");
        bests.push((row.step, row.loss, best.loss));
    }
    assert!(bests.windows(2).all(|pair| pair[1].2 <= pair[0].2));
    let (_, spike, best) = bests.into_iter().find(|(step, ..)| *step == 48).unwrap();
    assert!((spike - 0.170565652).abs() < 1e-9 && (best - 0.009941577).abs() < 1e-9);
}

/// Stopped after every step in turn, between evaluations too, a run goes on as if nothing had happened.
/// Row A5.
#[test]
fn a_run_that_stops_anywhere_resumes_to_the_same_trace() {
    for variant in [Extended, Core, Monotone] {
        let whole = Walk::trace(variant);
        let iterates = iterates();
        let mut walk = Walk::new(variant);
        let mut choices: Vec<(Row, Choice)> = Vec::new();
        for (step, weights) in (1..).zip(&iterates) {
            choices.extend(walk.step(step, weights));
            let (averaging, live) = (&walk.averaging, &walk.live);
            let copies = |tensors: &[Tensor]| tensors.iter().map(Tensor::copy).collect::<Vec<_>>();
            let saved = Saved {
                // Through text, as in a file.
                state: serde_json::from_str(&averaging.state().to_string()).unwrap(),
                chosen: copies(averaging.chosen().unwrap_or(live.tensors())),
                tables: averaging.named_tables(live).into_iter().map(|(name, t)| (name, t.copy())).collect(),
            };
            let mut resumed = two_tailed(variant, PERIOD);
            resumed.restore(saved, live).unwrap();
            assert_eq!(resumed.state(), averaging.state());
            walk.averaging = resumed;
        }
        assert_eq!(choices, whole);
        assert_eq!(walk.averaging.chosen().map(values), {
            let mut undisturbed = Walk::new(variant);
            (1..).zip(&iterates).for_each(|(step, weights)| _ = undisturbed.step(step, weights));
            undisturbed.averaging.chosen().map(values)
        });
    }
}

/// An evaluation between two periods, as after the last step of a run, reports and changes no average.
/// Row A5.
#[test]
fn an_evaluation_out_of_turn_leaves_the_averages_alone() {
    let (undisturbed, mut walk) = (Walk::trace(Extended), Walk::new(Extended));
    let mut rows = Vec::new();
    for (step, weights) in (1..).zip(iterates()) {
        match walk.step(step, &weights) {
            Some((row, _)) => {
                rows.push(row);
                // A run that is started again after its end evaluates its last step once more.
                let (again, now) =
                    (walk.averaging.lengths(), evaluate(&mut walk.averaging, step, &walk.live, &loss));
                assert_eq!(
                    (walk.averaging.lengths(), now.loss),
                    (again, rows.last().unwrap().loss),
                    "step {step}"
                );
            }
            None => {
                let choice = evaluate(&mut walk.averaging, step, &walk.live, &loss);
                let candidates = walk.averaging.candidates();
                let lowest =
                    candidates.iter().map(|c| loss(&values(c.weights.unwrap_or(walk.live.tensors()))));
                assert_eq!(choice.loss, lowest.fold(f64::INFINITY, f64::min), "step {step}");
            }
        }
    }
    assert_eq!(rows, undisturbed.into_iter().map(|(row, _)| row).collect::<Vec<_>>());
}

/// What an averaging holds besides its weights, and all of its weights by name.
fn held(averaging: &TwoTailed, live: &Parameters) -> (serde_json::Value, Vec<(String, Vec<f64>)>) {
    let tables = averaging.named_tables(live).into_iter().map(|(name, table)| (name, values(&[table])));
    let chosen = averaging.chosen().map(|weights| ("chosen".to_string(), values(weights)));
    (averaging.state(), tables.chain(chosen).collect())
}

/// A run may end after any step, with an evaluation that finds its weights better than all before, and be made longer: what it found there is
/// its model until training goes on, and then it is what it would have been.
/// Row A5.
#[test]
fn a_run_made_longer_knows_nothing_of_where_it_ended_before() {
    for (variant, through_a_checkpoint) in
        [(Extended, false), (Extended, true), (Core, true), (Monotone, false)]
    {
        let (mut undisturbed, mut walk) = (Walk::new(variant), Walk::new(variant));
        for (step, weights) in (1..).zip(iterates()) {
            undisturbed.step(step, &weights);
            walk.step(step, &weights);
            assert_eq!(
                held(&walk.averaging, &walk.live),
                held(&undisturbed.averaging, &undisturbed.live),
                "{variant:?}, step {step}"
            );
            let lower = -100.0 - step as f64;
            let losses = ["trained", "short", "long"].map(|name| (name, lower));
            let choice = tell(&mut walk.averaging, step, &losses, &walk.live);
            let best = choice.best.unwrap();
            assert_eq!((best.step, best.loss, best.since), (step, lower, 0));
            assert_eq!(walk.averaging.best(), Some(best));
            // The model is what was found best, not what was best before.
            let model = values(walk.averaging.chosen().unwrap_or(walk.live.tensors()));
            let candidates = walk.averaging.candidates();
            assert_eq!(model, values(candidates[choice.candidate].weights.unwrap_or(walk.live.tensors())));
            if through_a_checkpoint {
                let (averaging, live) = (&walk.averaging, &walk.live);
                let mut resumed = two_tailed(variant, PERIOD);
                resumed.restore(checkpoints::stored(averaging, live), live).unwrap();
                assert_eq!(held(&resumed, live), held(averaging, live));
                walk.averaging = resumed;
            }
        }
    }
}

/// Row A12.
#[test]
fn extensions_find_the_second_basin_sooner() {
    let first_below = |variant| {
        let found = Walk::trace(variant).into_iter().find(|(row, _)| row.loss < -0.4);
        found.unwrap().0.step
    };
    assert_eq!((first_below(Extended), first_below(Core)), (75, 99));
}

/// Row A16.
#[test]
fn monotone_switches_never_raise_the_loss() {
    let trace = Walk::trace(Monotone);
    let (steps, losses): (Vec<u64>, Vec<f64>) = trace
        .into_iter()
        .filter(|(row, _)| row.events == "switched")
        .map(|(row, _)| (row.step, row.losses[0]))
        .unzip();
    assert_eq!(steps, [3, 6, 9, 12, 33, 108]);
    let expected = [51.671596358, 5.774230872, 2.726952418, 0.311701397, 0.073052784, 0.041025725];
    assert!(
        losses.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9),
        "{losses:?}"
    );
}
