use clap::Args;
use segue_protocols::{SlidingOptions, sliding};
use serde_json::{Value, json};

use super::subject::SubjectArgs;
use super::walk::TemperatureArgs;
use crate::commands::{at_least_one, some_length};
use crate::failure::Failure;
use crate::output::{Output, Unit};

/// Tokens of one forward pass, about, where the command does not say.
const TOKENS_PER_PASS: usize = 4096;

/// Arguments of `segue eval sliding`.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    segue eval sliding --model runs/wikitext2 --split test \\\n      \
    --attention 128 --positions 1000")]
pub struct SlidingArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Window length, in tokens.
    #[arg(long, default_value_t = 128, value_parser = some_length)]
    attention: usize,
    /// Number of targets, spread evenly over those with a whole window before them; 0 for all tokens but the first,
    /// where the first ones have what there is.
    #[arg(long, default_value_t = 0)]
    positions: u64,
    /// Windows per forward pass [default: as many as make 4096 tokens].
    #[arg(long, value_parser = at_least_one)]
    batch: Option<usize>,
    #[command(flatten)]
    temperature: TemperatureArgs,
}

/// Evaluates with a sliding window and prints perplexity and the time of a token.
pub fn run(args: SlidingArgs, out: &Output) -> Result<Value, Failure> {
    let mut subject = args.subject.open(out)?;
    subject.model.set_inverse_temperature(args.temperature.temperature);
    let batch = args.batch.unwrap_or_else(|| (TOKENS_PER_PASS / args.attention).max(1));
    let options = SlidingOptions { attention: args.attention, positions: args.positions, batch };
    let bar = out.progress(0, Unit::Steps, "slide");
    let report = |done, whole| bar.set_of(done, whole);
    let result = sliding(subject.model.as_mut(), &subject.stream, options, report)?;
    drop(bar);
    out.line(&format!(
        "{} targets, each from a window of {}: loss {:.4}, perplexity {:.3}, {:.4} bits per token, {:.3} ms per token",
        result.targets,
        result.attention,
        result.loss,
        result.ppl,
        result.bits_per_token,
        result.seconds_per_token * 1e3
    ));
    super::check_loss(result.loss, &subject.folder.path)?;
    Ok(json!({ "model": subject.folder.path, "sliding": result }))
}
