use std::path::PathBuf;

use clap::Args;
use segue_language::load_next_token;
use segue_protocols::score_file;
use serde_json::{Value, json};

use super::open_model;
use crate::failure::Failure;
use crate::folder::Force;
use crate::output::Output;

/// Arguments of `segue score`.
#[derive(Args)]
#[command(after_help = "\
    Reads `input_ids` [batch, segment] (i64); writes them and `log_probs` [batch, segment, vocabulary]: of \
    the token after each, given those up to it. An XLNet reads from left to right.\n\n\
    Example:\n  \
    segue score --model runs/tiny --ids ids.safetensors \\\n      \
    --output log_probs.safetensors")]
pub struct ScoreArgs {
    /// Run folder (its best model, else its newest valid checkpoint), checkpoint, or folder in Hugging Face's layout.
    #[arg(long)]
    model: PathBuf,
    /// safetensors file with `input_ids`, `[batch, segment]`, i64 or i32, within the vocabulary.
    #[arg(long)]
    ids: PathBuf,
    /// safetensors file to write: `input_ids`, and `log_probs`, `[batch, segment, vocabulary]`.
    #[arg(long)]
    output: PathBuf,
    #[command(flatten)]
    force: Force,
}

/// Log-probabilities of every next token for one segment with the memory a stream starts with.
pub fn run(args: ScoreArgs, out: &Output) -> Result<Value, Failure> {
    args.force.allow(args.output.as_path(), "--output")?;
    segue_kernels::libtorch::start(1);
    let folder = open_model(&args.model, out)?;
    let model = load_next_token(&folder)?;
    score_file(model.as_ref(), folder.config.vocab_size(), &args.ids, &args.output)?;
    Ok(json!({ "model": folder.path, "output": args.output }))
}
