//! Commands and options as Markdown.

use std::any::TypeId;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command};

use super::HEADS;
use super::markdown::{head, row, sentence, text as markdown, wrapped};

/// The start of the default in a doc comment, where clap does not know it.
const DEFAULT: &str = " [default: ";

/// Every command and sub-command that is not hidden, with the whole name of each.
pub fn all(program: &Command) -> Vec<(String, Command)> {
    let mut found = vec![(name(program), program.clone())];
    for command in program.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        found.extend(all(command));
    }
    found
}

/// As it is typed: `segue data build`.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_string()
}

/// Whether there is more to say of it than its sub-commands do.
pub fn has_chapter(command: &Command) -> bool {
    has_arguments(command) || !command.has_subcommands()
}

fn has_arguments(command: &Command) -> bool {
    command.get_arguments().any(is_own)
}

/// Whether an argument is the command's own, not one of every command.
pub fn is_own(argument: &Arg) -> bool {
    let shared = matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version
    );
    !shared && !argument.is_hide_set() && !argument.is_global_set()
}

/// A table of all commands.
pub fn overview(program: &Command) -> String {
    let mut out = head(&["command", "what it does"]);
    for (name, command) in all(program).into_iter().skip(1) {
        out.push_str(&row(&[format!("[`{name}`]({})", place(&name)), about(&command)]));
    }
    out
}

/// Page and heading of a command: `segue data build` is `data build` on the page of `segue data`.
fn place(name: &str) -> String {
    let words: Vec<&str> = name.split(' ').skip(1).collect();
    let page = format!("segue-{}.md", words.first().unwrap_or(&""));
    if words.len() > 1 { format!("{page}#{}", words.join("-")) } else { page }
}

fn about(command: &Command) -> String {
    sentence(&markdown(&command.get_about().map(ToString::to_string).unwrap_or_default()))
}

/// How a command is called, its arguments, examples and notes.
pub fn chapter(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    let mut out = format!("{}\n```\n{}\n```\n\n", wrapped(&about(command)), usage.join("\n"));
    if has_arguments(command) {
        out.push_str(&head(&["argument", "default", "meaning"]));
    }
    for argument in command.get_arguments().filter(|argument| is_own(argument)) {
        let (meaning, default) = meaning_and_default(argument);
        out.push_str(&row(&[format!("`{}`", spelling(argument)), default, meaning]));
    }
    let notes = command.get_after_long_help().or(command.get_after_help());
    if let Some(notes) = notes {
        out.push_str(&examples(&notes.to_string()));
    }
    out
}

/// `--name VALUE`, `NAME` or `NAME …`.
fn spelling(argument: &Arg) -> String {
    let takes_value = argument.get_action().takes_values();
    let value = takes_value.then(|| value_name(argument));
    match (argument.get_long(), value) {
        (Some(long), Some(value)) => format!("--{long} {value}"),
        (Some(long), None) => format!("--{long}"),
        (None, value) => value.unwrap_or_default(),
    }
}

/// The name clap shows, but for those that it makes up of the option's own: numbers are `N` or `X`, paths `PATH`, and two
/// or three values are named.
fn value_name(argument: &Arg) -> String {
    let given: Vec<&str> =
        argument.get_value_names().unwrap_or_default().iter().map(|n| n.as_str()).collect();
    let made_up = !argument.is_positional() && given.concat().to_lowercase() == argument.get_id().as_str();
    let values = argument.get_possible_values();
    let kind = argument.get_value_parser().type_id();
    let is = |id: TypeId| kind == id;
    let whole = [TypeId::of::<usize>(), TypeId::of::<u64>(), TypeId::of::<i64>()].into_iter().any(is);
    let name = match made_up {
        true if whole => "N".to_string(),
        true if is(TypeId::of::<f64>()) => "X".to_string(),
        true if is(TypeId::of::<std::path::PathBuf>()) => "PATH".to_string(),
        true if (2..=3).contains(&values.len()) => {
            values.iter().map(PossibleValue::get_name).collect::<Vec<_>>().join("|")
        }
        _ => given.join(" ").replace(",..", ",…"),
    };
    let several = argument.get_num_args().is_some_and(|range| range.max_values() > 1)
        || (argument.is_positional() && matches!(argument.get_action(), ArgAction::Append));
    if several { format!("{name} …") } else { name }
}

/// What an argument is for, whole.
pub fn text(argument: &Arg) -> String {
    let text = argument.get_long_help().or(argument.get_help());
    text.map(ToString::to_string).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Meaning and default of an argument: what clap knows, or what the doc comment says at its end.
fn meaning_and_default(argument: &Arg) -> (String, String) {
    let whole = text(argument);
    let (meaning, written) =
        match whole.trim_end_matches('.').strip_suffix(']').and_then(|t| t.rsplit_once(DEFAULT)) {
            Some((meaning, default)) => (meaning.to_string(), Some(default.to_string())),
            None => (whole, None),
        };
    let values = argument.get_possible_values();
    let known: Vec<&str> = argument.get_default_values().iter().filter_map(|value| value.to_str()).collect();
    let takes_values = argument.get_action().takes_values();
    let default = match written {
        Some(default) => markdown(&default),
        None if !takes_values => "off".into(),
        None if argument.is_required_set() => "required".into(),
        None if known.is_empty() || argument.is_hide_default_value_set() => "none".into(),
        None => format!("`{}`", known.join(" ")),
    };
    let values = if takes_values { values_in_words(&values) } else { String::new() };
    (sentence(&markdown(&meaning)) + &values, default)
}

fn values_in_words(values: &[PossibleValue]) -> String {
    let shown = values.iter().filter(|value| !value.is_hide_set());
    let word = |value: &PossibleValue| match value.get_help() {
        Some(help) => format!(" `{}`: {}", value.get_name(), sentence(&markdown(&help.to_string()))),
        None => format!(" `{}`", value.get_name()),
    };
    let all: Vec<String> = shown.map(word).collect();
    match values.iter().any(|value| value.get_help().is_some()) {
        true => all.concat(),
        false if all.is_empty() => String::new(),
        false => format!(" One of{}.", all.join(",")),
    }
}

/// Notes after the options, and examples: the indented lines.
fn examples(notes: &str) -> String {
    let mut out = String::new();
    for part in notes.split("\n\n") {
        let lines: Vec<&str> = part.lines().filter(|line| !HEADS.contains(line)).collect();
        if lines.iter().all(|line| line.starts_with("  ")) {
            let code: Vec<&str> = lines.iter().map(|line| &line[2..]).collect();
            out.push_str(&format!("\n```\n{}\n```\n", code.join("\n")));
        } else {
            out.push_str(&format!("\n{}", wrapped(&markdown(&lines.join(" ")))));
        }
    }
    out
}
