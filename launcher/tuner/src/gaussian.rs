//! A Gaussian process with a Matérn kernel, ν = 5/2, and a length scale for each coordinate (Rasmussen and Williams 2006, eq. 4.17).
//!
//! Values are centred and scaled by their own mean and deviation before they are fitted. The scale of the signal has a closed
//! form; length scales and noise are those of the highest posterior density, see [`super::hyper`].

use super::cholesky::{Cholesky, dot};
use super::hyper;
use super::kernel::{Hyper, JITTER};

/// What a Gaussian process expects at a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the mean, without the noise of a measurement.
    pub sd: f64,
}

/// A fitted process.
#[derive(Debug, Clone)]
pub struct GaussianProcess {
    hyper: Hyper,
    points: Vec<Vec<f64>>,
    factor: Cholesky,
    /// The inverse of the correlations times the values, for the mean.
    weights: Vec<f64>,
    /// Standard deviation of the signal, in units of the scaled values.
    signal: f64,
    middle: f64,
    scale: f64,
}

impl GaussianProcess {
    /// Fits values at points of the unit cube. `seed` chooses where the search for length scales begins. `None` without at least
    /// two values that differ.
    pub fn fit(points: &[Vec<f64>], values: &[f64], seed: u64) -> Option<Self> {
        Self::fit_doubtful(points, values, &[], seed)
    }

    /// The same where some values are estimates: `doubts` are their variances, 0 of one that was measured or that is not in the list.
    pub fn fit_doubtful(points: &[Vec<f64>], values: &[f64], doubts: &[f64], seed: u64) -> Option<Self> {
        let count = values.len() as f64;
        let middle = values.iter().sum::<f64>() / count;
        let scale = (values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / count).sqrt();
        if values.len() < 2 || !scale.is_finite() || scale <= 0.0 {
            return None;
        }
        let scaled: Vec<f64> = values.iter().map(|value| (value - middle) / scale).collect();
        // The signal's variance is about that of all values.
        let doubts: Vec<f64> = doubts.iter().map(|doubt| doubt / (scale * scale)).collect();
        let hyper = hyper::fit(points, &scaled, &doubts, seed);
        let factor = hyper.factor(points, &doubts)?;
        let weights = factor.solve(&scaled);
        let signal = (dot(&scaled, &weights) / count).sqrt();
        Some(Self { hyper, points: points.to_vec(), factor, weights, signal, middle, scale })
    }

    /// What it expects at a point.
    pub fn predict(&self, point: &[f64]) -> Prediction {
        let near: Vec<f64> = self.points.iter().map(|p| self.hyper.correlation(p, point)).collect();
        let known = self.factor.solve_lower(&near);
        let variance = (1.0 - dot(&known, &known)).max(0.0);
        // Points taken in by `believe` have weights of 0: `near` is longer then.
        let mean = self.middle + self.scale * dot(&near, &self.weights);
        Prediction { mean, sd: self.scale * self.signal * variance.sqrt() }
    }

    /// The standard deviation of the difference between two points (Rasmussen and Williams 2006, eq. 2.24): small where both go together, however
    /// little is known of each.
    pub fn sd_of_difference(&self, a: &[f64], b: &[f64]) -> f64 {
        let apart = |p: &Vec<f64>| self.hyper.correlation(p, a) - self.hyper.correlation(p, b);
        let known = self.factor.solve_lower(&self.points.iter().map(apart).collect::<Vec<_>>());
        let variance = (2.0 - 2.0 * self.hyper.correlation(a, b) - dot(&known, &known)).max(0.0);
        self.scale * self.signal * variance.sqrt()
    }

