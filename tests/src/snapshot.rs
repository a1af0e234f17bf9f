//! Texts that people and programs see, kept as files. A test fails where one has changed; with `SEGUE_SNAPSHOTS=write`
//! in the environment it writes the file instead, and the change is seen in review.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{PIECES, ROOT, stderr};

/// How files are written anew.
const ADVICE: &str = "Where the change is meant, write it with `make reference`, or with SEGUE_SNAPSHOTS=write in the \
                      environment of the test, and commit the files.";
/// Before the command of a message.
const PROMPT: &str = "$ ";

fn writing() -> bool {
    std::env::var("SEGUE_SNAPSHOTS").is_ok_and(|value| value == "write")
}

/// Compares a text with the file of this name under `tests/snapshots/`.
pub fn check(name: &str, text: &str) {
    check_file(&folder().join(name), text);
}

/// Compares a text with a file.
pub fn check_file(path: &Path, text: &str) {
    if writing() {
        write(path, text);
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == text,
        "{} is not what it was (+ is new):\n{}\n{ADVICE}",
        path.display(),
        difference(&kept, text)
    );
}

/// Every file of a folder under `tests/snapshots/` has one of these names. Others are removed when snapshots are
/// written.
pub fn check_names(sub_folder: &str, names: &[String]) {
    for file in std::fs::read_dir(folder().join(sub_folder)).expect("a folder of snapshots").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if !names.contains(&name) {
            assert!(writing(), "{} is of something that is no more: remove it", file.path().display());
            std::fs::remove_file(file.path()).expect("a file that can be removed");
        }
    }
}

/// Compares what a failing command said with `tests/snapshots/errors/FILE.txt`. A message is found by its command, its
/// exit code and the words that a test expects in it.
pub fn check_error(file: &str, command: &Command, words: &[&str], output: &Output) {
    let ranks = command.get_program() == "mpirun";
    let said = message(&stderr(output), ranks);
    if said.is_empty() {
        // A result with an exit code of its own, and no error.
        return;
    }
    let code = output.status.code().unwrap_or(-1);
    let key = format!("{PROMPT}{}\n# exit code {code}: {}\n", arguments(command), words.join(", "));
    let path = folder().join("errors").join(format!("{file}.txt"));
    // Tests of one file run in several processes.
    let lock =
        writing().then(|| File::create(std::env::temp_dir().join("segue-snapshots.lock")).expect("a file"));
    lock.iter().for_each(|file| file.lock().expect("a lock"));
    let mut kept = messages(&std::fs::read_to_string(&path).unwrap_or_default());
    let before = kept.insert(placeholders(&key), said.clone()).unwrap_or_default();
    if writing() {
        let all: Vec<String> = kept.iter().map(|(key, said)| format!("{key}{said}")).collect();
        write(&path, &all.join("\n"));
        return;
    }
    assert!(
        before == said,
        "{key}does not say what it said, by {} (+ is new):\n{}\n{ADVICE}",
        path.display(),
        difference(&before, &said)
    );
}

fn folder() -> PathBuf {
    Path::new(ROOT).join("tests/snapshots")
}

fn write(path: &Path, text: &str) {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    std::fs::write(path, text).expect("a file that can be written");
}

/// The messages of a file by command and exit code.
fn messages(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for part in format!("\n{text}").split(&format!("\n{PROMPT}")).skip(1) {
        let mut lines = part.splitn(3, '\n');
        let (command, code) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let said = lines.next().unwrap_or_default().trim_end();
        all.insert(format!("{PROMPT}{command}\n{code}\n"), format!("{said}\n"));
    }
    all
}

/// The error in what a command said, with what stands below it. Progress before it is left out. Of the ranks of a job the
/// first one speaks, and `mpirun` does not count.
fn message(said: &str, ranks: bool) -> String {
    // clap's own messages begin with `error`.
    let error = |line: &&str| line.starts_with("segue: error") || line.starts_with("error");
    let below = |line: &&str| line.starts_with("  ") || line.starts_with("hint: ");
    let all: Vec<&str> = said.lines().map(str::trim_end).collect();
    let begin = all.iter().position(|line| line.starts_with("segue: error: ")).or(all.iter().position(error));
    let Some(begin) = begin else { return String::new() };
    let after = all[begin + 1..].iter().take_while(|line| !ranks || below(line));
    let lines = [all[begin]].into_iter().chain(after.copied());
    lines.map(|line| format!("{}\n", placeholders(line))).collect()
}

