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
use segue_decode::{Decoder, Generator, Sampling, Texts};
use segue_family::{Trained, Writer, Writes, Written};
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
/// Texts on the way from one to another.
const ON_THE_WAY: usize = 7;

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
    /// Number of texts that continue the prompt, drawn by seeds of their own [default: 1; with --to 7].
    #[arg(long, value_parser = at_least_one)]
    texts: Option<usize>,
    /// Write what lies between --prompt and this text, from the one to the other: of models with latent variables.
    #[arg(long, requires = "prompt", value_name = "TEXT")]
    to: Option<String>,
    /// Number of tokens to generate, at most; the text of a language model ends by itself with --stop-at-eos alone.
    #[arg(long, default_value_t = 100, value_parser = length)]
    tokens: usize,
    /// End a text at its first end-of-sentence token, which is not shown.
    #[arg(long)]
    stop_at_eos: bool,
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
    let end = match args.stop_at_eos {
        true => Some(writer.sentence_end().ok_or_else(no_sentence_end)?),
        false => writer.end(),
    };
    if args.prompt.is_none() && std::io::stdin().is_terminal() {
        return converse(writer.as_ref(), sampling, args.tokens, end, quiet);
    }
    let prompt = prompt(&args)?;
    let asked = Asked { writer: writer.as_ref(), tokens: args.tokens, end, quiet };
    match (&args.to, args.texts) {
        (Some(to), texts) => {
            let texts = texts.unwrap_or(ON_THE_WAY);
            asked.between([&prompt, to], texts, sampling)
        }
        (None, Some(texts)) if texts > 1 => {
            let ids = writer.encode(&prompt)?;
            let samplings = (0..texts).map(|text| sampling.of_text(text as u64)).collect();
            let decoder = writer.decoder(texts, sampling.seed);
            let texts = asked.written(decoder, &ids, samplings)?;
            Ok(json!({ "prompt": prompt, "texts": texts, "seed": sampling.seed }))
        }
        _ => asked.continue_prompt(&prompt, sampling, out),
    }
}

fn no_sentence_end() -> Failure {
    let message = "the tokenizer of the model has no end-of-sentence token to stop at";
    Failure::new(USAGE, format!("{message}\nhint: leave --stop-at-eos out"))
}

/// How texts are asked for.
struct Asked<'a> {
    writer: &'a dyn Writer,
    /// Most tokens of a text.
    tokens: usize,
    /// The token that ends a text before that.
    end: Option<i64>,
    /// Whether texts go to the result alone.
    quiet: bool,
}

impl Asked<'_> {
    /// Writes what lies between two texts.
    fn between(&self, prompts: [&str; 2], texts: usize, sampling: Sampling) -> Result<Value, Failure> {
        let [from, to] = [self.writer.encode(prompts[0])?, self.writer.encode(prompts[1])?];
        for (option, text) in [("--prompt", prompts[0]), ("--to", prompts[1])] {
            if text.trim().is_empty() {
                let hint = "hint: --prompt and --to are a sentence each";
                return Err(Failure::new(USAGE, format!("{option} is empty: nothing lies between\n{hint}")));
            }
        }
        let Some(decoder) = self.writer.between([&from, &to], texts) else {
            let message = "--to is of models with latent variables, which this model has not";
            return Err(Failure::new(USAGE, format!("{message}\nhint: leave it out")));
        };
        // The same draws for all: what differs between texts is their place on the way.
        let texts = self.written(decoder, &self.writer.encode("")?, vec![sampling; texts])?;
        Ok(json!({ "prompt": prompts[0], "to": prompts[1], "texts": texts, "seed": sampling.seed }))
    }

    /// Writes texts side by side, and shows them, each by itself.
    fn written(
        &self,
        decoder: Box<dyn Decoder + '_>,
        prompt: &[i64],
        samplings: Vec<Sampling>,
    ) -> Result<Vec<Value>, Failure> {
        let mut ids = vec![Vec::new(); samplings.len()];
        let texts = Texts::new(decoder, &vec![prompt; samplings.len()], SEGMENT, samplings)?;
        for drawn in texts.ending_with(self.end).take(self.tokens).flatten() {
            ids[drawn.text].push(drawn.token);
        }
        let told: Vec<Written> = ids.iter().map(|ids| self.shown(prompt, ids)).collect();
        if !self.quiet {
            let has_lines = told.iter().any(|text| text.whole.contains('\n'));
            let shown: Vec<&str> = told.iter().map(|text| text.whole.as_str()).collect();
            print(&shown.join(if has_lines { "\n\n" } else { "\n" }))?;
        }
        Ok(told.iter().zip(ids).map(|(text, ids)| json!({ "text": text.text, "tokens": ids })).collect())
    }

    /// Writes the text to stdout, unless it is to be in the result alone.
    fn continue_prompt(&self, prompt: &str, sampling: Sampling, out: &Output) -> Result<Value, Failure> {
        let ids = self.writer.encode(prompt)?;
        let task = Interruption::install()?.begin();
        let bar = out.progress(self.tokens as u64, Unit::Steps, "generate");
        let mut written = Vec::new();
        let decoder = self.writer.decoder(1, sampling.seed);
        let drawn = Generator::new(decoder, &ids, SEGMENT, sampling).ending_with(self.end);
        let mut drawn = drawn.take(self.tokens);
        while !task.is_interrupted()
            && let Some(token) = drawn.next()
        {
            written.push(token);
            bar.set(written.len() as u64);
        }
        drop(bar);
        let stopped = is_cut_off(&written, self.tokens, self.end);
        if stopped {
            out.line(&format!("stopped after {} of {}", counted(written.len(), "token"), self.tokens));
        }
        let told = self.shown(&ids, &written);
        if !self.quiet {
            print(&told.whole)?;
        }
        let code = if stopped { INTERRUPTED } else { 0 };
        Ok(
            json!({ "prompt": prompt, "text": told.text, "tokens": written, "seed": sampling.seed, "exit_code": code }),
        )
    }

    /// The text of `written`, without the token that ended it.
    fn shown(&self, prompt: &[i64], written: &[i64]) -> Written {
        let ended = self.end.is_some() && written.last().copied() == self.end;
        let shown = &written[..written.len() - usize::from(ended && self.writer.end().is_none())];
        // Of an empty prompt a text begins behind the end of another, which is no part of it.
        let is_empty = self.writer.end().is_none() && prompt.len() == 1 && prompt.last().copied() == self.end;
        self.writer.decode(if is_empty { &[] } else { prompt }, shown)
    }
}

/// Answers lines from the terminal until it is told to end.
fn converse(
    writer: &dyn Writer,
    sampling: Sampling,
    tokens: usize,
    end: Option<i64>,
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
    let mut session = Session::new(writer, sampling, tokens, end, interruption);
    // An editor would write its control characters to a file or a pipe.
    let talked = match output.is_terminal() {
        true => LineEditor::new().and_then(|input| session.converse(input, output.lock())),
        false => session.converse(PlainLines::new(std::io::stdin().lock()), output.lock()),
    };
    talked.map_err(|e| Failure::new(IO_FAILED, format!("the terminal is gone: {e}")))?;
    Ok(json!({ "seed": sampling.seed }))
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
