//! `segue completions`: what shells complete commands and options with.

mod names;

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use serde_json::{Value, json};

use self::names::Names;
use super::print_text;
use crate::Cli;
use crate::failure::Failure;

/// Name of the program in the scripts.
const PROGRAM: &str = "segue";

/// Arguments of `segue completions`.
#[derive(Args)]
#[command(after_help = "\
    Shells read these files when they start. zsh needs the folder in `fpath`; elvish and powershell take the \
    script in their start-up files.\n\n\
    Examples:\n  \
    segue completions bash > ~/.local/share/bash-completion/completions/segue\n  \
    segue completions zsh > ~/.zfunc/_segue\n  \
    segue completions fish > ~/.config/fish/completions/segue.fish")]
pub struct CompletionsArgs {
    /// Shell that the script is for.
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs, json: bool) -> Result<Value, Failure> {
    let script = script(args.shell);
    if !json {
        print_text(&script)?;
    }
    Ok(json!({ "script": String::from_utf8_lossy(&script) }))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    let script = String::from_utf8_lossy(&script);
    let names = Names::known();
    match shell {
        Shell::Bash => names.in_bash(&script),
        Shell::Zsh => names.in_zsh(&script),
        Shell::Fish => names.in_fish(&script),
        _ => script.into_owned(),
    }
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_gets_every_command() {
        let program = Cli::command();
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            for command in program.get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }

    /// Gives a script to a shell that parses it and runs nothing.
    fn parses(program: &str, script: &[u8]) -> Option<bool> {
        let mut command = Command::new(program);
        command.arg("-n").stdin(Stdio::piped());
        let mut check = command.spawn().ok()?;
        check.stdin.take().unwrap().write_all(script).unwrap();
        Some(check.wait().unwrap().success())
    }

    #[test]
    fn shells_can_parse_their_scripts() {
        assert_eq!(parses("bash", &script(Shell::Bash)), Some(true));
        // These are not on every machine.
        for shell in [Shell::Zsh, Shell::Fish] {
            assert_ne!(parses(&shell.to_string(), &script(shell)), Some(false), "{shell}");
        }
    }

    /// What bash offers for the words of a line, the last of which is being typed.
    fn completions(words: &[&str]) -> Vec<String> {
        let (line, last) = (words.join("' '"), words.len() - 1);
        let mut text = String::from_utf8(script(Shell::Bash)).unwrap();
        text.push_str(&format!(
            "COMP_WORDS=('{line}'); COMP_CWORD={last}; _segue_names segue '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words[last],
            words[last - 1]
        ));
        // Longer than an argument may be.
        let mut shell = Command::new("bash");
        shell.args(["--norc", "-s"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
    }

    #[test]
    fn bash_completes_commands_and_options() {
        assert_eq!(completions(&["segue", "pre"]), ["pretrain", "predict"]);
        assert_eq!(completions(&["segue", "data", "ver"]), ["verify"]);
        assert_eq!(completions(&["segue", "pretrain", "--dry"]), ["--dry-run"]);
        assert_eq!(completions(&["segue", "batch", "sl"]), ["slurm"]);
    }

    #[test]
    fn bash_completes_recipes_keys_and_tasks() {
        assert_eq!(completions(&["segue", "pretrain", "--config", "wikitext2-sm"]), ["wikitext2-small"]);
        assert_eq!(completions(&["segue", "pretrain", "train.lan"]), ["train.lanes="]);
        assert_eq!(completions(&["segue", "finetune", "task.epo"]), ["task.epochs="]);
        assert_eq!(completions(&["segue", "finetune", "--task", "sst"]), ["sst2"]);
        // Of a command without keys there are none.
        assert_eq!(completions(&["segue", "watch", "--serve", "train.lan"]), [""]);
    }

    #[test]
    fn zsh_and_fish_have_the_same_names() {
        for (shell, words) in [
            (
                Shell::Zsh,
                ["wikitext2-small", "train.lanes=", "sst2", ":FILE|NAME:_segue_recipes'", ":_segue_keys'"],
            ),
            (
                Shell::Fish,
                [
                    "wikitext2-small",
                    "train.lanes=",
                    "sst2",
                    "pretrain\" -l config -r -a",
                    "finetune\" -l task",
                ],
            ),
        ] {
            let script = String::from_utf8(script(shell)).unwrap();
            for word in words {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
