use clap::Args;
use segue_decode::Sampling;

use crate::failure::{Failure, USAGE};

/// How tokens are chosen.
#[derive(Args)]
pub struct SamplingArgs {
    /// Number of most probable tokens to draw from; 0 for all.
    #[arg(long, default_value_t = 40)]
    pub top_k: usize,
    /// Total probability of the most probable tokens to draw from, in (0, 1].
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub top_p: f64,
    /// Epsilon of eta-sampling, in [0, 1): drop tokens less probable than min(epsilon, sqrt(epsilon) exp(-entropy)); 0 for none. With
    /// `--top-k 0` it alone decides.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub eta: f64,
    /// Temperature of the distribution: below 1 sharper, above 1 flatter; 0 always takes the most probable token.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub temperature: f64,
    /// Allow the unknown-word token.
    #[arg(long)]
    pub allow_unknown: bool,
    /// Seed of the draws, in samples of the passages too.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl SamplingArgs {
    /// Checks the ranges.
    pub fn check(&self) -> Result<(), Failure> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(Failure::new(
                USAGE,
                format!(
                    "--temperature {} is below 0 or no number\nhint: 0.7 to 1 are usual, and 0 takes the likeliest token",
                    self.temperature
                ),
            ));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(Failure::new(
                USAGE,
                format!("--top-p {} does not lie in (0, 1]\nhint: 0.9 to 1 are usual", self.top_p),
            ));
        }
        if !(self.eta >= 0.0 && self.eta < 1.0) {
            return Err(Failure::new(USAGE, "--eta must lie in [0, 1)\nhint: 0.0003 to 0.004 are usual"));
        }
        Ok(())
    }

    /// Sampling from the first `names` tokens, without the `unknown` one unless the user allows it.
    pub fn sampling(&self, names: usize, unknown: Option<i64>) -> Sampling {
        Sampling {
            top_k: self.top_k,
            top_p: self.top_p,
            eta: self.eta,
            temperature: self.temperature,
            exclude: if self.allow_unknown { None } else { unknown },
            names,
            seed: self.seed,
        }
    }
}
