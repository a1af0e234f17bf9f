use clap::Args;

use crate::commands::at_least_one;

/// Sizes of a model whose steps are timed, and how they are timed.
#[derive(Args)]
pub struct SizeArgs {
    /// Number of layers.
    #[arg(long, default_value_t = 6, value_parser = at_least_one)]
    pub layers: usize,
    /// Width of hidden states.
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    pub d_model: usize,
    /// Number of attention heads.
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    pub heads: usize,
    /// Width of the feed-forward layer.
    #[arg(long, default_value_t = 1024, value_parser = at_least_one)]
    pub d_inner: usize,
    /// Dropout rate.
    #[arg(long, default_value_t = 0.1)]
    pub dropout: f64,
    /// Number of timed steps.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Number of untimed steps before them.
    #[arg(long, default_value_t = 2)]
    pub warmup: u64,
    /// libtorch threads per rank.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    pub threads: usize,
}

impl SizeArgs {
    /// The sizes as overrides of a configuration.
    pub fn overrides(&self) -> [String; 5] {
        [
            format!("model.n_layer={}", self.layers),
            format!("model.d_model={}", self.d_model),
            format!("model.n_head={}", self.heads),
            format!("model.d_inner={}", self.d_inner),
            format!("model.dropout={:?}", self.dropout),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_step_to_time() {
        let parse = |steps| {
            SizeArgs::augment_args(clap::Command::new("bench"))
                .try_get_matches_from(["bench", "--steps", steps])
        };
        assert!(parse("1").is_ok() && parse("0").is_err());
    }
}
