//! Where to look next: the point of the highest expected improvement (Jones et al. 1998), weighted by how likely a trial there is to
//! have a loss at all.

use segue_configs::study::Space;
use segue_random::Draws;
use statrs::distribution::{Continuous, ContinuousCDF, Normal};

use super::gaussian::{GaussianProcess, Prediction};

/// Random points that are looked at.
const RANDOM: usize = 1000;
/// Points around the best known one and around the best random ones, in rounds that draw closer.
const ROUNDS: [f64; 4] = [0.2, 0.05, 0.02, 0.005];
const EACH_ROUND: usize = 100;
/// A trial has a loss for sure where its label, 1 or 0, is expected to lie beyond this,
const SOUND: f64 = 0.75;
/// give or take this much: a label says nothing of how near the border is.
const UNSURE: f64 = 0.05;
/// Points closer than this in every coordinate are the same trial.
const SAME: f64 = 1e-9;

/// What is known when a point is chosen. Points are those that stand for their settings.
pub(crate) struct Known<'a> {
    /// Fitted to the losses, with the pending points taken in.
    pub process: &'a GaussianProcess,
    /// Fitted to whether trials had a loss, 1 or 0; none where all had one.
    pub sound: Option<&'a GaussianProcess>,
    /// Points with losses.
    pub feasible: &'a [Vec<f64>],
    /// Points of trials that had none.
    pub infeasible: &'a [Vec<f64>],
    /// Points of trials that are under way.
    pub pending: &'a [Vec<f64>],
}

impl Known<'_> {
    /// The best point that random ones and their neighbours offer. `None` where all are known already.
    pub fn best(&self, space: &Space, draws: &mut Draws) -> Option<Vec<f64>> {
        let normal = Normal::standard();
        let means = self.feasible.iter().map(|point| (point, self.process.predict(point).mean));
        let (first, least) = means.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let value = |point: &[f64]| {
            self.chance(point, &normal) * expected_improvement(self.process.predict(point), least, &normal)
        };
        let coordinates = space.parameters().len();
        let mut best: Option<(Vec<f64>, f64)> = None;
        let consider = |point: Vec<f64>, best: &mut Option<(Vec<f64>, f64)>| {
            // Clamps are exact at the point that was drawn alone.
            let stands_for = space.canonical(&point);
            let found = value(&stands_for);
            if !self.knows(&stands_for) && best.as_ref().is_none_or(|(_, most)| found > *most) {
                *best = Some((point, found));
            }
        };
        for _ in 0..RANDOM {
            consider((0..coordinates).map(|_| draws.uniform()).collect(), &mut best);
        }
        for round in ROUNDS {
            for i in 0..EACH_ROUND {
                // Every other one around what is best so far, to get at the peak of it.
                let around = if i % 2 == 0 { first } else { best.as_ref().map_or(first, |(point, _)| point) };
                let near = |x: &f64| (x + round * (2.0 * draws.uniform() - 1.0)).clamp(0.0, 1.0);
                let point = around.iter().map(near).collect();
                consider(point, &mut best);
            }
        }
        best.map(|(point, _)| point)
    }

    /// How likely a trial has a loss, squared: one that has none costs as much as one that has.
    fn chance(&self, point: &[f64], normal: &Normal) -> f64 {
        let Some(label) = self.sound.map(|sound| sound.predict(point)) else { return 1.0 };
        normal.cdf((label.mean - SOUND) / label.sd.hypot(UNSURE)).powi(2)
    }

    fn knows(&self, point: &[f64]) -> bool {
        let same = |other: &Vec<f64>| other.iter().zip(point).all(|(a, b)| (a - b).abs() < SAME);
        [self.feasible, self.infeasible, self.pending].into_iter().flatten().any(same)
    }
}

/// E max(0, least − f) of f normal: (least − μ) Φ(z) + σ φ(z), z = (least − μ) / σ.
fn expected_improvement(at: Prediction, least: f64, normal: &Normal) -> f64 {
    let gain = least - at.mean;
    if at.sd <= 0.0 {
        return gain.max(0.0);
    }
    let z = gain / at.sd;
    gain * normal.cdf(z) + at.sd * normal.pdf(z)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// z = 0: σ φ(0) = σ 0.398942…; z = 1 with σ = 1: Φ(1) + φ(1) = 0.841345 + 0.241971.
    #[test]
    fn expected_improvement_is_that_of_tables() {
        let normal = Normal::standard();
        let at = |mean: f64, sd: f64| expected_improvement(Prediction { mean, sd }, 2.0, &normal);
        assert!((at(2.0, 0.5) - 0.5 * 0.3989423).abs() < 1e-6);
        assert!((at(1.0, 1.0) - 1.0833155).abs() < 1e-6);
        assert_eq!((at(1.5, 0.0), at(2.5, 0.0)), (0.5, 0.0));
    }
}
