//! `docs/reference.md` and the help texts, held against what the program says: keys of the configuration from the doc
//! comments of their sections, commands and options from clap.
//!
//! The document is written by hand but for its regions. A region begins with `<!-- generated: NAME -->`, ends with
//! `<!-- end of generated -->`, and is written anew by `make reference`.

mod commands;
mod examples;
mod keys;
mod markdown;

use std::collections::BTreeMap;
use std::path::Path;

use clap::CommandFactory;
use segue_tests::{ROOT, snapshot};

use crate::Cli;

const BEGIN: &str = "<!-- generated: ";
const BEGIN_END: &str = " -->\n";
const END: &str = "<!-- end of generated -->\n";
/// Width of help texts, so that they do not depend on the terminal.
const WIDTH: usize = 100;

/// Every region by name.
fn regions() -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        ("commands".to_string(), commands::overview(&program())),
        ("keys".to_string(), keys::sections(&segue_configs::reference::sections(&segue_families::MODELS))),
        ("sweep file".to_string(), keys::tables(&segue_configs::reference::sweep_sections())),
        ("study file".to_string(), keys::tables(&segue_configs::reference::study_sections())),
    ]);
    for (name, command) in commands::all(&program()) {
        if commands::has_chapter(&command) {
            all.insert(name, commands::chapter(&command));
        }
    }
    all
}

/// The command line as it is when it is used.
fn program() -> clap::Command {
    let mut program = Cli::command().term_width(WIDTH);
    program.build();
    program
}

/// The document with the text of every region in its place.
fn fill(document: &str, mut regions: BTreeMap<String, String>) -> Result<String, String> {
    let mut parts = document.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_once(BEGIN_END).ok_or("a marker of a region is not closed")?;
        let (_, rest) = rest.split_once(END).ok_or(format!("the region `{name}` has no end"))?;
        let text = regions
            .remove(name)
            .ok_or(format!("the region `{name}` is of nothing that there is, or there twice: remove it"))?;
        out.push_str(&format!("{BEGIN}{name}{BEGIN_END}{text}{END}{rest}"));
    }
    match regions.keys().next() {
        None => Ok(out),
        Some(name) => {
            Err(format!("there is no region `{name}`; put `{BEGIN}{name}{BEGIN_END}{END}` in its chapter"))
        }
    }
}

#[test]
fn docs_reference_says_what_the_program_says() {
    let path = Path::new(ROOT).join("docs/reference.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let filled = fill(&document, regions()).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    snapshot::check_file(&path, &filled);
}

#[test]
fn help_is_as_it_was() {
    let mut names = Vec::new();
    for (name, mut command) in commands::all(&program()) {
        names.push(format!("{}.txt", name.replace(' ', "-")));
        let help = command.render_long_help().to_string();
        // Lines of nothing but blanks are not seen in review.
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        snapshot::check(
            &format!("help/{}", names[names.len() - 1]),
            &format!("{}\n", lines.join("\n").trim_end()),
        );
    }
    snapshot::check_names("help", &names);
}

#[test]
fn every_argument_says_what_it_is_for() {
    for (name, command) in commands::all(&program()) {
        assert!(command.get_about().is_some(), "{name} has no doc comment");
        for argument in command.get_arguments().filter(|argument| commands::is_own(argument)) {
            let text = commands::text(argument);
            let words = text.split_whitespace().count();
            assert!(words > 1, "{name}, {}: a doc comment of {words} words says nothing", argument.get_id());
        }
    }
}

/// Scripts that were written for them go on.
#[test]
fn former_names_of_options_are_taken_and_not_shown() {
    for (words, former) in [
        ("tune study.toml", "--jobs=2"),
        ("man", "--out=pages"),
        ("bench step", "--vocab=9"),
        ("bench step", "--mem=9"),
        ("bench generate", "--vocab=9"),
        ("bench generate", "--mem=9"),
        ("bench task", "--vocab=9"),
        ("bench task", "--length=9"),
        ("bench task", "--batch=9"),
    ] {
        let words = || std::iter::once("segue").chain(words.split(' '));
        Cli::command().try_get_matches_from(words().chain([former])).unwrap();
        let help = Cli::command().try_get_matches_from(words().chain(["--help"])).unwrap_err().to_string();
        let name = former.split('=').next().unwrap();
        assert!(!help.split_whitespace().any(|word| word == name), "{name} in {help}");
    }
}

#[test]
fn regions_are_replaced_and_nothing_else() {
    let document = format!("a\n{BEGIN}x{BEGIN_END}old\n{END}b\n");
    let new = || BTreeMap::from([("x".to_string(), "new\n".to_string())]);
    assert_eq!(fill(&document, new()).unwrap(), document.replace("old", "new"));
    assert!(fill("a\n", new()).unwrap_err().contains("no region `x`"));
    assert!(fill(&document, BTreeMap::new()).unwrap_err().contains("`x`"));
    assert!(fill(&format!("{document}{document}"), new()).unwrap_err().contains("twice"));
    assert!(fill(&document.replace(END, ""), new()).unwrap_err().contains("no end"));
}
