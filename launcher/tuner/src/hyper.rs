//! Length scales and noise of the highest posterior density: the likelihood of the values (Rasmussen and Williams 2006, eq. 5.8) with
//! the scale of the signal at its own maximum, times priors that keep few values from being explained by wild scales.

use segue_random::{Draws, Purpose};

use super::cholesky::dot;
use super::kernel::Hyper;

/// Counter of the draws of this module, see [`Purpose::Tuning`].
const USE: u64 = 1;
/// The prior of ln ℓ: its median grows with the root of the number of coordinates, as distances do (Hvarfner et al. 2024).
const LENGTH_MEDIAN: f64 = 0.4;
const LENGTH_SD: f64 = 1.0;
/// The prior of the noise's logarithm.
const NOISE_MEDIAN: f64 = 1e-3;
const NOISE_SD: f64 = 2.0;
/// The logarithms are looked for so many deviations around their medians.
const FAR: f64 = 3.0;
/// Places where the search begins, besides the medians; it goes on from the best of them all.
const STARTS: usize = 8;
/// First and last step of the search, in deviations.
const STEP: (f64, f64) = (0.8, 0.05);

/// The best shape that a compass search finds: it moves a coordinate at a time, and halves its step where none helps. `doubts` as in
/// [`Hyper::factor`].
pub(crate) fn fit(points: &[Vec<f64>], scaled: &[f64], doubts: &[f64], seed: u64) -> Hyper {
    let coordinates = points.first().map_or(0, Vec::len);
    let density = |at: &[f64]| -> f64 {
        let prior = at.iter().map(|z| 0.5 * z * z).sum::<f64>();
        log_likelihood(&shape(at), points, scaled, doubts) - prior
    };
    let mut draws = Draws::new(seed, Purpose::Tuning, &[USE]);
    let mut best = vec![0.0; coordinates + 1];
    let mut height = density(&best);
    for _ in 0..STARTS {
        let start: Vec<f64> = (0..=coordinates).map(|_| FAR * (draws.uniform() - 0.5)).collect();
        let found = density(&start);
        if found > height {
            (best, height) = (start, found);
        }
    }
    let mut step = STEP.0;
    while step > STEP.1 {
        let mut moved = false;
        for i in 0..best.len() {
            for direction in [step, -step] {
                let mut next = best.clone();
                next[i] = (next[i] + direction).clamp(-FAR, FAR);
                let found = density(&next);
                if found > height {
                    (best, height, moved) = (next, found, true);
                }
            }
        }
        if !moved {
            step /= 2.0;
        }
    }
    shape(&best)
}

/// The shape at so many deviations from the medians; the last is that of the noise.
fn shape(at: &[f64]) -> Hyper {
    let (noise, lengths) = at.split_last().unwrap_or((&0.0, &[]));
    let median = LENGTH_MEDIAN * (lengths.len() as f64).sqrt();
    Hyper {
        lengths: lengths.iter().map(|z| median * (LENGTH_SD * z).exp()).collect(),
        noise: NOISE_MEDIAN * (NOISE_SD * noise).exp(),
    }
}

/// Up to a constant: −n/2 ln(yᵀ R⁻¹ y / n) − ½ ln |R|.
fn log_likelihood(hyper: &Hyper, points: &[Vec<f64>], scaled: &[f64], doubts: &[f64]) -> f64 {
    let Some(factor) = hyper.factor(points, doubts) else { return f64::NEG_INFINITY };
    let half = factor.solve_lower(scaled);
    let (count, fit) = (scaled.len() as f64, dot(&half, &half));
    -0.5 * (count * (fit / count).ln() + factor.log_determinant())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With two values ±1 at correlation c and own variance v: yᵀ R⁻¹ y = 2 / (v − c), |R| = v² − c².
    #[test]
    fn the_likelihood_is_that_of_a_hand_computation() {
        let hyper = Hyper { lengths: vec![0.7], noise: 0.1 };
        let points = vec![vec![0.2], vec![0.5]];
        let (c, v) = (hyper.correlation(&points[0], &points[1]), 1.1);
        let expected = -0.5 * (2.0 * (1.0 / (v - c)).ln() + (v * v - c * c).ln());
        assert!((log_likelihood(&hyper, &points, &[1.0, -1.0], &[]) - expected).abs() < 1e-8);
    }

    #[test]
    fn a_coordinate_that_does_not_count_has_a_long_scale() {
        let draws = Draws::new(3, Purpose::Tuning, &[9]);
        let mut draws = draws;
        let points: Vec<Vec<f64>> = (0..30).map(|_| vec![draws.uniform(), draws.uniform()]).collect();
        let values: Vec<f64> = points.iter().map(|p| (6.0 * p[0]).sin()).collect();
        let found = fit(&points, &values, &[], 1);
        assert!(found.lengths[1] > 4.0 * found.lengths[0], "{found:?}");
    }
}
