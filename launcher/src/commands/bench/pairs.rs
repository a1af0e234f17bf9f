use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use segue_configs::Config;
use segue_dataloader::sections::{DataConfig, SegmentConfig};
use segue_dataloader::{Corpus, LaneCursor, Lanes, PairLanes, PairOptions, Split};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Output, Unit};

/// Arguments of `segue bench pairs`.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    segue bench pairs --corpus corpora/wiki --corpus corpora/books --segment 512")]
pub struct PairsArgs {
    /// Corpus folder; may be given several times, to blend.
    #[arg(long, required = true)]
    corpus: Vec<PathBuf>,
    /// Tokens per sequence, half of them reused.
    #[arg(long, default_value_t = 512)]
    segment: usize,
    /// Number of timed steps, of `train.lanes` sequences each.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Configuration values, by dotted name, such as `pairs.spans=words`.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Draws sequences on one thread, without a model.
pub fn run(args: &PairsArgs, out: &Output) -> Result<Value, Failure> {
    let config = configure(args)?;
    let corpora = args.corpus.iter().map(|dir| Corpus::open(dir)).collect::<Result<Vec<_>, _>>()?;
    let lanes = PairLanes::open(
        PairOptions::of(&config.train, &config.model, &config.own)?,
        &config.own.get::<DataConfig>().weights,
        &corpora,
        Split::Train,
    )?;
    let count = config.train.lanes;
    let bar = out.progress(args.steps, Unit::Steps, "bench");
    let mut cursors = vec![LaneCursor::default(); count];
    // Once through without the clock: pages of the corpus that were never read are the disk's speed, not ours.
    lanes.batch(0..count, &cursors, 1)?;
    let began = Instant::now();
    for step in 1..=args.steps {
        cursors = lanes.batch(0..count, &cursors, step)?.cursors_after;
        if step.is_multiple_of(64) {
            bar.set(step);
        }
    }
    drop(bar);
    let seconds = began.elapsed().as_secs_f64();
    let sequences = (args.steps * count as u64) as f64;
    let tokens_per_s = sequences * config.own.get::<SegmentConfig>().segment as f64 / seconds;
    let (reused, _) = lanes.options().parts();
    out.line(&format!(
        "{:.2} million tokens/s on one core ({:.2} million new ones), {:.1} µs a sequence of {}",
        tokens_per_s / 1e6,
        sequences * reused as f64 / seconds / 1e6,
        seconds / sequences * 1e6,
        config.own.get::<SegmentConfig>().segment
    ));
    Ok(json!({
        "tokens_per_s": tokens_per_s, "new_tokens_per_s": sequences * reused as f64 / seconds,
        "sequences_per_s": sequences / seconds, "segment": config.own.get::<SegmentConfig>().segment, "lanes": count, "steps": args.steps,
    }))
}

fn configure(args: &PairsArgs) -> Result<Config, Failure> {
    let mut keys = vec![
        "model.model_type=xlnet".to_string(),
        format!("train.segment={}", args.segment),
        format!("model.reuse_len={}", args.segment / 2),
    ];
    keys.extend_from_slice(&args.overrides);
    Ok(segue_families::MODELS.load(None, &keys)?.config)
}
