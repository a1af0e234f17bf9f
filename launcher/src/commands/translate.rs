//! `segue translate`: each line of a text, in its order.

mod job;
mod text;

use std::path::PathBuf;

use clap::Args;
use segue_cluster::signals::Interruption;
use segue_collectives::Communicator;
use segue_configs::DeviceKind;
use segue_decode::{BeamSettings, Decoding, Finish, LengthPenalty, Sampling};
use segue_family::{Trained, Translates, Translation};
use serde_json::{Value, json};

use self::job::Job;
use self::text::Text;
use super::spelled::spelled;
use super::{at_least_one, device_of_rank, positive};
use crate::failure::{BAD_DATA, Failure, INTERRUPTED, USAGE};
use crate::folder::Force;
use crate::output::Output;

/// More beams than any search is better for.
const MOST_BEAMS: usize = 1 << 10;

/// Arguments of `segue translate`.
#[derive(Args)]
#[command(after_help = "\
    A line of output for each line of input, in its order; an empty line stays one. A line that cannot be translated \
    is reported with its number, leaves an empty line, and the command ends with 65. A line that is typed is answered \
    at once; buffered lines are translated side by side, on all threads and ranks. A translation depends on its \
    line alone, a drawn one on --seed too.\n\n\
    Examples:\n  \
    segue translate --model runs/de-en --input news.de.gz --output news.en\n  \
    segue translate --model runs/de-en --beams 5 --n-best 3 --scores\n  \
    segue translate --model runs/en-de --sample --input mono.en --output mono.de")]
pub struct TranslateArgs {
    /// Run folder (its best model, else its newest valid checkpoint), checkpoint, or model folder.
    #[arg(long)]
    model: PathBuf,
    /// Text to translate, a sentence a line; `.gz` and `.zst` are decompressed; `-` for stdin.
    #[arg(long, default_value = "-")]
    input: PathBuf,
    /// File for the translations, which appears at the end; Ctrl-C leaves none [default: stdout].
    #[arg(long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Number of beams; 1 for the most probable token each time.
    #[arg(long, default_value_t = 4, value_parser = beams)]
    beams: usize,
    /// Exponent α of the length penalty.
    #[arg(long, default_value_t = 0.6)]
    length_penalty: f64,
    /// What ln P of a translation is divided by.
    #[arg(long, value_parser = spelled::<LengthPenalty>(), default_value = "gnmt")]
    length_form: LengthPenalty,
    /// Weight of the coverage penalty.
    #[arg(long, default_value_t = 0.0)]
    coverage_penalty: f64,
    /// When a search ends.
    #[arg(long, value_parser = spelled::<Finish>(), default_value = "worst")]
    finish: Finish,
    #[command(flatten)]
    sample: SampleArgs,
    /// Translations of each line, the best first or as they were drawn, a line each behind the number of what they are of; of a search at most as many as there are beams.
    #[arg(long, default_value_t = 1, value_parser = beams)]
    n_best: usize,
    /// Put the score and ln P before each translation, separated by tabs.
    #[arg(long)]
    scores: bool,
    /// Put `source-target` pairs of pieces, counted from 0, after each translation, separated by a tab.
    #[arg(long)]
    alignments: bool,
    /// Number of threads.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// Where to compute.
    #[arg(long, value_parser = spelled::<DeviceKind>(), default_value = "cpu")]
    device: DeviceKind,
}

/// Translations that are drawn.
#[derive(Args)]
struct SampleArgs {
    /// Draw each token by its probability instead of searching, for instance to translate back; equal lines have equal translations.
    #[arg(long, conflicts_with_all = ["beams", "length_penalty", "length_form", "coverage_penalty", "finish", "alignments"])]
    sample: bool,
    /// Number of most probable tokens to draw from; 0 for all.
    #[arg(long, default_value_t = 0, requires = "sample")]
    top_k: usize,
    /// Total probability of the most probable tokens to draw from, in (0, 1].
    #[arg(long, default_value_t = 1.0, requires = "sample")]
    top_p: f64,
    /// Temperature of the distribution: below 1 sharper, above 1 flatter.
    #[arg(long, default_value_t = 1.0, requires = "sample", value_parser = temperature)]
    temperature: f64,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1, requires = "sample")]
    seed: u64,
}

impl SampleArgs {
    /// How to draw `texts` translations of each line.
    fn decoding(&self, texts: usize) -> Result<Decoding, Failure> {
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            let why = format!("--top-p {} does not lie in (0, 1]", self.top_p);
            return Err(Failure::new(USAGE, why));
        }
        let Self { top_k, top_p, temperature, seed, .. } = *self;
        Ok(Decoding::Sample {
            texts,
            sampling: Sampling { top_k, top_p, temperature, seed, ..Sampling::ALL },
        })
    }
}

