//! Estimates of many samples, some at a time.

use crate::scores::Scores;
use tch::{Kind, Tensor};

/// S, U and the evidence lower bound of each example over all samples that were added, in double precision: what evaluates a model with hundreds of samples holds the scores of a few.
#[derive(Debug)]
pub struct Running {
    samples: i64,
    /// Largest a + r of each example: `[examples]`.
    largest: Tensor,
    /// Σ exp(a + r − largest).
    sum: Tensor,
    /// Σ exp(a + r − largest) a.
    of_likelihood: Tensor,
    /// Σ (a + r).
    plain: Tensor,
}

impl Running {
    /// Of the samples of `scores`.
    pub fn of(scores: &Scores) -> Self {
        let likelihood = scores.likelihood.to_kind(Kind::Double);
        let weighted = &likelihood + scores.ratio.to_kind(Kind::Double);
        let largest = weighted.amax([1], true);
        let weights = (&weighted - &largest).exp();
        let over_samples = |each: &Tensor| each.sum_dim_intlist(1, false, Kind::Double);
        Self {
            samples: scores.samples(),
            plain: over_samples(&weighted),
            sum: over_samples(&weights),
            of_likelihood: over_samples(&(weights * likelihood)),
            largest: largest.squeeze_dim(1),
        }
    }

    /// Of the samples of both.
    pub fn merged(self, other: Self) -> Self {
        let largest = self.largest.maximum(&other.largest);
        let [own, its] = [&self, &other].map(|of| (&of.largest - &largest).exp());
        Self {
            samples: self.samples + other.samples,
            sum: self.sum * &own + other.sum * &its,
            of_likelihood: self.of_likelihood * own + other.of_likelihood * its,
            plain: self.plain + other.plain,
            largest,
        }
    }

    /// The evidence lower bound, by its samples: `[examples]`.
    pub fn evidence(&self) -> Tensor {
        &self.plain / self.samples as f64
    }

    /// S: the estimate of ln p(x), `[examples]`.
    pub fn bound(&self) -> Tensor {
        &self.largest + self.sum.log() - (self.samples as f64).ln()
    }

    /// U − S: the estimate of KL(p(z | x) ‖ p(z)), whose mean over examples is their information, `[examples]`.
    pub fn information(&self) -> Tensor {
        &self.of_likelihood / &self.sum - self.bound()
    }
}