/// The command without what depends on the machine.
fn arguments(command: &Command) -> String {
    let args: Vec<String> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let segue = crate::segue().display().to_string();
    let line = match args.iter().position(|arg| *arg == segue) {
        // Before it stand options of mpirun that depend on the machine.
        Some(at) => {
            let ranks = args.iter().position(|arg| arg == "-n").and_then(|n| args.get(n + 1));
            format!("mpirun -n {} segue {}", ranks.map_or("?", String::as_str), args[at + 1..].join(" "))
        }
        None => format!("segue {}", args.join(" ")),
    };
    // What every run of a test is given says nothing of the test.
    line.replace(&format!(" {}", PIECES.join(" ")), "").replace('\n', " ")
}

/// Temporary folders, the checkout, hashes and instruction sets by a word each: the bits that a hash is of may depend on the processor.
fn placeholders(text: &str) -> String {
    /// `tempfile` puts so many random characters behind the dot and its name.
    const RANDOM: usize = 6;
    let root = std::fs::canonicalize(ROOT).map(|path| path.display().to_string()).unwrap_or_default();
    let text = text.replace(ROOT, "ROOT").replace(&root, "ROOT");
    let temporary = format!("{}/.tmp", std::env::temp_dir().display());
    let mut parts = text.split(&temporary);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out.push_str("PLACE");
        out.extend(part.chars().skip(RANDOM));
    }
    // Which file fills a disk depends on the length of logs, and they hold times.
    if let Some((before, after)) = out.split_once(".part/") {
        let rest = after.split_once(':').map_or("", |(_, rest)| rest);
        out = format!("{before}.part/FILE:{rest}");
    }
    let is_hash = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let word = |word: &str| match word.trim_end_matches([',', ')']) {
        bare if is_hash(bare) => word.replace(bare, "HASH"),
        bare if bare.starts_with("AVX") => word.replace(bare, "INSTRUCTIONS"),
        _ => word.to_string(),
    };
    out.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Lines of `new` that `old` does not have in their place, and the other way round.
fn difference(old: &str, new: &str) -> String {
    /// Enough to see what it is about.
    const LINES: usize = 40;
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[same..], &new[same..]);
    let same_end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let lines = |sign: char, all: &[&str]| {
        let shown = all[..all.len() - same_end].iter().take(LINES);
        shown.map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    format!("from line {}:\n{}{}", same + 1, lines('-', old), lines('+', new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_the_lines_between_what_is_the_same() {
        assert_eq!(difference("a\nb\nc\nd", "a\nx\nd"), "from line 2:\n- b\n- c\n+ x\n");
    }

    #[test]
    fn messages_are_read_back_and_places_have_no_names() {
        let key = "$ segue a\n# exit code 64: b\n";
        let all = messages(&format!("{key}error: b\n\nUsage: c\n\n$ segue d\n# exit code 1: \nerror: e\n"));
        assert_eq!(all[key], "error: b\n\nUsage: c\n");
        assert_eq!(all.len(), 2);
        let place = tempfile::tempdir().unwrap();
        let said = format!("reading\nsegue: error: no {}/x\nhint: more\n\nend", place.path().display());
        assert_eq!(message(&said, false), "segue: error: no PLACE/x\nhint: more\n\nend\n");
        let said = "segue: error on rank 1: a\nsegue: error: b\n  c\nhint: d\n-----\n  mpirun says so";
        assert_eq!(message(said, true), "segue: error: b\n  c\nhint: d\n");
        assert_eq!(message("segue: error on rank 1: a\n[host] aborted", true), "segue: error on rank 1: a\n");
        assert_eq!(placeholders(&format!("is {} not", "0a".repeat(32))), "is HASH not");
    }
}
