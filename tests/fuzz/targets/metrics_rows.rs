//! `metrics.jsonl` of a run: what is told of it is in proportion to it, whatever its rows hold.
#![no_main]

use segue_watch::{RunView, Runs, page, prometheus};

/// What names that are repeated may cost: 4,096 curves whose names have 256 bytes, each written as `\u0000`.
const OF_NAMES: usize = 8 << 20;
/// What a byte of the file may cost.
const OF_BYTES: usize = 64;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(dir.path().join("metrics.jsonl"), bytes).unwrap();
    let mut runs = Runs::open(&[dir.path().to_path_buf()]).unwrap();
    let views: Vec<RunView> = runs.look().cloned().collect();
    let most = OF_NAMES + OF_BYTES * bytes.len();
    assert!(page::data(&views).to_string().len() < most);
    assert!(prometheus::exposition(views.iter()).len() < most);
});
