//! `segue translate`: each line of a text, in its order.

mod job;
mod text;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use segue_cluster::signals::Interruption;
use segue_collectives::Communicator;
use segue_decode::{BeamSettings, Finish, LengthPenalty};
use segue_family::{Trained, Translates, Translation};
use serde_json::{Value, json};

use self::job::Job;
use self::text::Text;
use super::{DeviceArg, at_least_one, device_of_rank};
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
    line alone.\n\n\
    Examples:\n  \
    segue translate --model runs/de-en --input news.de.gz --output news.en\n  \
    segue translate --model runs/de-en --beams 5 --n-best 3 --scores")]
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
    /// Exponent of the length penalty.
    #[arg(long, default_value_t = 0.6)]
    length_penalty: f64,
    /// Form of the length penalty: ((5 + L) / 6)^a, or L^a.
    #[arg(long, value_enum, default_value_t = Form::Gnmt)]
    length_form: Form,
    /// Weight of the coverage penalty.
    #[arg(long, default_value_t = 0.0)]
    coverage_penalty: f64,
    /// When a search ends: the worst of all beams is as good as any can become, the best is, or as many have ended as there are beams.
    #[arg(long, value_enum, default_value_t = End::Worst)]
    finish: End,
    /// Translations of each line, the best first, a line each behind the number of what they are of; at most as many as there are beams.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
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
    #[arg(long, value_enum, default_value_t = DeviceArg::Cpu)]
    device: DeviceArg,
}

/// Forms of the length penalty.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Form {
    /// ((5 + L) / 6)^a.
    Gnmt,
    /// L^a.
    Length,
}

/// Ends of a search.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum End {
    /// As many have ended as there are beams, and none that goes on can become better than the worst of them.
    Worst,
    /// None that goes on can become better than the best that has ended.
    Best,
    /// As `worst`, but an end counts among as many most probable continuations as there are beams alone, as in Hugging Face's package.
    Ranked,
    /// As many have ended as there are beams.
    First,
}

/// A number of beams.
pub fn beams(text: &str) -> Result<usize, String> {
    match at_least_one(text)? {
        beams if beams <= MOST_BEAMS => Ok(beams),
        _ => Err(format!("at most {MOST_BEAMS}")),
    }
}

impl TranslateArgs {
    fn search(&self) -> Result<BeamSettings, Failure> {
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
        Ok(BeamSettings {
            beams: self.beams,
            alpha: self.length_penalty,
            form: match self.length_form {
                Form::Gnmt => LengthPenalty::Gnmt,
                Form::Length => LengthPenalty::Length,
            },
            coverage: self.coverage_penalty,
            finish: match self.finish {
                End::Worst => Finish::Worst,
                End::Best => Finish::Best,
                End::Ranked => Finish::Ranked,
                End::First => Finish::First,
            },
            alignments: self.alignments,
        })
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
    let search = args.search()?;
    if search.form == LengthPenalty::Length && search.alpha == 0.0 {
        out.line("warning: --length-form length has no effect with --length-penalty 0");
    }
    args.force.allow(args.output.as_deref(), "--output")?;
    if comm.world_size() > 1 && !args.input.is_file() {
        let why = "ranks share the lines of a file, and --input is none\nhint: add --input FILE, or start it without mpirun";
        return Err(Failure::new(USAGE, why));
    }
    let compute = device_of_rank(args.device, comm, out)?;
    segue_kernels::libtorch::set_threads(args.threads);
    let mut model = Trained { compute, ..Trained::open(&segue_families::MODELS, &args.model)? };
    std::mem::take(&mut model.notes).iter().for_each(|note| out.line(note));
    let Translates(open) = segue_families::need_of(&model)?;
    let translator = open(model)?;
    let interruption = Interruption::install()?;
    let threads = args.threads.saturating_mul(comm.world_size());
    let text = Text::open(&args.input, threads, translator.takes_many())?;
    let job = Job { args, search, translator: translator.as_ref(), quiet, interruption, comm, out };
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
