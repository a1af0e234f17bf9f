//! The search for a temperature on a validation split, as the program of Melis et al. (2020) makes it.

use serde::Serialize;

/// Inverse temperatures in the order in which they are tried, in hundredths: what scores are multiplied by.
const GRID: std::ops::RangeInclusive<i32> = 80..=106;
const STEP: usize = 2;
/// Points in succession that may be no better than the best before the search ends.
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

/// Tries inverse temperatures from 1.06 downwards in steps of 0.02 until two in succession are no better than the best before them, or 0.80 is
/// reached; with `all`, all of them. 1 is always among those tried. `loss` is asked for the loss at each.
pub fn search_temperature<E>(
    all: bool,
    mut loss: impl FnMut(f64) -> Result<f64, E>,
) -> Result<Vec<Tried>, E> {
    let mut tried: Vec<Tried> = Vec::new();
    let mut since = 0;
    for hundredths in GRID.rev().step_by(STEP) {
        let temperature = f64::from(hundredths) / 100.0;
        let point = Tried { temperature, loss: loss(temperature)? };
        since = if best(&tried).is_none_or(|best| point.loss < best.loss) { 0 } else { since + 1 };
        tried.push(point);
        if since >= PATIENCE && !all {
            break;
        }
    }
    if tried.iter().all(|point| point.temperature != 1.0) {
        tried.push(Tried { temperature: 1.0, loss: loss(1.0)? });
    }
    Ok(tried)
}

/// The point of the lowest loss, the first of equal ones.
pub fn best(tried: &[Tried]) -> Option<Tried> {
    tried.iter().copied().filter(|point| !point.loss.is_nan()).min_by(|a, b| a.loss.total_cmp(&b.loss))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn searched(all: bool, loss: impl Fn(f64) -> f64) -> Vec<f64> {
        let tried = search_temperature(all, |t| Ok::<f64, Infallible>(loss(t))).unwrap();
        tried.iter().map(|point| point.temperature).collect()
    }

    #[test]
    fn m14_the_search_goes_down_the_grid_and_stops_after_two_that_are_no_better() {
        let valley = |t: f64| (t - 0.955).abs();
        assert_eq!(searched(false, valley), [1.06, 1.04, 1.02, 1.0, 0.98, 0.96, 0.94, 0.92]);
        let whole = searched(true, valley);
        assert_eq!((whole.len(), whole[13]), (14, 0.8));
        let best = best(&search_temperature(false, |t| Ok::<f64, Infallible>(valley(t))).unwrap()).unwrap();
        assert!(best.temperature == 0.96 && (best.loss - 0.005).abs() < 1e-12);
        // One that ends above 1 looks at 1 all the same, and is never worse than it.
        let falling = |t: f64| if t == 1.0 { 0.0 } else { 2.0 - t };
        assert_eq!(searched(false, falling), [1.06, 1.04, 1.02, 1.0]);
    }
}
