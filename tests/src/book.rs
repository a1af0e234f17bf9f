//! The documents: pages of the book below `docs/book/src`, their headings, their links, and the parts of the reference that
//! the program writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::ROOT;

/// Where the pages lie.
pub const PAGES: &str = "docs/book/src";
/// Where the parts of the reference are written. They are in no commit.
pub const GENERATED: &str = "docs/book/src/reference/generated";
/// The table of contents.
pub const SUMMARY: &str = "docs/book/src/SUMMARY.md";
/// Bytes of the longest page.
pub const LONGEST: usize = 40 * 1024;
/// What stands before and after the name of a part in a page.
const INCLUDE: [&str; 2] = ["{{#include generated/", ".md}}"];

/// Every page with its text, by its path in the checkout.
pub fn pages() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![Path::new(ROOT).join(PAGES)];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder of the book").flatten().map(|entry| entry.path()) {
            let name = path.strip_prefix(ROOT).expect("below the root").display().to_string();
            if path.is_dir() && name != GENERATED {
                folders.push(path);
            } else if name.ends_with(".md") && name != SUMMARY {
                found.insert(name, fs::read_to_string(&path).expect("a page"));
            }
        }
    }
    found
}

/// Lines outside of blocks of code.
pub fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// What a heading is linked by: letters and digits in lower case, `-` for a blank.
fn anchor(heading: &str) -> String {
    let letter = |c: char| match c {
        c if c.is_whitespace() => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(letter).collect()
}

/// Anchors of all headings, of which one that comes again has a number behind it, and those that a page sets by itself.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let set = prose(text).flat_map(|line| line.split("<a id=\"").skip(1));
    let mut found: BTreeSet<String> =
        set.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name.to_string()).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let name = anchor(line.trim_start_matches('#').trim());
        let count = counts.entry(name.clone()).or_default();
        found.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    found
}

/// Where links and pictures lead, outside of code.
pub fn links(text: &str) -> Vec<String> {
    let lines = prose(text).flat_map(|line| {
        let plain: Vec<&str> = line.split('`').step_by(2).collect();
        let plain = plain.join("`");
        let targets = plain.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.map(|(target, _)| target.to_string()).collect::<Vec<_>>()
    });
    lines.filter(|target| !target.contains("://")).collect()
}

/// Names of the generated parts that a page includes.
pub fn includes(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix(INCLUDE[0])?.strip_suffix(INCLUDE[1])).collect()
}

/// A page with each generated part in its place; one that is not there stays as it is.
pub fn with_parts(text: &str, parts: &BTreeMap<String, String>) -> String {
    let line = |line: &str| {
        let name = line.strip_prefix(INCLUDE[0]).and_then(|rest| rest.strip_suffix(INCLUDE[1]));
        name.and_then(|name| parts.get(name)).cloned().unwrap_or_else(|| format!("{line}\n"))
    };
    text.lines().map(line).collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> String {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out.display().to_string()
}

/// What is wrong with a link of the page at `path`, where anything is. Pages of the book link nothing outside of it: a built
/// book has nothing else.
pub fn fault(path: &str, link: &str, pages: &BTreeMap<String, String>) -> Option<String> {
    let (file, wanted) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => path.to_string(),
        file => plain(&Path::new(path).parent().unwrap_or(Path::new("")).join(file)),
    };
    let inside = |path: &str| path.starts_with(PAGES);
    let text = pages.get(&target).cloned();
    let text = text.or_else(|| fs::read_to_string(Path::new(ROOT).join(&target)).ok());
    if inside(path) && !inside(&target) {
        return Some(format!("{path}: {link} leads out of the book"));
    }
    if text.is_none() && !Path::new(ROOT).join(&target).exists() {
        return Some(format!("{path}: {link} leads to nothing"));
    }
    // Headings of parts that are not there are not known.
    let has = |text: String| text.contains(INCLUDE[0]) || anchors(&text).contains(wanted);
    let found = wanted.is_empty() || text.is_some_and(has);
    (!found).then(|| format!("{path}: {link} leads to no heading"))
}

/// Rewrites the generated parts if the environment has `SEGUE_BOOK=write`, as under `make book`.
pub fn write_parts(parts: &BTreeMap<String, String>) {
    if std::env::var("SEGUE_BOOK").is_ok_and(|value| value == "write") {
        let folder = Path::new(ROOT).join(GENERATED);
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("a folder that can be made");
        for (name, text) in parts {
            fs::write(folder.join(format!("{name}.md")), text).expect("a file that can be written");
        }
    }
}
