//! The parts of the reference that the program writes, and the help texts: keys of the configuration from the doc
//! comments of their sections, commands and options from clap.
//!
//! Pages of `docs/book/src/reference` are written by hand and include the parts, `{{#include generated/NAME.md}}`. No
//! commit holds these: `make book` writes them, and tests hold the pages against them.

mod commands;
mod examples;
mod keys;
mod markdown;

use std::collections::BTreeMap;

use clap::CommandFactory;
use segue_tests::{book, snapshot};

use crate::Cli;
use crate::commands::eval;

/// What stands above examples.
const HEADS: [&str; 2] = ["Example:", "Examples:"];
/// Width of help texts, so that they do not depend on the terminal.
const WIDTH: usize = 100;

/// Every part by the name of its file.
fn parts() -> BTreeMap<String, String> {
    let files = [
        ("commands", commands::overview(&program())),
        ("sweep file", keys::tables(&segue_configs::reference::sweep_sections())),
        ("study file", keys::tables(&segue_configs::reference::study_sections())),
    ];
    let files = files.map(|(name, text)| (file_name(name), text));
    let sections = segue_configs::reference::sections(&segue_families::MODELS);
    let (models, others): (Vec<_>, Vec<_>) =
        sections.into_iter().partition(|section| section.title.starts_with(OF_A_MODEL));
    let keys = others.iter().map(|section| (keys_of(&section.title), keys::table(section)));
    let models = models.iter().map(|section| chapter(&section.title, &keys::table(section))).collect();
    let program = commands::all(&program());
    let (own, others): (Vec<_>, Vec<_>) = program
        .iter()
        .filter(|(_, command)| commands::has_chapter(command))
        .partition(|(name, _)| eval::declared().any(|asked| *name == format!("segue eval {}", asked.name)));
    let chapters = others.iter().map(|(name, command)| (file_name(name), commands::chapter(command)));
    let own = own
        .iter()
        .map(|(name, command)| chapter(name.trim_start_matches("segue "), &commands::chapter(command)));
    let of_families = [(MODELS, models), (EVALUATIONS, own.collect::<String>())];
    let of_families = of_families.map(|(name, text)| (file_name(name), text));
    files.into_iter().chain(keys).chain(chapters).chain(of_families).collect()
}

/// What the title of the section of a family's models begins with.
const OF_A_MODEL: &str = "model: ";
/// The part with the keys of all families' models, each under its heading: a new family finds its place by itself.
const MODELS: &str = "keys of models";
/// The part with the evaluations that families declare.
const EVALUATIONS: &str = "evaluations of families";

/// A text under a heading of its own.
fn chapter(title: &str, text: &str) -> String {
    format!("## {title}\n\n{text}\n")
}

/// The name of a part as that of a file: `segue data build` is `segue-data-build`.
fn file_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// The part with the keys of a section.
fn keys_of(title: &str) -> String {
    file_name(&format!("keys {title}"))
}

/// The command line as it is when it is used.
fn program() -> clap::Command {
    let mut program = Cli::command().term_width(WIDTH);
    program.build();
    program
}

/// Every part that the program writes is included in one page, and pages include no other. With `SEGUE_BOOK=write` in
/// the environment the parts are written.
#[test]
fn the_reference_has_every_command_and_every_key() {
    let parts = parts();
    let pages = book::pages();
    let mut included: Vec<&str> = pages.values().flat_map(|text| book::includes(text)).collect();
    included.sort();
    let names: Vec<&str> = parts.keys().map(String::as_str).collect();
    assert_eq!(included, names, "pages include other parts than there are (left: the pages)");
    book::write_parts(&parts);
}

#[test]
fn whole_pages_are_short_and_their_links_lead_somewhere() {
    let parts = parts();
    let whole = |(path, text): (String, String)| (path, book::with_parts(&text, &parts));
    let pages: BTreeMap<String, String> = book::pages().into_iter().map(whole).collect();
    for (path, text) in &pages {
        assert!(text.len() <= book::LONGEST, "{path} has {} bytes, at most {}", text.len(), book::LONGEST);
        let faults =
            book::links(text).iter().filter_map(|link| book::fault(path, link, &pages)).collect::<Vec<_>>();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

/// A section stands under a heading of its title, by which other pages link it.
#[test]
fn keys_stand_under_the_name_of_their_section() {
    let pages = book::pages();
    let sections = segue_configs::reference::sections(&segue_families::MODELS);
    for section in sections.iter().filter(|section| !section.title.starts_with(OF_A_MODEL)) {
        let lines =
            format!("\n## {}\n\n{{{{#include generated/{}.md}}}}\n", section.title, keys_of(&section.title));
        assert!(pages.values().any(|text| text.contains(&lines)), "no page has{lines}");
    }
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
fn parts_take_the_place_of_their_lines_and_of_nothing_else() {
    let parts = BTreeMap::from([("x".to_string(), "new\n".to_string())]);
    let page = "a\n{{#include generated/x.md}}\n{{#include generated/y.md}}\nb\n";
    assert_eq!(book::includes(page), ["x", "y"]);
    assert_eq!(book::with_parts(page, &parts), "a\nnew\n{{#include generated/y.md}}\nb\n");
    assert_eq!(file_name("keys model: xlnet"), "keys-model-xlnet");
}
