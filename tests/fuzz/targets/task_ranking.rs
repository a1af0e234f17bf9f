//! Files of documents that are ranked. The first byte chooses which of them is foreign, the others being right, and whether
//! bad lines fail or are left out.
#![no_main]

#[path = "../task_folder.rs"]
mod task_folder;

use task_folder::TaskFolder;

const FILES: [(&str, &str); 6] = [
    ("queries.tsv", "1\ta b\n2\tc\n"),
    ("documents.tsv", "x\ta b c\ny\t0\nz\t1 2\n"),
    ("train.qrels", "1 0 x 2\n1 0 y 1\n1 0 z -2\n"),
    ("train.run", "1 Q0 x 1 0.5 t\n1 Q0 y 2 0.25 t\n"),
    ("dev.qrels", "1 0 x 1\n2 0 z 0\n"),
    ("dev.run", "2 Q0 z 1 3 t\n1 Q0 x 1 2 t\n"),
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let foreign = *choice as usize / 2 % FILES.len();
    let own = |(number, (file, text)): (usize, &(&'static str, &'static str))| match number == foreign {
        true => (*file, bytes),
        false => (*file, text.as_bytes()),
    };
    TaskFolder::of(FILES.iter().enumerate().map(own)).open("ranking", choice % 2 == 1);
});
