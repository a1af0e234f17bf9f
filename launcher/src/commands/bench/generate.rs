use std::time::Instant;

use clap::Args;
use segue_decode::{Sampling, Texts};
use segue_families::MODELS;
use segue_language::{Writing, fresh_next_token};
use serde_json::{Value, json};

use super::peak_rss_mb;
use crate::commands::at_least_one;
use crate::failure::Failure;
use crate::output::{Output, Unit};

#[derive(Args)]
#[command(after_help = "Example:\n  \
    segue bench generate --lanes 16")]
pub struct GenerateArgs {
    /// Number of layers.
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    layers: usize,
    /// Width of hidden states.
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    d_model: usize,
    /// Number of attention heads.
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    heads: usize,
    /// Width of the feed-forward layer.
    #[arg(long, default_value_t = 1024, value_parser = at_least_one)]
    d_inner: usize,
    /// Vocabulary size.
    #[arg(long, alias = "vocab", default_value_t = 8000, value_parser = at_least_one)]
    vocab_size: usize,
    /// Memory length, in positions.
    #[arg(long, alias = "mem", default_value_t = 512)]
    mem_len: usize,
    /// Number of texts written at once.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    lanes: usize,
    /// Number of tokens written of each.
    #[arg(long, default_value_t = 512, value_parser = at_least_one)]
    tokens: usize,
    /// Most probable tokens that each is drawn from; 0 for all.
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// libtorch threads.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
}

/// Times the writing of texts by a Transformer-XL with random weights.
pub fn run(args: &GenerateArgs, out: &Output) -> Result<Value, Failure> {
    let overrides = [
        "model.model_type=transfo-xl".to_string(),
        format!("model.n_layer={}", args.layers),
        format!("model.d_model={}", args.d_model),
        format!("model.n_head={}", args.heads),
        format!("model.d_inner={}", args.d_inner),
        format!("model.vocab_size={}", args.vocab_size),
        format!("model.mem_len={}", args.mem_len),
    ];
    let config = MODELS.load(None, &overrides)?.config;
    segue_kernels::libtorch::start(args.threads);
    segue_kernels::libtorch::keep_freed_memory();
    let model = fresh_next_token(&config.model, config.train.seed)?;
    let sampling = Sampling { top_k: args.top_k, ..Sampling::ALL };
    let prompts = vec![&[0i64][..]; args.lanes];
    let samplings = (0..args.lanes as u64).map(|text| sampling.of_text(text)).collect();
    let bar = out.progress(args.tokens as u64, Unit::Steps, "bench");
    let decoder = Box::new(Writing::new(model.as_ref(), args.lanes));
    let began = Instant::now();
    let mut drawn = 0;
    for tokens in Texts::new(decoder, &prompts, args.mem_len.max(1), samplings)?.take(args.tokens) {
        drawn += tokens.len();
        bar.set((drawn / args.lanes) as u64);
    }
    let seconds = began.elapsed().as_secs_f64();
    drop(bar);
    let tokens_per_s = drawn as f64 / seconds;
    out.line(&format!(
        "{tokens_per_s:.0} tokens/s, {:.3} ms a token of each text",
        1e3 * seconds / args.tokens as f64
    ));
    Ok(json!({
        "tokens_per_s": tokens_per_s, "seconds": seconds, "lanes": args.lanes, "tokens": drawn,
        "params": model.parameters().count(), "peak_rss_mb": peak_rss_mb(),
    }))
}
