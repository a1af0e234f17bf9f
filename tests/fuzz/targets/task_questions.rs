//! Files of questions with options, and AdvGLUE's: RACE, DREAM, one's own.
#![no_main]

#[path = "../task_folder.rs"]
mod task_folder;

use task_folder::TaskFolder;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let tasks = [
        ("race", ["train/high/1.txt", "dev/2.txt"]),
        ("dream", ["train.json", "dev.json"]),
        ("choice", ["train.jsonl", "dev.jsonl"]),
        ("adv-mnli", ["dev.json", "other.json"]),
    ];
    for (name, files) in tasks {
        let folder = TaskFolder::new(&files, bytes);
        for skip_bad in [false, true] {
            folder.open(name, skip_bad);
        }
    }
});
