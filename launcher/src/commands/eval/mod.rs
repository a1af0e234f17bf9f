//! `segue eval`: perplexity of a split; further protocols in one file each.

mod coverage;
mod dynamic;
mod gates;
mod lines;
mod monte_carlo;
mod pairs;
mod recl;
mod recovery;
mod sliding;
mod speed;
pub mod subject;
mod temperature;
mod walk;

use std::iter;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::ModelConfig;
use segue_dataloader::sections::{DocumentEnd, TextEvalConfig};
use segue_dataloader::{Corpus, Documents, Split, TokenStream};
use segue_engine::Watch;
use segue_family::{Asked, Evaluations, Trained};
use segue_language::{EvalOptions, Evaluation, ModelFolder, Objective, context, evaluate, load_objective};
use serde_json::{Value, json};

use self::subject::{Subject, TextArgs};
use self::walk::TemperatureArgs;
use super::questions::{With, ask};
use super::{DeviceArg, at_least_one, device_of_rank, distance, length, some_length};
use crate::failure::{BAD_CONFIG, Failure, NOT_A_NUMBER, USAGE};
use crate::output::{Output, Unit};

/// Pieces of a plain stream.
const LANES: usize = 4;
/// Tokens of a piece per forward pass.
const SEGMENT: usize = 128;

/// Arguments of `segue eval`.
#[derive(Args)]
#[command(
    after_help = "\
    Works under mpirun too; the result has the same bits at any number of ranks. An XLNet is evaluated on \
    sequences of pairs as its own training does it, one trained left to right like a Transformer-XL.\n\n\
    Examples:\n  \
    segue eval --model runs/wikitext2 --split test\n  \
    segue eval --model runs/wikitext2 --corpus corpora/wikitext2 --split test \\\n      \
    --lanes 1 --mem-len 400",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct EvalArgs {
    #[command(subcommand)]
    protocol: Option<Named>,
    /// Run folder (its best model, else its newest valid checkpoint), checkpoint, or folder in Hugging Face's layout.
    #[arg(long, required = true)]
    model: Option<PathBuf>,
    #[command(flatten)]
    text: TextArgs,
    /// Number of lanes the split is cut into, each with fresh memory; 1 gives every token all of its past [default: 4;
    /// of pairs `eval.lanes`].
    #[arg(long, value_parser = at_least_one)]
    lanes: Option<usize>,
    /// Lanes per forward pass of a plain stream. Ranks take turns with groups of so many, so that under mpirun `lanes / group`
    /// ranks have work; it changes the last bits of the result.
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    group: usize,
    /// Tokens per lane and forward pass [default: 128].
    #[arg(long, value_parser = some_length)]
    segment: Option<usize>,
    /// Tokens to re-read before each segment, as context.
    #[arg(long, default_value_t = 0, value_parser = length)]
    ext_len: usize,
    /// Treatment of the memory at the end of a document, as `train.at_document_end`.
    #[arg(long, value_enum, default_value = "carry")]
    at_document_end: DocumentEndName,
    /// Predict each line from a fresh state, its first token from an end of line, as a run with `data.order = "episodes"` validates. Only for
    /// recurrent models.
    #[arg(long, conflicts_with_all = ["ext_len", "at_document_end", "by_rows", "mem_len", "clamp_len", "same_length"])]
    lines: bool,
    #[command(flatten)]
    temperature: TemperatureArgs,
    #[command(flatten)]
    attention: AttentionArgs,
    /// Report the mean over rows too: in each lane one more than predictions, which AWD-LSTM's program divides by.
    #[arg(long)]
    by_rows: bool,
    #[command(flatten)]
    pairs: pairs::PairArgs,
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = DeviceArg::Cpu)]
    device: DeviceArg,
}

/// Context of attention.
#[derive(Args)]
struct AttentionArgs {
    /// Memory length, in positions [default: the model's].
    #[arg(long, value_parser = length)]
    mem_len: Option<usize>,
    /// Largest distance; greater ones are clamped to it, -1 for no limit [default: the model's].
    #[arg(long, allow_negative_numbers = true, value_parser = distance)]
    clamp_len: Option<i64>,
    /// Show every query the same number of keys [default: the model's].
    #[arg(long)]
    same_length: bool,
}

impl AttentionArgs {
    fn of(&self, model: &ModelConfig) -> Result<TextEvalConfig, Failure> {
        Ok(context(model, self.mem_len, self.clamp_len, self.same_length)?)
    }
}

