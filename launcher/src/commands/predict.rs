//! `segue predict`: what a trained model predicts, by the question of its family.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use segue_collectives::local::Local;
use segue_family::{Asked, Predicts, Trained};
use serde_json::Value;

use super::child::write_whole;
use super::finetune::one_run;
use super::print_text;
use super::questions::{With, allow_outputs, ask, refuse_options_of_others};
use crate::failure::Failure;
use crate::folder::Force;
use crate::output::Output;

/// Options of every model.
#[derive(Debug, Args)]
pub struct Common {
    /// Run folder (its best model, else its newest valid checkpoint), checkpoint, or model folder.
    model: PathBuf,
    /// CSV file to write, a prediction a line [default: to stdout].
    #[arg(long)]
    csv: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Arguments of `segue predict`: those of every model, and those of each family.
#[derive(Debug)]
pub struct PredictArgs(With<Common>);

impl Args for PredictArgs {
    fn augment_args(command: Command) -> Command {
        let command = Common::augment_args(command);
        let command = questions()
            .fold(command, |command, (_, asked)| (asked.options)(command.next_help_heading(asked.about)));
        let models: Vec<&str> = segue_families::with::<Predicts>().map(|(name, _)| name).collect();
        let examples = questions().map(|(_, asked)| asked.example).collect::<Vec<_>>().join("\n");
        command.after_help(format!("Models that predict: {}.\n\nExamples:\n{examples}", models.join(", ")))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PredictArgs {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, clap::Error> {
        With::of(given).map(Self)
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(given)?;
        Ok(())
    }
}

/// The question of each kind of models once, with those that it is asked of: families may share one, and its options are one command's.
fn questions() -> impl Iterator<Item = (Vec<&'static str>, &'static Asked)> {
    segue_families::shared::<Predicts>().into_iter().map(|(models, Predicts(asked))| (models, asked))
}

/// Predicts, and writes what was asked for.
pub fn run(
    PredictArgs(With { own, given }): &PredictArgs,
    json: bool,
    out: &Output,
) -> Result<Value, Failure> {
    own.force.allow(own.csv.as_deref(), "--csv")?;
    // Which family answers is not known yet, and no option has two meanings.
    questions().try_for_each(|(_, asked)| allow_outputs(asked, given, own.force))?;
    segue_kernels::libtorch::start(1);
    let model = Trained::open(&segue_families::MODELS, &one_run(&own.model, "")?)?;
    let Predicts(asked) = segue_families::need_of(&model)?;
    let others = questions().filter(|(_, other)| !std::ptr::eq(*other, asked));
    refuse_options_of_others(others, given, &model)?;
    let answer = ask(asked, model, given, &Local, out)?;
    match &own.csv {
        Some(path) => write_whole(path, &answer.text)?,
        None if !json => print_text(answer.text.as_bytes())?,
        None => {}
    }
    Ok(answer.value)
}
