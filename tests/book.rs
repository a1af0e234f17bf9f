//! The documents: pages that are short and listed, links and paths that lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use segue_tests::ROOT;
use segue_tests::book::{GENERATED, LONGEST, PAGES, SUMMARY, anchors, fault, links, pages, prose};

/// The longest that the table of measurements may be, in bytes.
const MEASUREMENTS: usize = 12 * 1024;
/// Documents beside the book.
const BESIDE: [&str; 4] = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
/// Endings of files that may name a page.
const SOURCES: [&str; 9] = ["rs", "py", "sh", "toml", "yml", "txt", "md", "Dockerfile", "Makefile"];
/// What paths of documents begin with.
const FOLDERS: [&str; 2] = ["docs/", "benchmarks/"];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Logs of measurements, by their paths in the checkout.
fn logs() -> Vec<String> {
    let entries = fs::read_dir(Path::new(ROOT).join("benchmarks")).unwrap().flatten();
    let names = entries.map(|entry| format!("benchmarks/{}", entry.file_name().to_string_lossy()));
    names.filter(|name| name.ends_with(".md")).collect()
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let pages = pages();
    let mut all = pages.clone();
    all.extend(BESIDE.map(String::from).into_iter().chain(logs()).map(|path| (path.clone(), read(&path))));
    let faults = |(path, text): (&String, &String)| {
        links(text).iter().filter_map(|link| fault(path, link, &pages)).collect::<Vec<_>>()
    };
    let found: Vec<String> = all.iter().flat_map(faults).collect();
    assert!(found.is_empty(), "{found:#?}");
    let count: usize = all.values().map(|text| links(text).len()).sum();
    assert!(count > 200, "{count} links");
}

#[test]
fn links_are_judged_by_page_and_heading() {
    let page = "# Title\n\n<a id=\"own\"></a>\n## A `b` c\n\n[x](y.md) and `[no](z.md)`\n\n```\n[no](z.md)\n# no\n```\n## A b c\n";
    assert_eq!(links(page), ["y.md"]);
    assert_eq!(anchors(page), ["title", "own", "a-b-c", "a-b-c-1"].map(String::from).into());
    let path = format!("{PAGES}/guide/x.md");
    let pages = [(path.clone(), page.to_string())].into();
    let fault = |link: &str| fault(&path, link, &pages).unwrap_or_default();
    assert_eq!(fault("#a-b-c"), "");
    assert_eq!(fault("../index.md"), "");
    assert!(fault("#nothing").contains("no heading"));
    assert!(fault("nothing.md").contains("nothing"));
    assert!(fault("../../../../README.md").contains("out of the book"));
}

#[test]
fn every_page_is_in_the_summary_and_the_summary_lists_pages() {
    let listed: Vec<String> = links(&read(SUMMARY)).iter().map(|link| format!("{PAGES}/{link}")).collect();
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    assert_eq!(unique, pages().into_keys().collect());
}

#[test]
fn pages_begin_with_what_they_are_for_and_are_short() {
    for (path, text) in pages() {
        let mut lines = text.lines();
        let title = lines.next().unwrap_or_default();
        let first = lines.find(|line| !line.is_empty()).unwrap_or_default();
        assert!(title.starts_with("# "), "{path} has no title");
        let is_text = !first.starts_with(['#', '|']) && !first.starts_with("```");
        assert!(is_text, "{path} begins with no text: {first}");
        assert_eq!(prose(&text).filter(|line| line.starts_with("# ")).count(), 1, "{path} has two titles");
        assert!(text.len() <= LONGEST, "{path} has {} bytes, at most {LONGEST}: divide it", text.len());
    }
    let table = read(&format!("{PAGES}/reference/measurements.md")).len();
    assert!(table <= MEASUREMENTS, "the table of measurements has {table} bytes, at most {MEASUREMENTS}");
}

