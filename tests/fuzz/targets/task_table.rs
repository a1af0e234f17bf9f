//! Tables of tasks: the same bytes as TSV, CSV and JSON lines, as words with labels, as a file of GLUE's and as questions
//! of one's own, failing on bad lines or leaving them out.
#![no_main]

#[path = "../task_folder.rs"]
mod task_folder;

use task_folder::TaskFolder;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let tasks = [
        ("text", ["train.tsv", "dev.tsv"]),
        ("text", ["train.csv", "dev.csv"]),
        ("text-regression", ["train.jsonl", "dev.jsonl"]),
        ("conll", ["train.txt", "dev.txt"]),
        ("wnli", ["train.tsv", "dev.tsv"]),
        ("choice", ["train.jsonl", "dev.jsonl"]),
    ];
    for (name, files) in tasks {
        let folder = TaskFolder::new(&files, bytes);
        for skip_bad in [false, true] {
            folder.open(name, skip_bad);
        }
    }
});
