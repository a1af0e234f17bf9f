//! The Matérn kernel, ν = 5/2, with a length scale for each coordinate (Rasmussen and Williams 2006, eq. 4.17).

use super::cholesky::Cholesky;

/// A share of the signal's variance that keeps equal points apart.
pub(crate) const JITTER: f64 = 1e-9;

/// Shape of the kernel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hyper {
    /// A length scale for each coordinate.
    pub lengths: Vec<f64>,
    /// Variance of the noise as a share of that of the signal.
    pub noise: f64,
}

impl Hyper {
    /// The correlation of two points: (1 + √5 r + 5 r²/3) exp(−√5 r).
    pub fn correlation(&self, a: &[f64], b: &[f64]) -> f64 {
        let square: f64 = a.iter().zip(b).zip(&self.lengths).map(|((a, b), l)| ((a - b) / l).powi(2)).sum();
        let scaled = (5.0 * square).sqrt();
        (1.0 + scaled + scaled * scaled / 3.0) * (-scaled).exp()
    }

    /// The correlations of measurements at these points. `doubts` are variances of single measurements past the noise of all, as shares of that
    /// of the signal; those that are not there are 0.
    pub fn factor(&self, points: &[Vec<f64>], doubts: &[f64]) -> Option<Cholesky> {
        let own = |i: usize| 1.0 + self.noise + JITTER + doubts.get(i).copied().unwrap_or(0.0);
        let entry =
            |i: usize, j: usize| if i == j { own(i) } else { self.correlation(&points[i], &points[j]) };
        Cholesky::new(points.len(), entry)
    }
}