/// Every file of the checkout that may name a page: code, scripts, recipes, snapshots, documents.
fn sources() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from(ROOT)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir()
                && !path.is_symlink()
                && !["target", "runs", ".git", ".deps"].contains(&name.as_str())
            {
                folders.push(path);
            } else if SOURCES.contains(&name.rsplit('.').next().unwrap_or_default()) {
                found.push(path);
            }
        }
    }
    found
}

/// Paths of documents that a text names: `docs/` or `benchmarks/` up to `.md`.
fn named(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || "/-_.".contains(c);
    let of = |folder: &'static str| {
        text.match_indices(folder).filter_map(move |(at, _)| {
            let begins = !text[..at].chars().next_back().is_some_and(|c| is_name(c) && c != '/');
            let word = text[at..].split(|c| !is_name(c)).next().unwrap_or_default();
            word.find(".md").map(|end| &word[..end + 3]).filter(|_| begins)
        })
    };
    FOLDERS.into_iter().flat_map(of).collect()
}

/// Paths of documents in comments, hints, help texts, scripts and recipes. Logs of measurements tell of commands as they
/// were.
#[test]
fn every_document_that_a_file_names_is_there() {
    assert_eq!(
        named("see docs/a.md#b, (`x/docs/b-c.md`) or mydocs/d.md and docs/*.md"),
        ["docs/a.md", "docs/b-c.md"]
    );
    let root = Path::new(ROOT);
    let mut dead = Vec::new();
    for path in sources() {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if logs().contains(&name) || name.starts_with(GENERATED) || name == "tests/book.rs" {
            continue;
        }
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        let missing = named(&text).into_iter().filter(|document| !root.join(document).exists());
        dead.extend(missing.map(|document| format!("{name}: {document}")));
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

/// Words that people search for, by the names of the field and of other programs, and the page that has to answer each.
const SEARCHED: [(&str, &str); 29] = [
    ("early stopping", "guide/finetune.md"),
    ("gradient accumulation", "guide/speed.md"),
    ("batch size", "concepts/memory.md"),
    ("gradient clipping", "guide/not-a-number.md"),
    ("wandb", "guide/watch.md"),
    ("streaming", "guide/text.md"),
    ("schema", "reference/segue-schema.md"),
    ("learning rate finder", "guide/tune.md"),
    ("resume", "guide/resume.md"),
    ("fp16", "guide/precision.md"),
    ("mixed precision", "guide/precision.md"),
    ("class weights", "start/coming-from.md"),
    ("label smoothing", "start/coming-from.md"),
    ("LoRA", "start/coming-from.md"),
    ("freeze", "start/coming-from.md"),
    ("frozen", "start/coming-from.md"),
    ("warmup", "guide/large-batches.md"),
    ("checkpoint", "concepts/checkpoints.md"),
    ("best model", "concepts/checkpoints.md"),
    ("multi-node", "guide/hosts.md"),
    ("Slurm", "guide/batch.md"),
    ("torchrun", "guide/ranks.md"),
    ("NCCL", "guide/gpu.md"),
    ("OOM", "guide/troubleshooting.md"),
    ("out of memory", "guide/troubleshooting.md"),
    ("perplexity", "guide/evaluate.md"),
    ("tokenizer", "formats/tokenizer.md"),
    ("seed", "concepts/exactness.md"),
    ("reproducible", "concepts/exactness.md"),
];

#[test]
fn words_that_people_search_for_lead_to_their_pages() {
    let pages = pages();
    for (word, page) in SEARCHED {
        let text = pages[&format!("{PAGES}/{page}")].to_lowercase();
        let word = word.to_lowercase();
        let is_whole = |at: usize| {
            !text[..at].ends_with(char::is_alphanumeric)
                && !text[at + word.len()..].starts_with(char::is_alphanumeric)
        };
        assert!(text.match_indices(&word).any(|(at, _)| is_whole(at)), "{page} does not say `{word}`");
    }
}
