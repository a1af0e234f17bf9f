use clap::Args;
use segue_dataloader::Tokenizer;
use segue_trainer::generate::Sampling;

use crate::failure::{Failure, USAGE};

/// How tokens are chosen.
#[derive(Args)]
pub struct SamplingArgs {
    /// Choose among this many most probable tokens; 0 for all.
    #[arg(long, default_value_t = 40)]
    pub top_k: usize,
    /// Choose among the most probable tokens that make up this share of the probability.
    #[arg(long, default_value_t = 1.0)]
    pub top_p: f64,
    /// Below 1 sharper, above 1 flatter; 0 always takes the most probable token.
    #[arg(long, default_value_t = 1.0)]
    pub temperature: f64,
    /// Allow the token for unknown words.
    #[arg(long)]
    pub allow_unknown: bool,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl SamplingArgs {
    /// Checks the ranges.
    pub fn sampling(&self, tokenizer: &Tokenizer) -> Result<Sampling, Failure> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(Failure::new(USAGE, "--temperature is a number from 0 up"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(Failure::new(USAGE, "--top-p lies in (0, 1]"));
        }
        Ok(Sampling {
            top_k: self.top_k,
            top_p: self.top_p,
            temperature: self.temperature,
            exclude: if self.allow_unknown { None } else { tokenizer.unk_id().map(i64::from) },
            seed: self.seed,
        })
    }
}
