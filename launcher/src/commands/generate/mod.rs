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
use segue_configs::{DeviceKind, counted};
use segue_decode::{Generator, Sampling};
use segue_family::{Trained, Writer, Writes};
use serde_json::{Value, json};

use self::interactive::Session;
use self::lines::{LineEditor, PlainLines, takes_keys};
use self::sampling::SamplingArgs;
use super::spelled::spelled;
use super::{at_least_one, device_of_rank, length};
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
    /// Number of tokens to generate, at most; the text of a language model does not end by itself.
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
    #[arg(long, value_parser = spelled::<DeviceKind>(), default_value = "cpu")]
    device: DeviceKind,
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
    segue_kernels::libtorch::start(args.threads);
    args.sampling.check()?;
    let mut model = Trained { compute, ..Trained::open(&segue_families::MODELS, folder)? };
    std::mem::take(&mut model.notes).iter().for_each(|note| out.line(note));
    let Writes(open) = segue_families::need_of(&model)?;
    let writer = open(model, args.mem_len)?;
    writer.notes().iter().for_each(|note| out.line(note));
    let sampling = args.sampling.sampling(writer.names(), writer.unknown());
    if args.prompt.is_none() && std::io::stdin().is_terminal() {
        return converse(writer.as_ref(), sampling, args.tokens, quiet);
    }
    let prompt = prompt(&args)?;
    continue_prompt(&prompt, writer.as_ref(), sampling, args.tokens, quiet, out)
}

/// Answers lines from the terminal until it is told to end.
fn converse(writer: &dyn Writer, sampling: Sampling, tokens: usize, quiet: bool) -> Result<Value, Failure> {
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
    let mut session = Session::new(writer, sampling, tokens, interruption);
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
    writer: &dyn Writer,
    sampling: Sampling,
    tokens: usize,
    quiet: bool,
    out: &Output,
) -> Result<Value, Failure> {
    let ids = writer.encode(prompt)?;
    let task = Interruption::install()?.begin();
    let bar = out.progress(tokens as u64, Unit::Steps, "generate");
    let mut written = Vec::new();
    let drawn = Generator::new(writer.decoder(1), &ids, SEGMENT, sampling).ending_with(writer.end());
    let mut drawn = drawn.take(tokens);
    while !task.is_interrupted()
        && let Some(token) = drawn.next()
    {
        written.push(token);
        bar.set(written.len() as u64);
    }
    drop(bar);
    let stopped = is_cut_off(&written, tokens, writer.end());
    if stopped {
        out.line(&format!("stopped after {} of {tokens}", counted(written.len(), "token")));
    }
    let told = writer.decode(&ids, &written);
    if !quiet {
        print(&told.whole)?;
    }
    let code = if stopped { INTERRUPTED } else { 0 };
    Ok(
        json!({ "prompt": prompt, "text": told.text, "tokens": written, "seed": sampling.seed, "exit_code": code }),
    )
}

/// Whether a text has neither come to its end nor to its most tokens.
fn is_cut_off(written: &[i64], most: usize, end: Option<i64>) -> bool {
    let has_ended = end.is_some() && written.last().copied() == end;
    written.len() < most && !has_ended
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_off_that_has_neither_ended_nor_all_its_tokens() {
        assert!(is_cut_off(&[], 3, None) && is_cut_off(&[], 3, Some(9)) && is_cut_off(&[1, 2], 3, Some(9)));
        assert!(!is_cut_off(&[1, 2, 3], 3, None) && !is_cut_off(&[1, 9], 3, Some(9)));
    }
}
