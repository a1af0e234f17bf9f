//! Files of the PyTorch programs with recurrent language models: what belongs to which part, sizes, rates, and what has no equal here.
#![no_main]

use segue_convert::inspect;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("checkpoint.pt");
    std::fs::write(&file, bytes).unwrap();
    let _ = inspect(&file);
});
