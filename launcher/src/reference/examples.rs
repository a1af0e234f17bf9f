//! The examples at the end of every command's help, held against the command line that they show.

use std::path::Path;

use clap::{Command, Parser};
use segue_configs::reference::sections;
use segue_families::MODELS;
use segue_family::Predicts;
use segue_tests::ROOT;

use super::{HEADS, commands, program};
use crate::Cli;

/// Width of the narrowest terminal in which no example is broken.
const COLUMNS: usize = 80;
/// How many examples a command has at most: more belong in the guide.
const MOST: usize = 3;
/// Commands that hand the end of their command line on to another one.
const WRAPPERS: [&str; 2] = ["launch", "batch"];
/// What they hand it on to.
const WRAPPED: [&str; 2] = ["pretrain", "finetune"];

/// Lines of the examples of a command, as its help shows them.
fn lines(command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    help.lines().skip_while(|line| !HEADS.contains(line)).map(String::from).collect()
}

/// The examples of a command, each on one line.
fn examples(command: &Command) -> Vec<String> {
    let text = lines(command).into_iter().skip(1).collect::<Vec<_>>().join("\n");
    text.replace("\\\n", " ").lines().map(|line| line.trim().to_string()).collect()
}

/// The command lines of `segue` in an example, without what starts ranks, reads the output or stands in a pipe.
fn calls(example: &str) -> Vec<Vec<String>> {
    let words = shlex::split(example).unwrap_or_default();
    let own = words.into_iter().skip_while(|word| word != "segue");
    let own: Vec<String> = own.take_while(|word| !["|", ">"].contains(&word.as_str())).collect();
    let wraps = own.get(1).is_some_and(|command| WRAPPERS.contains(&command.as_str()));
    let inner = own.iter().position(|word| wraps && WRAPPED.contains(&word.as_str()));
    let inner = inner.map(|at| std::iter::once("segue".to_string()).chain(own[at..].to_vec()).collect());
    std::iter::once(own).chain(inner).collect()
}

/// How many examples a command has at most: of `segue predict` that is for each question that kinds of models are asked.
fn most(name: &str) -> usize {
    match name {
        "segue predict" => MOST * segue_families::shared::<Predicts>().len(),
        _ => MOST,
    }
}

fn all() -> Vec<(String, Command)> {
    commands::all(&program())
}

#[test]
fn every_help_ends_with_examples_of_its_command() {
    for (name, command) in all() {
        let examples = examples(&command);
        assert!((1..=most(&name)).contains(&examples.len()), "{name} has {} examples", examples.len());
        assert!(examples.iter().any(|example| example.contains(&name)), "{name} is in none of its examples");
        let head = HEADS[usize::from(examples.len() > 1)];
        assert_eq!(lines(&command)[0], head, "{name}");
        assert!(
            lines(&command)[1..].iter().all(|line| line.starts_with("  ")),
            "{name} ends with other things"
        );
    }
}

#[test]
fn no_example_is_broken_by_a_narrow_terminal() {
    for (name, command) in all() {
        let wide: Vec<String> = lines(&command).into_iter().filter(|line| line.len() > COLUMNS).collect();
        assert!(wide.is_empty(), "{name}: {wide:?}");
    }
}

#[test]
fn every_example_is_a_command_line_that_the_program_takes() {
    for (name, command) in all() {
        for call in examples(&command).iter().flat_map(|example| calls(example)) {
            if let Err(error) = Cli::try_parse_from(&call).map(drop) {
                // `segue help COMMAND` ends with the help that it asks for.
                assert!(!error.use_stderr(), "{name}: {}: {error}", call.join(" "));
            }
        }
    }
}

#[test]
fn examples_name_settings_and_files_that_there_are() {
    let keys: Vec<String> = sections(&MODELS)
        .iter()
        .flat_map(|section| section.keys.iter().map(|key| format!("{}.{}", section.name, key.name)))
        .collect();
    for (name, command) in all() {
        for word in examples(&command).iter().flat_map(|example| shlex::split(example).unwrap_or_default()) {
            if word.starts_with("configs/") {
                assert!(Path::new(ROOT).join(&word).exists(), "{name}: there is no {word}");
            }
            if let Some((key, _)) = word.split_once('=').filter(|(key, _)| is_key(key)) {
                assert!(keys.iter().any(|known| known == key), "{name}: there is no setting {key}");
            }
        }
    }
}

/// Whether a text before `=` is meant as a dotted name, and not as an option.
fn is_key(text: &str) -> bool {
    text.contains('.') && !text.starts_with('-')
}

#[test]
fn calls_are_found_among_other_programs() {
    let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
    assert_eq!(calls("mpirun -n 2 segue doctor | less"), [words("segue doctor")]);
    let launched = ["segue launch -n 2 pretrain --config a", "segue pretrain --config a"];
    assert_eq!(calls(launched[0]), launched.map(words));
    assert_eq!(calls("segue generate --prompt 'a b' > text")[0][3], "a b");
}
