//! Latent variables: their densities, and how far q(z | x) is from the prior (Melis 2023, §5.7.1).

use std::f64::consts::PI;

use tch::{Kind, Tensor};

/// Independent normal variables, whose prior is the standard normal distribution: `[examples, latents]` both.
#[derive(Debug)]
pub struct Gaussian {
    /// μ.
    pub mean: Tensor,
    /// ln σ².
    pub log_variance: Tensor,
}

impl Gaussian {
    /// z = μ + σ ε, `[examples, samples, latents]`, of `noise` of that shape.
    pub fn sample(&self, noise: &Tensor) -> Tensor {
        self.mean.unsqueeze(1) + (&self.log_variance * 0.5).exp().unsqueeze(1) * noise
    }

    /// ln q(z | x), `[examples, samples]`. `z`: `[examples, samples, latents]`.
    pub fn log_density(&self, z: &Tensor) -> Tensor {
        let log_variance = self.log_variance.unsqueeze(1);
        let square = (z - self.mean.unsqueeze(1)).square() * (-&log_variance).exp();
        over_latents(&((square + log_variance + (2.0 * PI).ln()) * -0.5))
    }

    /// ln p(z), `[examples, samples]`. `z`: `[examples, samples, latents]`.
    pub fn log_prior(z: &Tensor) -> Tensor {
        over_latents(&((z.square() + (2.0 * PI).ln()) * -0.5))
    }

    /// KL(q(z | x) ‖ p(z)) of each variable, `[examples, latents]`.
    pub fn kl(&self) -> Tensor {
        (self.mean.square() + self.log_variance.exp() - &self.log_variance - 1.0) * 0.5
    }

    /// The same distributions, with their parameters as constants.
    pub fn detached(&self) -> Self {
        Self { mean: self.mean.detach(), log_variance: self.log_variance.detach() }
    }
}

/// Independent variables of several values each, whose prior is uniform: logits `[examples, latents, values]`.
#[derive(Debug)]
pub struct Categorical {
    /// ln q but for a constant.
    pub logits: Tensor,
}

impl Categorical {
    /// The values that uniform draws in [0, 1), `[examples, samples, latents]`, stand for: int64, of that shape.
    pub fn sample(&self, uniform: &Tensor) -> Tensor {
        // [examples, 1, latents, values]: how much of a draw lies below the end of each value.
        let ends = self.logits.softmax(-1, None::<Kind>).cumsum(-1, None::<Kind>).unsqueeze(1);
        let values = self.logits.size()[2];
        let below = uniform.unsqueeze(-1).ge_tensor(&ends).sum_dim_intlist(-1, false, Kind::Int64);
        // Rounding may leave the last end below 1.
        below.clamp_max(values - 1)
    }

    /// ln q(z | x), `[examples, samples]`. `z`: `[examples, samples, latents]` int64.
    pub fn log_density(&self, z: &Tensor) -> Tensor {
        let all = self.logits.log_softmax(-1, None::<Kind>).unsqueeze(1);
        let shape = [all.size()[0], z.size()[1], all.size()[2], all.size()[3]];
        over_latents(&all.expand(shape, false).gather(-1, &z.unsqueeze(-1), false).squeeze_dim(-1))
    }

    /// ln p(z) of any values.
    pub fn log_prior(&self) -> f64 {
        let [_, latents, values] = self.logits.size()[..] else { unreachable!("logits have three axes") };
        -(latents as f64) * (values as f64).ln()
    }

    /// KL(q(z | x) ‖ p(z)) of each variable, `[examples, latents]`.
    pub fn kl(&self) -> Tensor {
        let log = self.logits.log_softmax(-1, None::<Kind>);
        (log.exp() * &log).sum_dim_intlist(-1, false, None::<Kind>) + (self.logits.size()[2] as f64).ln()
    }
}

/// ln σ² up to which a normal variable of any mean is `rate` nats from the prior: ½ (σ² − 1 − ln σ²) = `rate`, σ² ≤ 1 (δ-VAE, Razavi et al. 2019).
pub fn largest_log_variance(rate: f64) -> f64 {
    // The left side falls up to σ = 1.
    let (mut below, mut above) = (-2.0 * rate - 2.0, 0.0);
    for _ in 0..60 {
        let middle: f64 = 0.5 * (below + above);
        let excess = 0.5 * (middle.exp() - 1.0 - middle) > rate;
        *(if excess { &mut below } else { &mut above }) = middle;
    }
    below
}

fn over_latents(values: &Tensor) -> Tensor {
    values.sum_dim_intlist(-1, false, None::<Kind>)
}
