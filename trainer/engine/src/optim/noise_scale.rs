//! The gradient noise scale (McCandlish et al. 2018, appendix A): about how many targets a batch should have.

use serde::{Deserialize, Serialize};

/// What one measurement leaves of the averages. Both parts of a single one scatter widely.
const SMOOTHING: f64 = 0.99;

/// What one step tells of the noise in a gradient: unbiased estimates of |G|², where G is the gradient of the mean loss over all
/// data, and of tr Σ, where Σ is the covariance over targets of the gradients of their losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseEstimate {
    /// |G|²; may be negative.
    pub square: f64,
    /// tr Σ
    pub trace: f64,
}

impl NoiseEstimate {
    /// Sums over micro-steps that an estimate is made of.
    pub const PARTS: usize = 2;

    /// What a micro-step adds to them: the squared norm of its gradient, a sum over `weight` targets.
    pub fn part(squared_norm: f64, weight: f64) -> [f64; Self::PARTS] {
        [squared_norm, weight * weight]
    }

    /// From the sums over micro-steps, and the norm of the gradient of the whole batch, a sum over `weight` targets. `None` where
    /// one micro-step is the whole batch.
    ///
    /// With gradients g_i that are sums over w_i targets, `E|g_i|² = w_i² |G|² + w_i tr Σ`, and likewise for their sum over
    /// W = Σ w_i targets. Solved for both unknowns, these are the estimates of appendix A.1, for small batches that may differ in
    /// size.
    pub fn of(parts: &[f64], norm: f64, weight: f64) -> Option<Self> {
        let &[squared_norms, squared_weights] = parts else { return None };
        let apart = weight * weight - squared_weights;
        let square = (norm * norm - squared_norms) / apart;
        let trace = (squared_norms - squared_weights * square) / weight;
        (apart > 0.0).then_some(Self { square, trace })
    }
}

/// Moving averages of both parts over the measurements of a run. Their ratio is taken last, as that of single estimates is biased.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NoiseScale {
    measurements: u32,
    square: f64,
    trace: f64,
}

impl NoiseScale {
    /// Takes a measurement in.
    pub fn fold(&mut self, estimate: NoiseEstimate) {
        self.measurements = self.measurements.saturating_add(1);
        let fold = |mean: &mut f64, value: f64| *mean = SMOOTHING * *mean + (1.0 - SMOOTHING) * value;
        fold(&mut self.square, estimate.square);
        fold(&mut self.trace, estimate.trace);
    }

    /// The averages of both parts, corrected for having begun at zero.
    pub fn parts(&self) -> NoiseEstimate {
        let weight = 1.0 - SMOOTHING.powf(f64::from(self.measurements));
        NoiseEstimate { square: self.square / weight, trace: self.trace / weight }
    }

    /// `tr Σ / |G|²`, in targets: with batches far below it, twice the batch takes nearly half of the steps; far above, it gains little.
    /// `None` while the measurements leave open whether there is a gradient at all.
    pub fn targets(&self) -> Option<f64> {
        (self.square > 0.0).then_some(self.trace / self.square)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gradients of two weights: sums over two targets in each of two micro-steps, and over all four.
    #[test]
    fn equal_micro_steps_give_the_two_equations_of_the_paper() {
        let (small, big) = ([[4.0f64, 2.0], [2.0, 2.0]], [6.0f64, 4.0]);
        let squared = |g: [f64; 2]| g[0] * g[0] + g[1] * g[1];
        let parts = small.map(|g| NoiseEstimate::part(squared(g), 2.0));
        let sums = [parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]];
        let found = NoiseEstimate::of(&sums, squared(big).sqrt(), 4.0).unwrap();
        // |G_small|² of means over B_small = 2 targets, averaged, and |G_big|² over B_big = 4.
        let (of_small, of_big) = ((20.0 + 8.0) / 2.0 / 4.0, 52.0 / 16.0);
        assert!((found.square - (4.0 * of_big - 2.0 * of_small) / (4.0 - 2.0)).abs() < 1e-12);
        assert!((found.trace - (of_small - of_big) / (1.0 / 2.0 - 1.0 / 4.0)).abs() < 1e-12);
    }

    #[test]
    fn one_micro_step_tells_nothing() {
        assert_eq!(NoiseEstimate::of(&NoiseEstimate::part(9.0, 4.0), 3.0, 4.0), None);
    }

    #[test]
    fn the_first_measurement_is_the_average_and_later_ones_move_it() {
        let mut scale = NoiseScale::default();
        assert_eq!(scale.targets(), None);
        scale.fold(NoiseEstimate { square: 2.0, trace: 30.0 });
        assert!(
            (scale.targets().unwrap() - 15.0).abs() < 1e-12 && (scale.parts().square - 2.0).abs() < 1e-12
        );
        scale.fold(NoiseEstimate { square: 4.0, trace: 30.0 });
        // The mean weighted 0.99 : 1.
        assert!((scale.parts().square - (2.0 * 0.99 + 4.0) / 1.99).abs() < 1e-12);
        (0..2000).for_each(|_| scale.fold(NoiseEstimate { square: -1.0, trace: 30.0 }));
        assert_eq!(scale.targets(), None);
    }
}
