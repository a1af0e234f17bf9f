//! Questions that families declare, as commands ask them.

use clap::parser::ValueSource::CommandLine;
use clap::{Arg, ArgMatches, Args, Command};
use segue_collectives::Communicator;
use segue_engine::Watch;
use segue_family::{Answer, Asked, Asker, Trained};

use crate::failure::{Failure, USAGE};
use crate::folder::Force;
use crate::output::{Output, Unit};

/// Options of a command, and beside them those of a question, which its family parses.
#[derive(Debug)]
pub struct With<A> {
    /// The command's own.
    pub own: A,
    /// All of them.
    pub given: ArgMatches,
}

impl<A: Args> With<A> {
    /// Takes the command's own options.
    pub fn of(given: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { own: A::from_arg_matches(given)?, given: given.clone() })
    }
}

/// Refuses output files of a question that are there already, before anything is opened for it.
pub fn allow_outputs(asked: &Asked, given: &ArgMatches, force: Force) -> Result<(), Failure> {
    let outputs = (asked.outputs)(given)?;
    outputs.iter().try_for_each(|(path, option)| force.allow(path.as_path(), option))
}

/// Refuses options of questions that are asked of other models, each with their types: they would have no effect on this one.
pub fn refuse_options_of_others<'a>(
    others: impl Iterator<Item = (Vec<&'a str>, &'a Asked)>,
    given: &ArgMatches,
    model: &Trained,
) -> Result<(), Failure> {
    for (models, asked) in others {
        let options = (asked.options)(Command::new(asked.name));
        let is_given = |option: &&Arg| given.value_source(option.get_id().as_str()) == Some(CommandLine);
        if let Some(name) = options.get_arguments().find(is_given).and_then(Arg::get_long) {
            let (own, path) = (model.config.model_type(), model.path.display());
            let message =
                format!("--{name} is of {} models, and {path} holds a {own} model", models.join(" and "));
            return Err(Failure::new(USAGE, format!("{message}\nhint: leave it out")));
        }
    }
    Ok(())
}

/// Asks a model.
pub fn ask(
    asked: &Asked,
    model: Trained,
    given: &ArgMatches,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Answer, Failure> {
    model.notes.iter().for_each(|note| out.line(note));
    let mut bar = None;
    let mut progress = |done, whole| {
        bar.get_or_insert_with(|| out.progress(0, Unit::Steps, asked.name)).set_of(done, whole);
    };
    let mut tell = |line: &str| out.line(line);
    let mut asker = Asker { comm, watch: Watch::new(&mut progress), tell: &mut tell };
    Ok((asked.answer)(model, given, &mut asker)?)
}
