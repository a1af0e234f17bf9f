use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use segue_language::{context, writing_memory};
use segue_protocols::{Sample, SampleOptions, draw_samples};
use segue_tokenizer::{Tokenizer, TokenizerKind, detokenize, detokenize_after};
use serde_json::{Value, json};

use super::SEGMENT;
use super::sampling::SamplingArgs;
use crate::commands::eval::subject::SubjectArgs;
use crate::commands::{at_least_one, distance, length, some_length};
use crate::failure::Failure;
use crate::folder::{Force, ResultFolder};
use crate::output::{Output, Unit};

/// Arguments of `segue generate samples`.
#[derive(Args)]
#[command(after_help = "\
    The first samples are kept, none is discarded; more samples begin with the same ones.\n\n\
    Example:\n  \
    segue generate samples --model runs/wikitext2 --split test --samples 3 \\\n      \
    --tokens 500 --output samples")]
pub struct SamplesArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Number of samples.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    samples: u64,
    /// Tokens of the random passage that a sample continues.
    #[arg(long, default_value_t = 512, value_parser = some_length)]
    seed_tokens: usize,
    /// Number of tokens to generate.
    #[arg(long, default_value_t = 500, value_parser = length)]
    tokens: usize,
    /// Samples that are written side by side: faster together, and the same but for rare choices between tokens as likely to the last bits.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    lanes: usize,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Memory length, in positions [default: the model's; 512 for an XLNet without memory].
    #[arg(long, value_parser = length)]
    mem_len: Option<usize>,
    /// Largest distance; greater ones are clamped to it, -1 for no limit [default: the model's].
    #[arg(long, allow_negative_numbers = true, value_parser = distance)]
    clamp_len: Option<i64>,
    /// Folder for `samples.json` and `samples.md` [default: stdout].
    #[arg(long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// A sample as text.
struct SampleText {
    start: u64,
    context: String,
    sample: String,
    reference: String,
}

/// Draws samples, shows them beside what really follows, and writes them down where asked.
pub fn run(args: SamplesArgs, quiet: bool, out: &Output) -> Result<Value, Failure> {
    args.sampling.check()?;
    let folder = args.output.as_deref().map(|path| ResultFolder::of_output(path, args.force)).transpose()?;
    let mut subject = args.subject.open(out)?;
    let model = &subject.folder.config;
    let eval = context(model, writing_memory(model, args.mem_len)?, args.clamp_len, false)?;
    subject.model.look(&eval);
    let corpus = subject.texts.of_split(args.subject.text.split.into())?;
    let tokenizer = corpus.tokenizer()?;
    let options = SampleOptions {
        samples: args.samples,
        seed_tokens: args.seed_tokens,
        tokens: args.tokens,
        lanes: args.lanes,
        segment: SEGMENT,
        sampling: args.sampling.sampling(tokenizer.vocab_size(), tokenizer.unk_id().map(i64::from)),
    };
    let bar = out.progress(args.samples.saturating_mul(args.tokens as u64), Unit::Steps, "generate");
    let samples = draw_samples(subject.model.as_ref(), &subject.stream, &options, |done| bar.set(done))?;
    drop(bar);
    let texts: Vec<SampleText> = samples.iter().map(|sample| decoded(sample, &tokenizer)).collect();
    let result = json!({
        "model": subject.folder.path,
        "corpus": corpus.dir(),
        "seed": args.sampling.seed,
        "seed_tokens": args.seed_tokens,
        "tokens": args.tokens,
        "top_k": args.sampling.top_k,
        "top_p": args.sampling.top_p,
        "eta": args.sampling.eta,
        "temperature": args.sampling.temperature,
        "allow_unknown": args.sampling.allow_unknown,
        "samples": texts.iter().zip(&samples).map(as_json).collect::<Vec<_>>(),
    });
    let markdown = markdown(&texts);
    if let Some(folder) = folder {
        folder.write_json("samples.json", &result)?;
        folder.write("samples.md", &markdown)?;
        out.line(&format!("written to {}", folder.path().display()));
    } else if !quiet {
        super::print(&markdown)?;
    }
    Ok(result)
}

fn as_json((texts, sample): (&SampleText, &Sample)) -> Value {
    json!({
        "start": texts.start,
        "context": texts.context,
        "sample": texts.sample,
        "reference": texts.reference,
        "context_tokens": sample.context,
        "sample_tokens": sample.continuation,
        "reference_tokens": sample.reference,
    })
}

fn decoded(sample: &Sample, tokenizer: &Tokenizer) -> SampleText {
    let decode = |ids: &[i64]| tokenizer.decode_signed(ids);
    let context = decode(&sample.context);
    // Only words between spaces need it: other tokenizers keep the spaces of the text.
    let words = tokenizer.kind() == TokenizerKind::Word;
    let after = |ids: &[i64]| {
        let text = decode(ids);
        if words { detokenize_after(&context, &text) } else { text }
    };
    let (continuation, reference) = (after(&sample.continuation), after(&sample.reference));
    let context = if words { detokenize(&context) } else { context };
    SampleText { start: sample.start, context, sample: continuation, reference }
}

fn markdown(samples: &[SampleText]) -> String {
    let mut out = String::new();
    for (i, texts) in samples.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# Sample {} (from token {} of the split)\n", i + 1, texts.start);
        let parts = [("Context", &texts.context), ("Sample", &texts.sample), ("Reference", &texts.reference)];
        for (name, text) in parts {
            let _ = writeln!(out, "## {name}\n\n{}\n", quoted(text));
        }
    }
    out
}

/// Text as a Markdown quotation: what looks like markup in it is shown as it is; headings are bold.
fn quoted(text: &str) -> String {
    let line = |line: &str| match line.trim().starts_with('=') {
        true => format!("> **{}**", escaped(line.trim())),
        false => format!("> {}", escaped(line)),
    };
    // An empty line between lines, or Markdown joins them.
    text.split('\n').filter(|l| !l.trim().is_empty()).map(line).collect::<Vec<_>>().join("\n>\n")
}

fn escaped(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '<' | '>' | '#' | '[' | ']' | '|') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_with_its_headings_and_without_markup_of_its_own() {
        let text = "a <unk> *b*\n\n== Life cycle ==\nc";
        assert_eq!(quoted(text), "> a \\<unk\\> \\*b\\*\n>\n> **== Life cycle ==**\n>\n> c");
    }
}
