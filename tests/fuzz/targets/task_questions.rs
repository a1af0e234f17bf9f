//! Files of questions with options, and AdvGLUE's. The first byte chooses between RACE, DREAM, questions of one's own and
//! AdvGLUE, and whether bad records fail or are left out.
#![no_main]

#[path = "../task_folder.rs"]
mod task_folder;

use task_folder::TaskFolder;

const TASKS: [(&str, [&str; 2]); 4] = [
    ("race", ["train/high/1.txt", "dev/2.txt"]),
    ("dream", ["train.json", "dev.json"]),
    ("choice", ["train.jsonl", "dev.jsonl"]),
    ("adv-mnli", ["dev.json", "other.json"]),
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let (name, files) = TASKS[*choice as usize / 2 % TASKS.len()];
    TaskFolder::new(&files, bytes).open(name, choice % 2 == 1);
});
