//! What is asked of a trained model on the command line, with options that its family declares.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use segue_collectives::Communicator;
use segue_data_error::DataError;
use segue_engine::Watch;
use segue_kernels::TrainError;
use serde_json::Value;

use crate::trained::Trained;

/// A question to a trained model.
pub trait Question {
    /// Its options, beside those of the command that asks it: which model, which device. No two families give an option of one command the same
    /// name.
    type Options: Args;
    /// What an evaluation is called on the command line, and the progress bar of any question.
    const NAME: &'static str;
    /// What it does: a sentence in the list of evaluations, the title of the options of a prediction.
    const ABOUT: &'static str;
    /// Examples as help shows them, two spaces before each line.
    const EXAMPLE: &'static str;

    /// Files that a prediction writes, each with the option that names it: where they are there already, they are refused before any work.
    fn outputs(options: &Self::Options) -> Outputs {
        let _ = options;
        Vec::new()
    }

    /// Answers it. A collective call where several ranks ask.
    fn answer(model: Trained, options: Self::Options, asker: &mut Asker) -> Result<Answer, TrainError>;
}

/// Output files, each with the option that names it.
pub type Outputs = Vec<(PathBuf, &'static str)>;

/// Who asks.
pub struct Asker<'a> {
    /// The ranks that ask together.
    pub comm: &'a dyn Communicator,
    /// Hears how far the work is.
    pub watch: Watch<'a>,
    /// Shows people a line, as soon as there is something to say.
    pub tell: &'a mut dyn FnMut(&str),
}

/// What was found.
#[derive(Debug, Default)]
pub struct Answer {
    /// An object, for programs.
    pub value: Value,
    /// Of a prediction: the table that goes to stdout where no file is named for it.
    pub text: String,
}

/// How a question is answered, once its options are parsed.
type Answering = fn(Trained, &ArgMatches, &mut Asker) -> Result<Answer, TrainError>;

/// A [`Question`] as commands hold it.
pub struct Asked {
    /// What an evaluation is called on the command line.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Examples.
    pub example: &'static str,
    /// Adds its options to a command.
    pub options: fn(Command) -> Command,
    /// Files that it writes by these options.
    pub outputs: fn(&ArgMatches) -> Result<Outputs, TrainError>,
    /// Answers it.
    pub answer: Answering,
}

impl Asked {
    /// As commands hold it.
    pub const fn of<Q: Question>() -> Self {
        Self {
            name: Q::NAME,
            about: Q::ABOUT,
            example: Q::EXAMPLE,
            options: <Q::Options as Args>::augment_args,
            outputs: |given| Ok(Q::outputs(&options::<Q>(given)?)),
            answer: |model, given, asker| Q::answer(model, options::<Q>(given)?, asker),
        }
    }
}

/// The options of a question, of a command line that was parsed with them.
fn options<Q: Question>(given: &ArgMatches) -> Result<Q::Options, TrainError> {
    Q::Options::from_arg_matches(given).map_err(|error| DataError::Usage(error.to_string()).into())
}