/// A temperature that draws.
fn temperature(text: &str) -> Result<f64, String> {
    positive(text).map_err(|why| format!("{why}: --beams 1 without --sample takes the most probable token"))
}

/// A number of beams.
pub fn beams(text: &str) -> Result<usize, String> {
    match at_least_one(text)? {
        beams if beams <= MOST_BEAMS => Ok(beams),
        _ => Err(format!("at most {MOST_BEAMS}")),
    }
}

impl TranslateArgs {
    fn decoding(&self) -> Result<Decoding, Failure> {
        if self.sample.sample {
            return self.sample.decoding(self.n_best);
        }
        for (option, value) in
            [("--length-penalty", self.length_penalty), ("--coverage-penalty", self.coverage_penalty)]
        {
            if !(0.0..=10.0).contains(&value) {
                return Err(Failure::new(USAGE, format!("{option} {value} is not between 0 and 10")));
            }
        }
        if self.n_best > self.beams {
            let why = format!("--n-best {} is more than --beams {}", self.n_best, self.beams);
            return Err(Failure::new(USAGE, format!("{why}\nhint: add --beams {}", self.n_best)));
        }
        Ok(Decoding::Search(BeamSettings {
            beams: self.beams,
            alpha: self.length_penalty,
            form: self.length_form,
            coverage: self.coverage_penalty,
            finish: self.finish,
            alignments: self.alignments,
        }))
    }

    /// The line of a translation of line `line`.
    fn text(&self, line: u64, translation: &Translation) -> String {
        let mut fields = Vec::new();
        if self.n_best > 1 {
            fields.push(line.to_string());
        }
        if self.scores {
            fields.push(format!("{:.4}\t{:.4}", translation.score, translation.log_prob));
        }
        // A line break of a translation would move the lines after it.
        fields.push(translation.text.replace(['\n', '\r', '\t'], " "));
        if self.alignments {
            let pair = |(target, source): (usize, &usize)| format!("{source}-{target}");
            let pairs: Vec<String> = translation.alignments.iter().enumerate().map(pair).collect();
            fields.push(pairs.join(" "));
        }
        fields.join("\t")
    }

    /// A sentence for programs.
    fn value(&self, line: u64, found: &[Translation]) -> Value {
        let of = |translation: &Translation| {
            let Translation { text, log_prob, score, pieces, alignments, .. } = translation;
            let mut value = json!({ "text": text, "score": score, "log_prob": log_prob });
            if self.alignments {
                value["source_pieces"] = json!(pieces[0]);
                value["pieces"] = json!(pieces[1]);
                value["alignments"] = json!(alignments);
            }
            value
        };
        json!({ "line": line, "translations": found.iter().map(of).collect::<Vec<_>>() })
    }
}

/// Translates line by line, to a file or to stdout; with `quiet` and without a file translations are in the result alone.
pub fn run(
    args: &TranslateArgs,
    quiet: bool,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    let decoding = args.decoding()?;
    if args.length_form == LengthPenalty::Length && args.length_penalty == 0.0 {
        out.line("warning: --length-form length has no effect with --length-penalty 0");
    }
    args.force.allow(args.output.as_deref(), "--output")?;
    if comm.world_size() > 1 && !args.input.is_file() {
        let why = "ranks share the lines of a file, and --input is none\nhint: add --input FILE, or start it without mpirun";
        return Err(Failure::new(USAGE, why));
    }
    let compute = device_of_rank(args.device, comm, out)?;
    segue_kernels::libtorch::start(args.threads);
    let mut model = Trained { compute, ..Trained::open(&segue_families::MODELS, &args.model)? };
    std::mem::take(&mut model.notes).iter().for_each(|note| out.line(note));
    let Translates(open) = segue_families::need_of(&model)?;
    let translator = open(model)?;
    let interruption = Interruption::install()?;
    let threads = args.threads.saturating_mul(comm.world_size());
    let text = Text::open(&args.input, threads, translator.takes_many())?;
    let job = Job { args, decoding, translator: translator.as_ref(), quiet, interruption, comm, out };
    let done = job.run(text)?;
    let code = match (done.stopped, done.failed.is_empty()) {
        (true, _) => INTERRUPTED,
        (_, false) => BAD_DATA,
        _ => 0,
    };
    let mut result = json!({
        "lines": done.lines, "empty": done.empty, "failed": done.failed, "output": args.output,
        "tokens": done.tokens, "seconds": done.seconds, "exit_code": code,
    });
    if quiet && args.output.is_none() {
        result["sentences"] = done.sentences.into();
    }
    Ok(result)
}
