use std::path::PathBuf;

use clap::Args;
use segue_trainer::checkpoint::{read_tensors, write_tensors};
use segue_trainer::families::language_model::load_next_token;
use serde_json::{Value, json};
use tch::Kind;

use super::open_model;
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `segue score`.
#[derive(Args)]
#[command(
    after_help = "Example:\n  segue score --model runs/tiny --ids ids.safetensors --output log_probs.safetensors\n\n\
    Reads `input_ids` [batch, segment] (i64); writes them and `log_probs` [batch, segment, vocabulary]: of the token \
    after each, given those up to it. An XLNet reads from left to right."
)]
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
}

/// Log-probabilities of every next token for one segment with the memory a stream starts with.
pub fn run(args: ScoreArgs, out: &Output) -> Result<Value, Failure> {
    segue_trainer::libtorch::set_threads(1);
    let folder = open_model(&args.model, out)?;
    let model = load_next_token(&folder, Kind::Float)?;
    let mut file = read_tensors(&args.ids)?;
    let bad = |what: String| Failure::new(65, format!("{}: {what}", args.ids.display()));
    let ids = file.tensors.remove("input_ids").ok_or_else(|| bad("it has no tensor `input_ids`".into()))?;
    if ids.dim() != 2 || ids.kind() != Kind::Int64 || ids.numel() == 0 {
        return Err(bad(format!("`input_ids` is {:?}, not a matrix of integers", ids.size())));
    }
    let vocabulary = folder.config.vocab_size() as i64;
    if ids.min().int64_value(&[]) < 0 || ids.max().int64_value(&[]) >= vocabulary {
        return Err(bad(format!("`input_ids` holds ids outside 0..{vocabulary}")));
    }
    let (log_probs, _) = model.next_log_probs(&ids, &model.memory_start(ids.size()[0]));
    write_tensors(&args.output, &[("input_ids".into(), ids), ("log_probs".into(), log_probs)])?;
    Ok(json!({ "model": folder.path, "output": args.output }))
}