/// Other ways to look at a model.
#[derive(Subcommand)]
enum Protocol {
    /// Predict each token from a sliding window that is recomputed for every token.
    Sliding(sliding::SlidingArgs),
    /// Measure the time per token with and without state reuse.
    Speed(speed::SpeedArgs),
    /// Measure the relative effective context length of a group of models.
    Recl(recl::ReclArgs),
    /// Evaluate dynamically: the model adapts to the text as it reads.
    Dynamic(dynamic::DynamicArgs),
    /// Search the temperature of the softmax on the valid split.
    Temperature(temperature::TemperatureSearchArgs),
    /// Evaluate with dropout on, many times over, and average what is predicted.
    MonteCarlo(monte_carlo::MonteCarloArgs),
    /// Compare how models predict after surprises.
    Recovery(recovery::RecoveryArgs),
    /// Measure how far the gates of a recurrent model stand open.
    Gates(gates::GatesArgs),
    /// Count which dependencies between tokens BERT's, XLNet's and left-to-right training cover.
    Coverage(coverage::CoverageArgs),
}

/// A way to look at a model that has a name: of text, or of one family.
enum Named {
    /// For models of text.
    OfText(Protocol),
    /// A family's own, and its options.
    OfFamily(&'static Asked, With<OwnArgs>),
}

/// Options of an evaluation that a family declares, beside those of its own.
#[derive(Debug, Args)]
struct OwnArgs {
    /// Run folder (its best model, else its newest valid checkpoint), or checkpoint.
    #[arg(long)]
    model: PathBuf,
    /// libtorch threads per rank.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = DeviceArg::Cpu)]
    device: DeviceArg,
}

/// All evaluations that families declare.
pub fn declared() -> impl Iterator<Item = &'static Asked> {
    segue_families::with::<Evaluations>().flat_map(|(_, Evaluations(all))| all.iter())
}

