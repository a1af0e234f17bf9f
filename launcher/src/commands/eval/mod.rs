//! `segue eval`: perplexity of a split; further protocols in one file each.

mod bleu;
mod coverage;
mod dynamic;
mod gates;
mod monte_carlo;
mod recl;
mod recovery;
mod sliding;
mod speed;
mod split;
pub mod subject;
mod temperature;
mod walk;

use std::iter;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::DeviceKind;
use segue_dataloader::{Corpus, Split};
use segue_family::{Asked, Evaluations, Trained};
use segue_language::{ModelFolder, refuse_pairs};
use serde_json::Value;

use self::split::SplitArgs;
use super::questions::{With, ask};
use super::spelled::spelled;
use super::{at_least_one, device_of_rank};
use crate::failure::{Failure, NOT_A_NUMBER, USAGE};
use crate::output::Output;

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
    split: SplitArgs,
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
    /// Score translations by BLEU, chrF and TER: a text against references, or a model on a split.
    Bleu(bleu::BleuArgs),
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
    #[arg(long, value_parser = spelled::<DeviceKind>(), default_value = "cpu")]
    device: DeviceKind,
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

impl EvalArgs {
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
            Self::Bleu(args) => args.takes_ranks(),
            Self::Sliding(_) | Self::Speed(_) | Self::Recl(_) | Self::Coverage(_) => false,
        }
    }

    /// With `quiet` nothing goes to stdout but the result.
    fn run(self, quiet: bool, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
        match self {
            Self::Bleu(args) => bleu::run(&args, quiet, comm, out),
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

/// Runs the protocol that is named, or evaluates a split. With `quiet` nothing goes to stdout but the result.
pub fn run(mut args: EvalArgs, quiet: bool, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    match (args.protocol.take(), args.model.take()) {
        (Some(Named::OfText(protocol)), _) => protocol.run(quiet, comm, out),
        (Some(Named::OfFamily(asked, given)), _) => run_own(asked, given, comm, out),
        (None, Some(model)) => split::run(&model, &args.split, comm, out),
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
    segue_kernels::libtorch::start(own.threads);
    let model = Trained { compute, ..Trained::open(&segue_families::MODELS, &own.model)? };
    let is_own = |all: &&Evaluations| all.0.iter().any(|one| std::ptr::eq(one, asked));
    if segue_family::find::<Evaluations>(&model.config).filter(is_own).is_none() {
        let with = segue_families::with::<Evaluations>().filter(|(_, all)| is_own(all)).map(|(name, _)| name);
        let wanted = with.collect::<Vec<_>>().join(" or a ");
        return Err(model.is_not(&format!("a {wanted} model")).into());
    }
    Ok(ask(asked, model, &given, comm, out)?.value)
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

/// The failure of a corpus that is not where a run had it.
fn moved(failure: Failure, model: &Path) -> Failure {
    let model = model.display();
    let hint = format!(
        "{model} was trained on it, and it was at this path then: give its place now by --corpus FOLDER"
    );
    Failure { hint: Some(hint), ..failure }
}

/// What the run in a folder was fine-tuned on; empty where it was not, or where there is no run.
pub fn task_of(run: &Path) -> String {
    let text = segue_publish::read_regular_text(run.join("config.json")).unwrap_or_default();
    let config: Value = serde_json::from_str(&text).unwrap_or_default();
    config["task"]["name"].as_str().unwrap_or_default().to_string()
}

/// Refuses a run that was fine-tuned: it has no text to be evaluated on.
pub fn refuse_fine_tuned(model: &Path) -> Result<(), Failure> {
    let task = task_of(model);
    if task.is_empty() {
        return Ok(());
    }
    let model = model.display();
    let message = format!(
        "{model} was fine-tuned on `{task}`, and reads no corpus\nhint: score it with segue finetune --predict --task {task} --model {model} --data FOLDER \
         --output FOLDER; let it answer texts with segue predict {model} --input FILE; as a language model it needs --corpus FOLDER"
    );
    Err(Failure::new(USAGE, message))
}

fn no_corpus(model: &Path) -> Failure {
    let model = model.display();
    let message = format!("{model} does not record the corpus it was trained on\nhint: add --corpus FOLDER");
    Failure::new(USAGE, message)
}

/// Refuses a corpus of pairs, and one whose ids mean other tokens to the model, and tells of rows that no token of it has.
pub fn check_tokenizer(folder: &ModelFolder, corpus: &Corpus, out: &Output) -> Result<(), Failure> {
    refuse_pairs(corpus)?;
    let (fingerprint, tokens) = (&corpus.info().tokenizer.fingerprint, corpus.vocab_size());
    let note = folder.check_ids_of(corpus.dir(), fingerprint, tokens)?;
    note.iter().for_each(|note| out.line(note));
    Ok(())
}
