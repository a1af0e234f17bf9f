//! Expected numbers: golden row G6, the search of a table of probabilities by the last token.

use tch::{Device, Kind};

use super::*;
use crate::Attention;

/// Probabilities of the end and of three tokens after the start and after each of these.
const START: [f64; 4] = [0.05, 0.50, 0.45, 0.0];
const AFTER: [[f64; 4]; 3] = [[0.20, 0.10, 0.30, 0.40], [0.40, 0.05, 0.05, 0.50], [0.70, 0.10, 0.10, 0.10]];
const BEGIN: i64 = 9;
const SYMBOLS: Symbols = Symbols { start: BEGIN, end: 0, never: None };

fn log_probs_after(last: i64) -> [f64; 4] {
    if last == BEGIN { START } else { AFTER[last as usize - 1] }.map(f64::ln)
}

/// A decoder that knows the last token alone, and counts its rows.
struct Table {
    rows: i64,
    fewest: std::rc::Rc<std::cell::Cell<i64>>,
}

impl Decoder for Table {
    fn read(&mut self, _: &Tensor) {}

    fn step(&mut self, last: &Tensor) -> Tensor {
        let last = Vec::<i64>::try_from(last).unwrap();
        assert_eq!(last.len() as i64, self.rows);
        self.fewest.set(self.fewest.get().min(self.rows));
        let values: Vec<f64> = last.into_iter().flat_map(log_probs_after).collect();
        Tensor::from_slice(&values).view([-1, 4])
    }

    fn keep(&mut self, rows: &Tensor) {
        assert!(rows.max().int64_value(&[]) < self.rows);
        self.rows = rows.size()[0];
    }

    fn device(&self) -> Device {
        Device::Cpu
    }
}

fn table(rows: usize) -> Box<Table> {
    Box::new(Table { rows: rows as i64, fewest: std::rc::Rc::new(std::cell::Cell::new(i64::MAX)) })
}

fn search(beams: usize, alpha: f64, form: LengthPenalty, finish: Finish) -> Vec<Hypothesis> {
    let settings = BeamSettings { beams, alpha, form, finish, ..BeamSettings::default() };
    beam_search(table(beams), &[6], SYMBOLS, &settings).remove(0)
}

fn check(found: &[Hypothesis], expected: &[(&[i64], f64, f64)]) {
    for (found, (tokens, score, log_prob)) in found.iter().zip(expected) {
        assert_eq!(found.tokens, *tokens);
        assert!((found.score - score).abs() < 1e-9 && (found.log_prob - log_prob).abs() < 1e-9, "{found:?}");
    }
    assert!(found.len() >= expected.len());
}

/// Golden row G6.
/// Row S23.
#[test]
fn searches_find_what_the_specification_has() {
    use Finish::{First, Ranked, Worst};
    use LengthPenalty::{Gnmt, Length};
    check(&search(1, 0.0, Gnmt, Worst), &[(&[1, 3], -1.966112856, -1.966112856)]);
    check(
        &search(2, 0.0, Gnmt, Worst),
        &[(&[2], -1.714798428, -1.714798428), (&[2, 3], -1.848329821, -1.848329821)],
    );
    check(&search(1, 0.6, Gnmt, Worst), &[(&[1, 3], -1.654417827, -1.966112856)]);
    let both: [(&[i64], f64, f64); 2] =
        [(&[2, 3], -1.555307365, -1.848329821), (&[2], -1.563309629, -1.714798428)];
    check(&search(2, 0.6, Gnmt, Worst), &both);
    let four = search(4, 0.6, Gnmt, Worst);
    check(&four, &both);
    check(&four[2..], &[(&[1, 3], -1.654417827, -1.966112856), (&[1], -2.099170019, 0.1f64.ln())]);
    check(
        &search(2, 1.0, Length, Worst),
        &[(&[2, 3], -0.616109940, -1.848329821), (&[1, 3], -0.655370952, -1.966112856)],
    );
    check(&search(2, 0.0, Gnmt, First), &[(&[2, 3], -1.848329821, -1.848329821)]);
    // By hand: the end after 2, of probability 0.18, is the third of its step, behind 2 3 and 1 3.
    let ranked = [(&[2, 3][..], -1.848329821, -1.848329821), (&[1, 3], -1.966112856, -1.966112856)];
    check(&search(2, 0.0, Gnmt, Ranked), &ranked);
}

/// By hand: of at most two tokens, 1 and 2 are alive after the first, of probabilities 0.50 and 0.45, and the second is their end at no cost.
#[test]
fn what_is_alive_ends_with_the_last_token_where_ends_are_ranked() {
    let settings = |finish| BeamSettings {
        beams: 2,
        alpha: 1.0,
        form: LengthPenalty::Length,
        finish,
        ..Default::default()
    };
    let found = |finish| beam_search(table(2), &[2], SYMBOLS, &settings(finish)).remove(0);
    let (first, second) = (0.5f64.ln(), 0.45f64.ln());
    let ranked = found(Finish::Ranked);
    check(&ranked, &[(&[1], first / 2.0, first), (&[2], second / 2.0, second)]);
    assert!(ranked.len() == 2 && ranked.iter().all(|found| found.ended));
    let second = (0.45 * 0.4f64).ln();
    check(&found(Finish::Worst), &[(&[2], second / 2.0, second)]);
}