impl Subcommand for Named {
    fn augment_subcommands(command: Command) -> Command {
        declared().fold(Protocol::augment_subcommands(command), |command, asked| {
            // What the options say of themselves is not what the command does.
            let own = (asked.options)(OwnArgs::augment_args(Command::new(asked.name)));
            let example = format!("Example:\n{}", asked.example);
            command.subcommand(own.about(asked.about).after_help(example))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Protocol::has_subcommand(name) || declared().any(|asked| asked.name == name)
    }
}

impl FromArgMatches for Named {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, clap::Error> {
        let own = given.subcommand().and_then(|(name, given)| {
            declared().find(|asked| asked.name == name).map(|asked| (asked, given))
        });
        match own {
            Some((asked, given)) => Ok(Self::OfFamily(asked, With::of(given)?)),
            None => Protocol::from_arg_matches(given).map(Self::OfText),
        }
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(given)?;
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum SplitName {
    Train,
    Valid,
    Test,
}

impl From<SplitName> for Split {
    fn from(name: SplitName) -> Split {
        match name {
            SplitName::Train => Split::Train,
            SplitName::Valid => Split::Valid,
            SplitName::Test => Split::Test,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum DocumentEndName {
    /// Nothing.
    Carry,
    /// The next segment starts with a fresh memory.
    Reset,
    /// No position sees another document.
    Mask,
}

impl From<DocumentEndName> for DocumentEnd {
    fn from(name: DocumentEndName) -> DocumentEnd {
        match name {
            DocumentEndName::Carry => DocumentEnd::Carry,
            DocumentEndName::Reset => DocumentEnd::Reset,
            DocumentEndName::Mask => DocumentEnd::Mask,
        }
    }
}

impl EvalArgs {
    /// What only Transformer-XL knows.
    fn refuse_context(&self) -> Result<(), Failure> {
        if self.ext_len > 0 || matches!(self.at_document_end, DocumentEndName::Mask) {
            let message = "--ext-len and --at-document-end mask are options of Transformer-XL\nhint: use \
                --at-document-end reset";
            return Err(Failure::new(USAGE, message));
        }
        Ok(())
    }

    /// Whether ranks share the work.
    pub fn takes_ranks(&self) -> bool {
        match &self.protocol {
            None | Some(Named::OfFamily(..)) => true,
            Some(Named::OfText(protocol)) => protocol.takes_ranks(),
        }
    }
}

impl Protocol {
    fn takes_ranks(&self) -> bool {
        match self {
            Self::Dynamic(_)
            | Self::Temperature(_)
            | Self::MonteCarlo(_)
            | Self::Recovery(_)
            | Self::Gates(_) => true,
            Self::Sliding(_) | Self::Speed(_) | Self::Recl(_) | Self::Coverage(_) => false,
        }
    }

    fn run(self, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
        match self {
            Self::Sliding(args) => sliding::run(args, out),
            Self::Speed(args) => speed::run(args, out),
            Self::Recl(args) => recl::run(args, out),
            Self::Dynamic(args) => dynamic::run(args, comm, out),
            Self::Temperature(args) => temperature::run(args, comm, out),
            Self::MonteCarlo(args) => monte_carlo::run(args, comm, out),
            Self::Recovery(args) => recovery::run(args, comm, out),
            Self::Gates(args) => gates::run(args, comm, out),
            Self::Coverage(args) => coverage::run(args, out),
        }
    }
}

/// Says what is wrong with words behind `segue eval`.
pub fn check_words(words: &[String]) -> Result<(), String> {
    let command = EvalArgs::augment_args(Command::new("segue eval"));
    let words = iter::once("segue eval").chain(words.iter().map(String::as_str));
    command.try_get_matches_from(words).map(drop).map_err(|error| {
        let text = error.to_string();
        // Usage and hints follow.
        let first = text.lines().next().unwrap_or_default();
        first.strip_prefix("error: ").unwrap_or(first).to_string()
    })
}

/// Runs the protocol that is named, or evaluates a split.
pub fn run(mut args: EvalArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    match (args.protocol.take(), args.model.take()) {
        (Some(Named::OfText(protocol)), _) => protocol.run(comm, out),
        (Some(Named::OfFamily(asked, given)), _) => run_own(asked, given, comm, out),
        (None, Some(model)) => run_split(&model, args, comm, out),
        (None, None) => Err(Failure::new(USAGE, "give --model")),
    }
}

/// Evaluates a model as its family declares.
fn run_own(
    asked: &'static Asked,
    With { own, given }: With<OwnArgs>,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    let compute = device_of_rank(own.device, comm, out)?;
    segue_kernels::libtorch::set_threads(own.threads);
    let model = Trained { compute, ..Trained::open(&segue_families::MODELS, &own.model)? };
    let is_own = |all: &&Evaluations| all.0.iter().any(|one| std::ptr::eq(one, asked));
    if segue_family::find::<Evaluations>(&model.config).filter(is_own).is_none() {
        let with = segue_families::with::<Evaluations>().filter(|(_, all)| is_own(all)).map(|(name, _)| name);
        let wanted = with.collect::<Vec<_>>().join(" or a ");
        return Err(model.is_not(&format!("a {wanted} model")).into());
    }
    Ok(ask(asked, model, &given, comm, out)?.value)
}

/// Evaluates a split and prints perplexity and bits.
fn run_split(model: &Path, args: EvalArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let compute = device_of_rank(args.device, comm, out)?;
    let folder = ModelFolder { compute, ..args.text.open_folder(model, out)? };
    let tokens = folder.next_tokens()?;
    if tokens.looks_both_ways(&folder.config) {
        return pairs::run(folder, model, &args, comm, out);
    }
    if !tokens.reads_context_again() {
        args.refuse_context()?;
    }
    let config = folder.training_config(model, &[])?;
    let by_lines = args.lines.then(|| lines::config(&folder, &config, &args)).transpose()?;
    let load = |folder: &ModelFolder| load_objective(folder, &config);
    let subject = Subject::of(folder, model, &args.text, load, out)?;
    match by_lines {
        Some(config) => lines::run(subject, &config, &args, comm, out),
        None => run_stream(subject, args, comm, out),
    }
}

/// Evaluates a split from its first token to its last.
fn run_stream(
    subject: Subject<Box<dyn Objective>>,
    args: EvalArgs,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    args.pairs.refuse()?;
    let Subject { folder, mut model, corpus, stream } = subject;
    model.look(Some(&args.attention.of(&folder.config)?));
    model.set_inverse_temperature(args.temperature.temperature);
    let policy = args.at_document_end.into();
    let documents = match policy {
        DocumentEnd::Carry => None,
        DocumentEnd::Reset | DocumentEnd::Mask => {
            Some(Documents::new(corpus.documents(args.text.split.into())?))
        }
    };
    if documents.is_some() {
        model.keep_marks();
    }
    let lanes = lanes(&args, &stream)?;
    let options = EvalOptions {
        lanes,
        group: args.group.min(lanes),
        segment: args.segment.unwrap_or(SEGMENT),
        ext_len: args.ext_len,
        documents: documents.as_ref().map(|documents| (documents, policy)),
    };
    let bar = out.progress(0, Unit::Steps, "evaluate");
    let mut progress = |done, whole| bar.set_of(done, whole);
    let result = evaluate(model.as_ref(), &stream, options, comm, &mut Watch::new(&mut progress))?;
    drop(bar);
    let mut found = told(&folder, &result, out)?;
    if args.by_rows {
        let rows = result.by_rows(lanes);
        out.line(&format!("by rows: loss {:.4}, perplexity {:.3}", rows.loss, rows.ppl));
        found["by_rows"] = json!(rows);
    }
    Ok(found)
}

/// The lanes that a split is cut into.
fn lanes(args: &EvalArgs, stream: &TokenStream) -> Result<usize, Failure> {
    let lanes = args.lanes.unwrap_or(LANES);
    match args.lanes {
        Some(lanes) if lanes as u64 > stream.len() => {
            let message = format!("--lanes {lanes} is more than the {} tokens of the split", stream.len());
            Err(Failure::new(USAGE, message))
        }
        _ => Ok(lanes),
    }
}

/// Tells what was found of the model of `folder`.
fn told(folder: &ModelFolder, result: &Evaluation, out: &Output) -> Result<Value, Failure> {
    out.line(&result.describe());
    check_loss(result.loss, &folder.path)?;
    Ok(json!({ "model": folder.path, "evaluation": result }))
}

/// Refuses the loss of a damaged model: a script that reads no number back would go on with none.
fn check_loss(loss: f64, model: &Path) -> Result<(), Failure> {
    if loss.is_finite() { Ok(()) } else { Err(not_a_number(loss, model)) }
}

fn not_a_number(loss: f64, model: &Path) -> Failure {
    let message =
        format!("the loss of {} is {loss}: its weights are damaged, or have diverged", model.display());
    Failure::new(NOT_A_NUMBER, message + "\nhint: open an earlier checkpoint")
}

/// The corpus that is named, or the one that a run was trained on.
pub fn open_corpus(model: &Path, named: Option<&Path>) -> Result<Corpus, Failure> {
    if let Some(corpus) = named {
        return Ok(Corpus::open(corpus)?);
    }
    let recorded = recorded_corpus(model)?;
    Corpus::open(&recorded).map_err(|error| {
        let failure = Failure::from(error);
        if recorded.is_dir() {
            return failure;
        }
        let hint = format!(
            "{} was trained on it, and it was at this path then: give its place now by --corpus FOLDER",
            model.display()
        );
        Failure { hint: Some(hint), ..failure }
    })
}

fn recorded_corpus(model: &Path) -> Result<PathBuf, Failure> {
    let record = model.join("config.json");
    let text = segue_publish::read_regular_text(&record).unwrap_or_default();
    let corpus = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|c| Some(c["data"]["corpus"].as_str()?.to_string()));
    corpus.map(PathBuf::from).ok_or_else(|| {
        let message = format!(
            "{} does not record the corpus it was trained on\nhint: add --corpus FOLDER",
            model.display()
        );
        Failure::new(USAGE, message)
    })
}

/// Ids mean the same to model and corpus only where both have the same tokenizer. Of a folder from elsewhere without one, that of the corpus is taken.
pub fn check_tokenizer(folder: &ModelFolder, corpus: &Corpus, out: &Output) -> Result<(), Failure> {
    let Some(tokenizer) = &folder.vocabulary else {
        folder.config.unnamed_rows(corpus.vocab_size()).iter().for_each(|note| out.line(note));
        return Ok(());
    };
    let (own, other) = (tokenizer.fingerprint(), &corpus.info().tokenizer.fingerprint);
    if own == *other {
        return Ok(());
    }
    let message = format!(
        "{} was trained with another tokenizer ({own}) than {} was built with ({other})\nhint: build the \
         corpus with --tokenizer {}",
        folder.path.display(),
        corpus.dir().display(),
        folder.path.display()
    );
    Err(Failure::new(BAD_CONFIG, message))
}