    /// Takes in a point as if it had been measured, with the mean as its value: means stay, and deviations around it shrink.
    pub fn believe(&mut self, point: &[f64]) {
        let mut row: Vec<f64> = self.points.iter().map(|p| self.hyper.correlation(p, point)).collect();
        row.push(1.0 + self.hyper.noise + JITTER);
        if self.factor.push(&row).is_some() {
            self.points.push(point.to_vec());
            self.weights.push(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: usize, f: impl Fn(f64) -> f64) -> (Vec<Vec<f64>>, Vec<f64>) {
        let places: Vec<f64> = (0..n).map(|i| i as f64 / (n - 1) as f64).collect();
        (places.iter().map(|x| vec![*x]).collect(), places.iter().map(|x| f(*x)).collect())
    }

    /// At r = ℓ: (1 + √5 + 5/3) exp(−√5) = 0.523994…
    #[test]
    fn the_kernel_is_materns() {
        let hyper = Hyper { lengths: vec![0.3, 2.0], noise: 0.0 };
        assert_eq!(hyper.correlation(&[0.4, 0.4], &[0.4, 0.4]), 1.0);
        let at_one = (1.0 + 5f64.sqrt() + 5.0 / 3.0) * (-5f64.sqrt()).exp();
        assert!((at_one - 0.523994).abs() < 1e-6);
        assert!((hyper.correlation(&[0.1, 0.0], &[0.4, 0.0]) - at_one).abs() < 1e-12);
        assert!((hyper.correlation(&[0.0, 0.0], &[0.0, 2.0]) - at_one).abs() < 1e-12);
    }

    /// One measurement of 1 with signal 1 and noise g, by hand: the mean beside it is k / (1 + g), the variance 1 − k² / (1 + g).
    #[test]
    fn a_prediction_is_that_of_the_textbook() {
        let hyper = Hyper { lengths: vec![0.5], noise: 0.25 };
        let points = vec![vec![0.0]];
        let factor = hyper.factor(&points, &[]).unwrap();
        let weights = factor.solve(&[1.0]);
        let k = hyper.correlation(&[0.0], &[0.3]);
        let made = GaussianProcess { hyper, points, factor, weights, signal: 1.0, middle: 0.0, scale: 1.0 };
        let found = made.predict(&[0.3]);
        assert!(
            (found.mean - k / 1.25).abs() < 1e-8 && (found.sd - (1.0 - k * k / 1.25).sqrt()).abs() < 1e-8
        );
    }

    /// A second coordinate of no effect: what is far from the points is not known well, and yet does not change along it.
    #[test]
    fn a_difference_is_certain_where_two_points_go_together() {
        let (places, values) = line(9, |x| (3.0 * x).sin());
        let points: Vec<Vec<f64>> = places.iter().map(|place| vec![place[0], 0.5]).collect();
        let hyper = Hyper { lengths: vec![0.5, 1e4], noise: 0.01 };
        let factor = hyper.factor(&points, &[]).unwrap();
        let weights = factor.solve(&values);
        let process =
            GaussianProcess { hyper, points, factor, weights, signal: 1.0, middle: 0.0, scale: 1.0 };
        let (here, aside, along) = ([2.0, 0.4], [2.0, 0.6], [2.5, 0.4]);
        let alone = process.predict(&aside).sd;
        assert!(process.sd_of_difference(&here, &aside) < 1e-3 * alone);
        assert_eq!(process.sd_of_difference(&here, &here), 0.0);
        assert!(process.sd_of_difference(&here, &along) > 0.1 * alone);
    }

    /// One measurement with noise g: the variances are 1 − k² / (1 + g), the covariance k(a, b) − k(a) k(b) / (1 + g), by hand.
    #[test]
    fn a_difference_has_the_variances_of_both_without_twice_their_covariance() {
        let hyper = Hyper { lengths: vec![0.5], noise: 0.25 };
        let points = vec![vec![0.0]];
        let factor = hyper.factor(&points, &[]).unwrap();
        let weights = factor.solve(&[1.0]);
        let [a, b] = [0.3, 0.9].map(|x| hyper.correlation(&[0.0], &[x]));
        let both = hyper.correlation(&[0.3], &[0.9]);
        let made = GaussianProcess { hyper, points, factor, weights, signal: 2.0, middle: 0.0, scale: 3.0 };
        let variance = (1.0 - a * a / 1.25) + (1.0 - b * b / 1.25) - 2.0 * (both - a * b / 1.25);
        assert!((made.sd_of_difference(&[0.3], &[0.9]) - 6.0 * variance.sqrt()).abs() < 1e-7);
    }

    /// With a correlation of almost 1 to the one point, and a doubt of 3: the mean is k / (1 + 3), by hand.
    #[test]
    fn a_doubtful_value_counts_for_less() {
        let hyper = Hyper { lengths: vec![0.5], noise: 0.0 };
        let points = vec![vec![0.0]];
        let weights = hyper.factor(&points, &[3.0]).unwrap().solve(&[1.0]);
        assert!((weights[0] - 0.25).abs() < 1e-8);
        // One wild value among others: believed, the curve goes through it; doubted, past it.
        let (points, mut values) = line(9, |x| x);
        values[4] = 3.0;
        let mut doubts = vec![0.0; 9];
        let at = |doubts: &[f64]| {
            GaussianProcess::fit_doubtful(&points, &values, doubts, 1).unwrap().predict(&[0.5]).mean
        };
        let believed = at(&doubts);
        assert_eq!(believed, GaussianProcess::fit(&points, &values, 1).unwrap().predict(&[0.5]).mean);
        doubts[4] = 100.0;
        assert!(believed > 2.0 && (at(&doubts) - 0.5).abs() < 0.2, "{believed}, {}", at(&doubts));
    }

    #[test]
    fn a_smooth_curve_is_met_between_its_points() {
        let curve = |x: f64| (5.0 * x).sin() + 3.0;
        let (points, values) = line(12, curve);
        let process = GaussianProcess::fit(&points, &values, 1).unwrap();
        for x in [0.05, 0.33, 0.51, 0.87] {
            let found = process.predict(&[x]);
            assert!((found.mean - curve(x)).abs() < 0.02, "{x}: {found:?}");
        }
        let (inside, outside) = (process.predict(&[0.5]).sd, process.predict(&[2.0]).sd);
        assert!(inside < 0.1 * outside, "{inside} against {outside}");
    }

    #[test]
    fn a_believed_point_moves_no_mean_and_takes_doubt_away() {
        let (points, values) = line(5, |x| x * x);
        let mut process = GaussianProcess::fit(&points, &values, 1).unwrap();
        let places: Vec<f64> = (0..20).map(|i| f64::from(i) / 19.0).collect();
        let before: Vec<Prediction> = places.iter().map(|x| process.predict(&[*x])).collect();
        process.believe(&[0.6]);
        for (x, before) in places.iter().zip(before) {
            let after = process.predict(&[*x]);
            assert!((after.mean - before.mean).abs() < 1e-9 && after.sd <= before.sd + 1e-12);
        }
        let alone = GaussianProcess::fit(&points, &values, 1).unwrap();
        assert!(process.predict(&[0.6]).sd < alone.predict(&[0.6]).sd);
    }

    #[test]
    fn nothing_is_fitted_to_values_that_do_not_differ() {
        let (points, values) = line(3, |_| 2.0);
        assert!(GaussianProcess::fit(&points, &values, 1).is_none());
        assert!(GaussianProcess::fit(&points[..1], &[1.0], 1).is_none());
        assert!(GaussianProcess::fit(&points, &[1.0, f64::NAN, 2.0], 1).is_none());
    }
}
