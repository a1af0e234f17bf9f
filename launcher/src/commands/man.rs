//! `segue man`: manual pages, made of the help texts.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use segue_configs::counted;
use serde_json::{Value, json};

use super::print_text;
use crate::Cli;
use crate::failure::{BUG, Failure};
use crate::folder::Force;
use crate::output::Output;

/// Section of the manual that programs stand in.
const SECTION: &str = "1";

/// Arguments of `segue man`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue man | man -l -\n  \
    segue man --output ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Folder for the pages of all commands, made where it is not there [default: the page of `segue` on stdout].
    #[arg(long, alias = "out", value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Prints the page of the program, or writes those of all commands.
pub fn run(args: &ManArgs, json: bool, out: &Output) -> Result<Value, Failure> {
    let pages = pages()?;
    let Some(folder) = &args.output else {
        let (_, page) = &pages[0];
        if !json {
            print_text(page)?;
        }
        return Ok(json!({ "page": String::from_utf8_lossy(page) }));
    };
    // The folder is one for the pages of many programs.
    pages.iter().try_for_each(|(name, _)| args.force.allow(folder.join(name).as_path(), "--output"))?;
    fs::create_dir_all(folder).map_err(|error| Failure::cannot_write(folder, &error, "--output"))?;
    for (name, page) in &pages {
        let path = folder.join(name);
        segue_publish::write_file(&path, page)
            .map_err(|error| Failure::cannot_write(&path, &error.source, "--output"))?;
    }
    out.line(&format!("{} in {}", counted(pages.len(), "page"), folder.display()));
    let names: Vec<&String> = pages.iter().map(|(name, _)| name).collect();
    Ok(json!({ "out": folder, "pages": names }))
}

/// File name and text of every page, that of the program first.
fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut program = Cli::command();
    program.build();
    let mut pages = Vec::new();
    write(&program, &mut pages)?;
    Ok(pages)
}

/// The page of a command and those of its sub-commands.
fn write(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
    let man = Man::new(command.clone()).title(name.to_uppercase()).section(SECTION);
    let mut page = Vec::new();
    man.render(&mut page).map_err(|error| Failure::new(BUG, format!("the page of {name}: {error}")))?;
    pages.push((format!("{name}.{SECTION}"), page));
    let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    below.into_iter().try_for_each(|below| write(below, pages))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn every_command_has_a_page_under_its_whole_name() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[0], "segue.1");
        for name in ["segue-pretrain.1", "segue-data-build.1", "segue-eval-recl.1", "segue-man.1"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        let build = pages.iter().find(|(name, _)| name == "segue-data-build.1").unwrap();
        let text = String::from_utf8(build.1.clone()).unwrap();
        assert!(text.contains(".SH OPTIONS") && text.contains("Examples"), "{text}");
    }

    /// groff, where it is installed, has nothing to say against them.
    #[test]
    fn pages_render_without_a_warning() {
        for (name, page) in pages().unwrap() {
            let mut groff = Command::new("groff");
            groff.args(["-man", "-Tutf8", "-ww", "-z"]).stdin(Stdio::piped()).stderr(Stdio::piped());
            let Ok(mut groff) = groff.spawn() else { return };
            groff.stdin.take().unwrap().write_all(&page).unwrap();
            let said = groff.wait_with_output().unwrap();
            assert!(
                said.status.success() && said.stderr.is_empty(),
                "{name}: {}",
                String::from_utf8_lossy(&said.stderr)
            );
        }
    }
}
