//! Tables of tasks. The first byte chooses what the rest is: TSV, CSV or JSON lines, words with labels, a file of GLUE's, or
//! questions of one's own; and whether bad lines fail or are left out.
#![no_main]

#[path = "../task_folder.rs"]
mod task_folder;

use task_folder::TaskFolder;

const TASKS: [(&str, [&str; 2]); 6] = [
    ("text", ["train.tsv", "dev.tsv"]),
    ("text", ["train.csv", "dev.csv"]),
    ("text-regression", ["train.jsonl", "dev.jsonl"]),
    ("conll", ["train.txt", "dev.txt"]),
    ("wnli", ["train.tsv", "dev.tsv"]),
    ("choice", ["train.jsonl", "dev.jsonl"]),
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let (name, files) = TASKS[*choice as usize / 2 % TASKS.len()];
    TaskFolder::new(&files, bytes).open(name, choice % 2 == 1);
});
