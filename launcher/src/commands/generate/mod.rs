//! `segue generate`: text from a prompt, a conversation, or samples by protocol.

mod interactive;
mod lines;
mod samples;
mod sampling;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use segue_cluster::signals::Interruption;
use segue_collectives::local::Local;
use segue_configs::exit_code::of_read;
use segue_configs::{ModelConfig, counted};
use segue_decode::{Generator, Sampling};
use segue_families::language;
use segue_language::{ModelFolder, NextToken, load_next_token};
use segue_tokenizer::{Tokenizer, TokenizerKind};
use serde_json::{Value, json};

use self::interactive::Session;
use self::lines::{LineEditor, PlainLines, takes_keys};
use self::sampling::SamplingArgs;
use super::eval::eval_config;
use super::{DeviceArg, at_least_one, device_of_rank, length, open_model};
use crate::failure::{BAD_DATA, Failure, INTERRUPTED, IO_FAILED, USAGE};
use crate::output::{Output, Unit};

/// Tokens of the prompt read at a time.
const SEGMENT: usize = 128;

/// Arguments of `segue generate`.
#[derive(Args)]
#[command(
    after_help = "\
    The same seed gives the same text. Without --prompt, the prompt is read from stdin; in a terminal, lines \
    are read and continued one after another. Ctrl-C stops the writing: what was written is shown.\n\n\
    Example:\n  \
    segue generate --model runs/demo/run --prompt 'fn main() {' --tokens 200 \\\n      \
    --top-k 40 --seed 7",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct GenerateArgs {
    #[command(subcommand)]
    protocol: Option<Protocol>,
    /// Run folder (its best model, else its newest valid checkpoint), checkpoint, or folder in Hugging Face's layout.
    #[arg(long, required = true)]
    model: Option<PathBuf>,
    /// Text to continue; an empty one starts from the end-of-sentence token [default: stdin].
    #[arg(long)]
    prompt: Option<String>,
    /// Number of tokens to generate; the text does not end by itself.
    #[arg(long, default_value_t = 100, value_parser = length)]
    tokens: usize,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Memory length, in positions [default: the model's; 512 for an XLNet without memory].
    #[arg(long, value_parser = length)]
    mem_len: Option<usize>,
    /// Number of libtorch threads.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = DeviceArg::Cpu)]
    device: DeviceArg,
}

/// Other ways to let a model write.
#[derive(Subcommand)]
enum Protocol {
    /// Continue random passages of a split, next to the real continuation.
    Samples(samples::SamplesArgs),
}

/// Draws samples, holds a conversation, or continues one prompt. `quiet`: text goes to the result alone.
pub fn run(mut args: GenerateArgs, quiet: bool, out: &Output) -> Result<Value, Failure> {
    match (args.protocol.take(), args.model.take()) {
        (Some(Protocol::Samples(args)), _) => samples::run(args, quiet, out),
        (None, Some(model)) => run_prompt(&model, args, quiet, out),
        (None, None) => Err(Failure::new(USAGE, "give --model")),
    }
}

fn run_prompt(folder: &Path, args: GenerateArgs, quiet: bool, out: &Output) -> Result<Value, Failure> {
    let compute = device_of_rank(args.device, &Local, out)?;
    segue_kernels::libtorch::set_threads(args.threads);
    let folder = ModelFolder { compute, ..open_model(folder, out)? };
    let tokenizer = folder.tokenizer()?;
    let sampling = args.sampling.sampling(&tokenizer)?;
    let mut model = load_next_token(&folder)?;
    model.look(&eval_config(&folder.config, memory(&folder.config, args.mem_len)?, None, false)?);
    if args.prompt.is_none() && std::io::stdin().is_terminal() {
        return converse(model.as_ref(), &tokenizer, sampling, args.tokens, quiet);
    }
    let prompt = prompt(&args)?;
    continue_prompt(&prompt, model.as_ref(), &tokenizer, sampling, args.tokens, quiet, out)
}

/// Positions of memory to write with; `None` for the model's. Refuses a model without, where nothing is
/// given: text is read and written a token at a time.
fn memory(model: &ModelConfig, given: Option<usize>) -> Result<Option<usize>, Failure> {
    let found = given.or(language(model)?.usual_memory(model));
    if found.is_none() && model.mem_len() == 0 {
        let message = "the model has no memory, and would go on from its last token alone";
        let hint =
            "hint: --mem-len N lets it see N tokens before: as many as the segment that it was trained on";
        return Err(Failure::new(USAGE, format!("{message}\n{hint}")));
    }
    Ok(found)
}

/// Answers lines from the terminal until it is told to end.
fn converse(
    model: &dyn NextToken,
    tokenizer: &Tokenizer,
    sampling: Sampling,
    tokens: usize,
    quiet: bool,
) -> Result<Value, Failure> {
    if quiet {
        return Err(Failure::new(USAGE, "there is no prompt\nhint: add --prompt TEXT, or pass it on stdin"));
    }
    let output = std::io::stdout();
    let term = std::env::var("TERM").ok();
    let interruption = match output.is_terminal() && takes_keys(term.as_deref()) {
        // The editor reads Ctrl-C as a key.
        true => Interruption::install()?.spare(),
        false => Interruption::install()?,
    };
    let mut session = Session::new(model, tokenizer, sampling, tokens, interruption);
    // An editor would write its control characters to a file or a pipe.
    let talked = match output.is_terminal() {
        true => LineEditor::new().and_then(|input| session.converse(input, output.lock())),
        false => session.converse(PlainLines::new(std::io::stdin().lock()), output.lock()),
    };
    talked.map_err(|e| Failure::new(IO_FAILED, format!("the terminal is gone: {e}")))?;
    Ok(json!({ "seed": sampling.seed }))
}

/// Writes the text to stdout, unless it is to be in the result alone.
fn continue_prompt(
    prompt: &str,
    model: &dyn NextToken,
    tokenizer: &Tokenizer,
    sampling: Sampling,
    tokens: usize,
    quiet: bool,
    out: &Output,
) -> Result<Value, Failure> {
    let mut ids = Vec::new();
    tokenizer.encode(prompt, &mut ids);
    if ids.is_empty() {
        ids.push(tokenizer.eos_id().unwrap_or(0));
    }
    let context: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
    let task = Interruption::install()?.begin();
    let bar = out.progress(tokens as u64, Unit::Steps, "generate");
    let mut written = Vec::new();
    let mut drawn = Generator::new(model, &context, SEGMENT, sampling).take(tokens);
    while !task.is_interrupted()
        && let Some(token) = drawn.next()
    {
        written.push(token as u32);
        bar.set(written.len() as u64);
    }
    drop(bar);
    let stopped = written.len() < tokens;
    if stopped {
        out.line(&format!("stopped after {} of {tokens}", counted(written.len(), "token")));
    }
    let whole = tokenizer.decode(&[ids.as_slice(), written.as_slice()].concat());
    let text = match tokenizer.kind() {
        // Decoded by itself it would lose the space before its first word.
        TokenizerKind::SentencePiece => whole.strip_prefix(&tokenizer.decode(&ids)).map(String::from),
        _ => None,
    };
    let text = text.unwrap_or_else(|| tokenizer.decode(&written));
    if !quiet {
        print(&whole)?;
    }
    let code = if stopped { INTERRUPTED } else { 0 };
    Ok(json!({ "prompt": prompt, "text": text, "tokens": written, "seed": sampling.seed, "exit_code": code }))
}

/// Text for people, alone on stdout.
fn print(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}")
        .map_err(|e| Failure::new(IO_FAILED, format!("cannot write to stdout: {e}")))
}

fn prompt(args: &GenerateArgs) -> Result<String, Failure> {
    if let Some(prompt) = &args.prompt {
        return Ok(prompt.clone());
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|e| Failure::new(of_read(&e), format!("cannot read the prompt from stdin: {e}")))?;
    String::from_utf8(bytes).map_err(|e| {
        let message = format!("the prompt on stdin is not UTF-8 at byte {}", e.utf8_error().valid_up_to());
        Failure::new(
            BAD_DATA,
            format!("{message}\nhint: convert it, for instance with `iconv -f LATIN1 -t UTF-8`"),
        )
    })
}
