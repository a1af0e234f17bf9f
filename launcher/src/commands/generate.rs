use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

use clap::Args;
use segue_trainer::checkpoint::{ModelFolder, load_language_model};
use segue_trainer::generate::{Generator, Sampling};
use serde_json::{Value, json};
use tch::Kind;

use super::at_least_one;
use super::eval::look;
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// Tokens of the prompt read at a time.
const SEGMENT: usize = 128;

/// Arguments of `segue generate`.
#[derive(Args)]
#[command(
    after_help = "Example:\n  segue generate --model runs/demo/run --prompt 'fn main() {' --tokens 200 --top-k 40 --seed 7\n\n\
    The same seed gives the same text. Without --prompt, the prompt is read from stdin."
)]
pub struct GenerateArgs {
    /// Run folder (its newest whole checkpoint), checkpoint, or folder in Hugging Face's layout.
    #[arg(long)]
    model: PathBuf,
    /// Text to go on from.
    #[arg(long)]
    prompt: Option<String>,
    /// Tokens to write.
    #[arg(long, default_value_t = 100)]
    tokens: usize,
    /// Choose among this many most probable tokens; 0 for all.
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// Choose among the most probable tokens that make up this share of the probability.
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Below 1 sharper, above 1 flatter; 0 always takes the most probable token.
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// Positions of memory; the model's where not given.
    #[arg(long)]
    mem_len: Option<usize>,
    /// Allow the token for unknown words.
    #[arg(long)]
    allow_unknown: bool,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads of libtorch.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
}

/// Writes the text to stdout, unless it is to be in the result alone.
pub fn run(args: GenerateArgs, quiet: bool, out: &Output) -> Result<Value, Failure> {
    check(&args)?;
    segue_trainer::libtorch::set_threads(args.threads);
    let folder = ModelFolder::open(&args.model)?;
    let tokenizer = folder.tokenizer()?;
    let mut model = load_language_model(&folder, Kind::Float)?;
    look(&mut model, args.mem_len, None, false)?;
    let prompt = prompt(&args)?;
    let mut ids = Vec::new();
    tokenizer.encode(&prompt, &mut ids);
    if ids.is_empty() {
        ids.push(tokenizer.eos_id().unwrap_or(0));
    }
    let context: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
    let sampling = Sampling {
        top_k: args.top_k,
        top_p: args.top_p,
        temperature: args.temperature,
        exclude: if args.allow_unknown { None } else { tokenizer.unk_id().map(i64::from) },
        seed: args.seed,
    };
    let bar = out.progress(args.tokens as u64, Unit::Steps, "generate");
    let mut written = Vec::with_capacity(args.tokens);
    for token in Generator::new(&model, &context, SEGMENT, sampling).take(args.tokens) {
        // Rows of a padded vocabulary stand for no text.
        written.push(token as u32);
        bar.set(written.len() as u64);
    }
    drop(bar);
    let known: Vec<u32> =
        written.iter().copied().filter(|&id| (id as usize) < tokenizer.vocab_size()).collect();
    let text = tokenizer.decode(&known);
    if !quiet {
        let whole = tokenizer.decode(&[ids.as_slice(), known.as_slice()].concat());
        writeln!(std::io::stdout(), "{whole}")
            .map_err(|e| Failure::new(74, format!("cannot write to stdout: {e}")))?;
    }
    Ok(json!({ "prompt": prompt, "text": text, "tokens": written, "seed": args.seed }))
}

fn check(args: &GenerateArgs) -> Result<(), Failure> {
    if !(args.temperature.is_finite() && args.temperature >= 0.0) {
        return Err(Failure::new(USAGE, "--temperature is a number from 0 up"));
    }
    if !(args.top_p > 0.0 && args.top_p <= 1.0) {
        return Err(Failure::new(USAGE, "--top-p lies in (0, 1]"));
    }
    Ok(())
}

fn prompt(args: &GenerateArgs) -> Result<String, Failure> {
    if let Some(prompt) = &args.prompt {
        return Ok(prompt.clone());
    }
    if std::io::stdin().is_terminal() {
        return Err(Failure::new(USAGE, "give --prompt, or the prompt on stdin"));
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Failure::new(65, format!("the prompt on stdin is not text: {e}")))?;
    Ok(text)
}
