//! What the samples of latent variables say of examples, and the estimates that are made of it (Melis 2023, §5.4, eqs. 5.8 to 5.17).

use tch::{Kind, Tensor};

/// Scores of the samples of each example, `[examples, samples]` both. Samples are drawn from q(z | x).
#[derive(Debug)]
pub struct Scores {
    /// a = ln p(x | z).
    pub likelihood: Tensor,
    /// r = ln p(z) − ln q(z | x).
    pub ratio: Tensor,
}

impl Scores {
    /// Of the first `count` samples of each example.
    pub fn first(&self, count: i64) -> Self {
        let of = |scores: &Tensor| scores.narrow(1, 0, count);
        Self { likelihood: of(&self.likelihood), ratio: of(&self.ratio) }
    }

    /// How many samples an example has.
    pub fn samples(&self) -> i64 {
        self.likelihood.size()[1]
    }

    /// ln p(x, z)^α / q(z | x), but with the prior to the power of 1: α a + r, `[examples, samples]`.
    pub fn weighted(&self, alpha: f64) -> Tensor {
        &self.likelihood * alpha + &self.ratio
    }

    /// S_α = ln mean exp(α a + r), `[examples]`: ln ∫ p(z) p(x | z)^α from below. S of α = 1 is the bound of importance-weighted autoencoders on ln p(x).
    pub fn bound(&self, alpha: f64) -> Tensor {
        log_mean_exp(&self.weighted(alpha))
    }

    /// softmax(α a + r) over the samples of each example, `[examples, samples]`.
    pub fn weights(&self, alpha: f64) -> Tensor {
        self.weighted(alpha).softmax(1, None::<Kind>)
    }

    /// U = Σ softmax(a + r) a, `[examples]`: the mean of ln p(x | z) under the posterior. U − S estimates KL(p(z | x) ‖ p(z)).
    pub fn posterior_likelihood(&self) -> Tensor {
        (self.weights(1.0) * &self.likelihood).sum_dim_intlist(1, false, None::<Kind>)
    }
}

/// ln mean exp of the samples of each example: `[examples, samples]` to `[examples]`.
pub fn log_mean_exp(scores: &Tensor) -> Tensor {
    scores.logsumexp(1, false) - (scores.size()[1] as f64).ln()
}
