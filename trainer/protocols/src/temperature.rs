//! The search for a temperature on a validation split, over the grid of Melis et al. (2020).

use serde::Serialize;

/// Inverse temperatures in the order in which they are tried, in hundredths: what scores are multiplied by.
const GRID: std::ops::RangeInclusive<i32> = 80..=106;
const STEP: usize = 2;
/// Points in succession that may be no better than the best before a search that stops early ends, as in their program.
const PATIENCE: usize = 2;
/// Tokens of the validation split that the published searches look at.
pub const USUAL_TOKENS: u64 = 50_000;

/// A point of the search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tried {
    /// The inverse temperature.
    pub temperature: f64,
    /// nats a target.
    pub loss: f64,
}

/// Tries inverse temperatures from 1.06 downwards to 0.80 in steps of 0.02; with `stop_early`, until two in succession are no better than the best
/// before them, which may miss the best of a loss with two valleys. 1 is always among those tried. `loss` is asked for the loss at each.
pub fn search_temperature<E>(
    stop_early: bool,
    mut loss: impl FnMut(f64) -> Result<f64, E>,
) -> Result<Vec<Tried>, E> {
    let mut tried: Vec<Tried> = Vec::new();
    let mut since = 0;
    for hundredths in GRID.rev().step_by(STEP) {
        let temperature = f64::from(hundredths) / 100.0;
        let point = Tried { temperature, loss: loss(temperature)? };
        since = if best(&tried, |point| point.loss).is_none_or(|best| point.loss < best.loss) {
            0
        } else {
            since + 1
        };
        tried.push(point);
        if stop_early && since >= PATIENCE {
            break;
        }
    }
    if tried.iter().all(|point| point.temperature != 1.0) {
        tried.push(Tried { temperature: 1.0, loss: loss(1.0)? });
    }
    Ok(tried)
}

/// The point of the lowest loss, the first of equal ones. `None` where no loss is a finite number.
pub fn best<T: Copy>(tried: &[T], loss: impl Fn(&T) -> f64) -> Option<T> {
    let finite = tried.iter().copied().filter(|point| loss(point).is_finite());
    finite.min_by(|a, b| loss(a).total_cmp(&loss(b)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn searched(stop_early: bool, loss: impl Fn(f64) -> f64) -> Vec<f64> {
        let tried = search_temperature(stop_early, |t| Ok::<f64, Infallible>(loss(t))).unwrap();
        tried.iter().map(|point| point.temperature).collect()
    }

    fn found(stop_early: bool, loss: impl Fn(f64) -> f64) -> Tried {
        let tried = search_temperature(stop_early, |t| Ok::<f64, Infallible>(loss(t))).unwrap();
        best(&tried, |point| point.loss).unwrap()
    }

    /// Row M14.
    #[test]
    fn a_search_that_stops_early_goes_down_the_grid_and_stops_after_two_that_are_no_better() {
        let valley = |t: f64| (t - 0.955).abs();
        assert_eq!(searched(true, valley), [1.06, 1.04, 1.02, 1.0, 0.98, 0.96, 0.94, 0.92]);
        let found = found(true, valley);
        assert!(found.temperature == 0.96 && (found.loss - 0.005).abs() < 1e-12);
        // One that ends above 1 looks at 1 all the same, and is never worse than it.
        let falling = |t: f64| if t == 1.0 { 0.0 } else { 2.0 - t };
        assert_eq!(searched(true, falling), [1.06, 1.04, 1.02, 1.0]);
    }

    /// Row M14.
    #[test]
    fn the_whole_grid_is_tried_and_its_least_loss_found() {
        let grid: Vec<f64> = (0..14).map(|i| f64::from(106 - 2 * i) / 100.0).collect();
        // Two valleys, the deeper one after two points that are no better.
        let valleys = |t: f64| (t - 1.02).abs().min((t - 0.84).abs() - 0.01);
        assert_eq!(searched(false, valleys), grid);
        assert_eq!((found(false, valleys).temperature, found(true, valleys).temperature), (0.84, 1.02));
        for least in &grid {
            assert_eq!(found(false, |t| (t - least).powi(2)).temperature, *least);
        }
        // One that is not a number hides nothing.
        let broken = |t: f64| if t > 1.03 { f64::NAN } else { (t - 0.9).abs() };
        assert_eq!(found(false, broken).temperature, 0.9);
        // Of equal ones the first, and none of what is no finite number.
        let tried = [(1, f64::NEG_INFINITY), (2, 3.0), (3, 2.0), (4, 2.0), (5, f64::NAN)];
        assert_eq!(best(&tried, |(_, loss)| *loss), Some((3, 2.0)));
        assert_eq!(best(&[(1, f64::NAN), (2, f64::INFINITY)], |(_, loss)| *loss), None);
    }
}