/// Every text of at most `limit` tokens that ends, and its score.
fn brute_force(limit: usize, settings: &BeamSettings) -> Vec<(f64, Vec<i64>)> {
    let (mut open, mut ended) = (vec![(Vec::new(), 0.0)], Vec::new());
    for length in 1..=limit {
        let mut next = Vec::new();
        for (tokens, log_prob) in &open {
            let after = log_probs_after(tokens.last().copied().unwrap_or(BEGIN));
            for (token, more) in after.into_iter().enumerate().filter(|(_, more)| more.is_finite()) {
                let log_prob: f64 = log_prob + more;
                let mut tokens: Vec<i64> = tokens.clone();
                if token == 0 {
                    ended.push((log_prob / settings.penalty(length), tokens));
                } else {
                    tokens.push(token as i64);
                    next.push((tokens, log_prob));
                }
            }
        }
        open = next;
    }
    ended.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    ended
}

/// Row S23.
#[test]
fn a_beam_as_wide_as_the_space_finds_what_brute_force_does() {
    for (alpha, form) in
        [(0.0, LengthPenalty::Gnmt), (0.6, LengthPenalty::Gnmt), (1.0, LengthPenalty::Length)]
    {
        let settings = BeamSettings { beams: 81, alpha, form, ..BeamSettings::default() };
        let found = beam_search(table(81), &[4], SYMBOLS, &settings).remove(0);
        let all = brute_force(4, &settings);
        for (found, (score, tokens)) in found.iter().zip(&all).take(40) {
            assert!((found.score - score).abs() < 1e-12 && found.tokens == *tokens, "{found:?}");
        }
    }
}

/// With a bound on its length, no rule ends a search before the best text is found.
#[test]
fn the_best_text_is_the_same_by_both_rules_that_bound() {
    for alpha in [0.0, 0.6, 1.0] {
        let [worst, best] = [Finish::Worst, Finish::Best]
            .map(|finish| search(3, alpha, LengthPenalty::Gnmt, finish).remove(0));
        assert_eq!(worst, best, "{alpha}");
    }
}

#[test]
fn texts_side_by_side_are_found_as_if_alone_and_leave_when_done() {
    let settings = BeamSettings { beams: 2, ..BeamSettings::default() };
    let limits = [6, 1, 3, 2];
    let decoder = table(8);
    let fewest = decoder.fewest.clone();
    let together = beam_search(decoder, &limits, SYMBOLS, &settings);
    for (limit, together) in limits.into_iter().zip(&together) {
        let alone = beam_search(table(2), &[limit], SYMBOLS, &settings).remove(0);
        assert_eq!(*together, alone, "{limit}");
    }
    assert!(fewest.get() < 8);
}

#[test]
fn what_is_never_written_is_not_and_a_text_without_an_end_is_cut() {
    let symbols = Symbols { never: Some(0), end: 7, ..SYMBOLS };
    let settings = BeamSettings { beams: 2, ..BeamSettings::default() };
    let found = beam_search(table(2), &[3], symbols, &settings).remove(0);
    assert!(found.iter().all(|found| !found.ended && found.tokens.len() == 3 && !found.tokens.contains(&0)));
}

/// A decoder that attends to the first of two positions unless it writes token 2.
struct Attends(Table, Vec<i64>);

impl Decoder for Attends {
    fn read(&mut self, ids: &Tensor) {
        self.0.read(ids);
    }

    fn step(&mut self, last: &Tensor) -> Tensor {
        self.1 = Vec::<i64>::try_from(last).unwrap();
        self.0.step(last)
    }

    fn keep(&mut self, rows: &Tensor) {
        self.0.keep(rows);
    }

    fn attention(&self) -> Option<Attention> {
        let rows: Vec<f64> =
            self.1.iter().flat_map(|last| if *last == 2 { [0.2, 0.8] } else { [0.9, 0.1] }).collect();
        let weights = Tensor::from_slice(&rows).view([-1, 2]).to_kind(Kind::Float);
        // Padding, which nothing attends to.
        let weights = weights.constant_pad_nd([0, 3]);
        Some(Attention { weights, lengths: vec![2; self.1.len()] })
    }

    fn device(&self) -> Device {
        Device::Cpu
    }
}

#[test]
fn coverage_lowers_the_score_of_what_leaves_a_position_out() {
    let settings =
        BeamSettings { beams: 4, alpha: 0.0, coverage: 0.5, alignments: true, ..BeamSettings::default() };
    let decoder = Box::new(Attends(*table(4), Vec::new()));
    let found = beam_search(decoder, &[6], SYMBOLS, &settings).remove(0);
    let of = |tokens: &[i64]| found.iter().find(|found| found.tokens == tokens).unwrap();
    // Tokens 2 and the end attend [0.9 + 0.2, 0.1 + 0.8]; 1, 3 and the end three times [0.9, 0.1].
    let two = of(&[2]);
    assert!((two.score - two.log_prob - 0.5 * 0.9f64.ln()).abs() < 1e-6, "{two:?}");
    assert_eq!(two.alignments, [[0.9, 0.1]]);
    let three = of(&[1, 3]);
    assert!((three.score - three.log_prob - 0.5 * 0.3f64.ln()).abs() < 1e-6, "{three:?}");
}
